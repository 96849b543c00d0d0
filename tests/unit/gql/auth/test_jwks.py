"""Key sets over HTTP: rotation, and an issuer that is unavailable, slow or invalid."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from revstream.gql.auth import jwks
from revstream.gql.auth.bearer_token import BearerOptions, BearerTokens
from revstream.gql.auth.jwks import JsonWebKeySet
from revstream.resolvers.errors import Unauthenticated
from revstream.streams.core.errors import Unavailable
from tests.support.eventually import eventually
from tests.support.issuer import AUDIENCE, ISSUER, Issuer
from tests.support.key_server import KeyServer, key_server

OPTIONS = BearerOptions(algorithms=["ES256"], issuer=ISSUER, audience=AUDIENCE)


class Clock:
    """A clock that the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "unused.json")


@pytest.fixture
def server(issuer: Issuer) -> Iterator[KeyServer]:
    with key_server(key_set(issuer)) as served:
        yield served


def key_set(issuer: Issuer) -> bytes:
    return orjson.dumps(issuer.jwks())


async def test_keys_rotate(issuer: Issuer, server: KeyServer) -> None:
    """A new key is read when a token names it; an old one is removed with the next read."""
    clock = Clock()
    bearer = BearerTokens(JsonWebKeySet(server.url, clock=clock), OPTIONS)
    old = issuer.token()
    await bearer.principal(old)
    issuer.rotate("second", keep=True)
    server.pieces = [key_set(issuer)]
    clock.now += 11
    assert await bearer.principal(issuer.token("bob"))
    assert await bearer.principal(old)
    issuer.withdraw("first")
    server.pieces = [key_set(issuer)]
    clock.now += 301
    with pytest.raises(Unauthenticated, match="key of the token: unknown"):
        await bearer.principal(old)
    assert server.asked == 3


async def test_an_issuer_that_is_unavailable_at_the_start(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    """Callers get an error with `Retry-After` until the issuer answers.

    The log has a line for each change of that state, and none for further attempts.
    """
    with key_server() as gone:
        pass
    clock = Clock()
    bearer = BearerTokens(JsonWebKeySet(gone.url, clock=clock), OPTIONS)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            with pytest.raises(Unavailable) as refused:
                await bearer.principal(issuer.token())
            assert refused.value.facts == {"retryAfterSeconds": 10}
            clock.now += 11
        with key_server(key_set(issuer), gone.port):
            assert await bearer.principal(issuer.token())
    assert [each.message for each in caplog.records] == ["keys not read", "keys read"]


async def test_an_issuer_that_becomes_unavailable_later(
    issuer: Issuer, server: KeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last keys stay valid, and new ones are read when it is back."""
    clock = Clock()
    bearer = BearerTokens(JsonWebKeySet(server.url, clock=clock), OPTIONS)
    token = issuer.token()
    principal = await bearer.principal(token)
    with caplog.at_level(logging.INFO):
        server.status = 500
        clock.now += 301
        assert await bearer.principal(token) is principal
        clock.now += 11
        assert await bearer.principal(issuer.token("bob"))
        server.status = 200
        clock.now += 11
        assert await bearer.principal(token) is principal
    assert [each.message for each in caplog.records] == ["keys not read", "keys read"]


async def test_a_set_sent_in_pieces_is_read_whole(issuer: Issuer, server: KeyServer) -> None:
    """A slow network sends it like this."""
    whole = key_set(issuer)
    server.pieces = (whole[at : at + 10] for at in range(0, len(whole), 10))
    server.held.clear()
    keys = JsonWebKeySet(server.url)
    reading = asyncio.create_task(keys.key("first", "ES256"))
    await eventually(lambda: server.asked)
    server.held.set()
    assert await reading


async def test_an_issuer_that_never_answers(
    issuer: Issuer, server: KeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is bounded for all callers; those with a cached token are served."""
    monkeypatch.setattr(jwks, "_PATIENCE_S", 0.2)
    clock = Clock()
    bearer = BearerTokens(JsonWebKeySet(server.url, clock=clock), OPTIONS)
    token = issuer.token()
    await bearer.principal(token)
    server.held.clear()
    server.pieces = [b"{", b"}"]
    clock.now += 301
    assert all(await asyncio.gather(*(bearer.principal(token) for _ in range(5))))
    assert server.asked == 2
    with pytest.raises(Unavailable):
        await BearerTokens(JsonWebKeySet(server.url), OPTIONS).principal(token)


def key(**given: Any) -> bytes:
    return orjson.dumps({"keys": [{"kty": "EC", **given}]})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b'{"keys": 1}',
        b"\xff",
        b'{"keys": [' + b" " * 1024 * 1024 + b"]}",
    ],
)
async def test_an_invalid_set_leaves_the_last_one(
    issuer: Issuer, server: KeyServer, body: bytes
) -> None:
    """A set without an end is invalid, too."""
    clock = Clock()
    keys = JsonWebKeySet(server.url, clock=clock)
    good = await keys.key("first", "ES256")
    server.pieces = [body]
    clock.now += 301
    assert await keys.key("first", "ES256") is good
    assert keys.holds(good)


@pytest.mark.parametrize("headers", [{"location": "http://127.0.0.1/elsewhere"}])
async def test_a_redirection_is_not_followed(
    issuer: Issuer, server: KeyServer, headers: dict[str, str]
) -> None:
    """The keys are only at the configured URL."""
    server.status, server.headers = 302, headers
    with pytest.raises(Unavailable):
        await JsonWebKeySet(server.url).key("first", "ES256")


@pytest.mark.parametrize(
    "body",
    [
        key(kid="first"),
        key(kid=["first"]),
        key(kid={}),
        key(kid="first", crv="P-256", x=5, y="AA"),
        key(kid="first", crv="P-256", x="AA", y="AA"),
        key(kid="first", crv="P-256", x="é", y="%"),
        key(kid="first", crv=[], x="AA", y="AA"),
        b'{"keys": [{"kty": 5, "kid": "first"}]}',
        b'{"keys": [{"kty": "RSA", "kid": "first", "n": 5, "e": "AQAB"}]}',
        b'{"keys": [{"kty": "oct", "kid": "first", "k": null}]}',
    ],
)
async def test_a_token_with_an_invalid_key_is_refused(server: KeyServer, body: bytes) -> None:
    """It is not an error of the gateway."""
    server.pieces = [body]
    with pytest.raises(Unauthenticated):
        await JsonWebKeySet(server.url).key("first", "ES256")


@pytest.mark.parametrize("status", [None, 500])
async def test_secrets_of_a_url_are_not_logged(
    server: KeyServer, caplog: pytest.LogCaptureFixture, status: int | None
) -> None:
    """This holds for successful and failed reads."""
    url = server.url.replace("://", "://user:s3cret@") + "?key=s3cret"
    if status is not None:
        url = url.replace(f":{urlsplit(server.url).port}", ":notaport")
    keys = JsonWebKeySet(url)
    with caplog.at_level(logging.DEBUG), contextlib.suppress(Unavailable, Unauthenticated):
        await keys.key("first", "ES256")
    lines = [f"{each.getMessage()} {vars(each)}" for each in caplog.records if "keys" in each.msg]
    assert lines
    assert not any("s3cret" in each for each in lines)
