"""Bearer tokens and key sets: validation, rotation of keys, and bounded reads."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest

from revstream.gql.auth import jwks
from revstream.gql.auth.bearer_token import BearerOptions, BearerTokens
from revstream.gql.auth.jwks import JsonWebKeySet
from revstream.gql.auth.sessions import Session, Sessions
from revstream.resolvers.errors import Unauthenticated
from revstream.streams.core.errors import Unavailable
from tests.support.eventually import eventually
from tests.support.issuer import AUDIENCE, ISSUER, Issuer

OPTIONS = BearerOptions(
    algorithms=["ES256"], issuer=ISSUER, audience=AUDIENCE, leeway_s=1, roles="realm.roles"
)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "jwks.json")


@pytest.fixture
def bearer(issuer: Issuer) -> BearerTokens:
    return BearerTokens(JsonWebKeySet(str(issuer.place)), OPTIONS)


async def test_a_token_is_a_principal(issuer: Issuer, bearer: BearerTokens) -> None:
    """The roles are in the configured claim, and all claims are available to row rules."""
    token = issuer.token(realm={"roles": ["staff", 3]}, tenant="acme")
    principal = await bearer.principal(token)
    assert (principal.name, principal.roles) == ("ann", {"staff"})
    assert principal.claim("tenant") == "acme"
    assert await bearer.principal(token) is principal


def tampered(token: str) -> str:
    head, body, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    other = base64.urlsafe_b64encode(json.dumps({**claims, "sub": "eve"}).encode()).decode()
    return f"{head}.{other.rstrip('=')}.{signature}"


def sign_with_secret(claims: dict[str, Any], secret: bytes) -> str:
    """Sign as PyJWT itself refuses to."""
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "first"}, claims]
    encoded = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts]
    signature = hmac.digest(secret, b".".join(encoded), "sha256")
    return b".".join([*encoded, base64.urlsafe_b64encode(signature).rstrip(b"=")]).decode()


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"lasts_s": -10}, "expired"),
        ({"nbf": time.time() + 100_000}, "not valid yet"),
        ({"aud": "another"}, "another audience"),
        ({"aud": None}, "no claim 'aud'"),
        ({"iss": "https://evil.example.org"}, "another issuer"),
        ({"iss": None}, "no claim 'iss'"),
        ({"exp": None}, "no claim 'exp'"),
        ({"sub": None}, "no claim 'sub'"),
        ({"sub": 5}, "expected a valid JWT"),
        ({"exp": float("inf")}, "."),
        ({"exp": float("nan")}, "."),
        ({"nbf": float("inf")}, "."),
        ({"sub": "revstream:copier"}, "names that begin with revstream: are reserved"),
    ],
)
async def test_invalid_claims_are_refused(
    issuer: Issuer, bearer: BearerTokens, claims: dict[str, Any], message: str
) -> None:
    """The error has the reason."""
    with pytest.raises(Unauthenticated, match=message):
        await bearer.principal(issuer.token(**claims))


@pytest.mark.parametrize("exp", [4_102_444_800_000, 10**30, 1e308])
async def test_an_expiry_in_milliseconds_can_be_rendered(
    issuer: Issuer, bearer: BearerTokens, exp: float
) -> None:
    """This is a mistake of the issuer; administrators can list the session all the same."""
    sessions = Sessions()
    session = Session(await bearer.principal(issuer.token(exp=exp)), "websocket", lambda *_: None)
    sessions.open(session)
    [listed] = sessions.shown()
    assert listed["expiresAt"].startswith("9999-12-31T")
    sessions.close(session)


async def test_a_token_with_an_invalid_signature_is_refused(
    issuer: Issuer, bearer: BearerTokens
) -> None:
    """It is changed, unsigned, signed with the public key as a secret, or no token at all."""
    token = issuer.token()
    public = json.dumps(issuer.jwks()["keys"][0]).encode()
    claims = jwt.decode(token, options={"verify_signature": False})
    forged = [
        tampered(token),
        jwt.encode(claims, None, algorithm="none", headers={"kid": "first"}),
        sign_with_secret(claims, public),
        token.rsplit(".", 1)[0] + ".",
        *("", "x", "a.b.c", "x" * 20_000),
    ]
    for each in forged:
        with pytest.raises(Unauthenticated):
            await bearer.principal(each)


async def test_a_token_expires_at_its_time(issuer: Issuer, bearer: BearerTokens) -> None:
    """Cached tokens are checked again."""
    token = issuer.token(lasts_s=1)
    principal = await bearer.principal(token)
    await eventually(lambda: principal.expired)
    with pytest.raises(Unauthenticated, match="expired"):
        await bearer.principal(token)


async def test_a_new_key_is_read_and_an_old_one_evicted(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of keys that the issuer has withdrawn are refused."""
    monkeypatch.setattr(jwks, "_AGAIN_S", 0)
    bearer = BearerTokens(JsonWebKeySet(str(issuer.place)), OPTIONS)
    old = issuer.token()
    await bearer.principal(old)
    issuer.rotate("second")
    assert (await bearer.principal(issuer.token("bob"))).name == "bob"
    with pytest.raises(Unauthenticated, match="key of the token: unknown"):
        await bearer.principal(old)


async def test_a_withdrawn_key_ends_its_accepted_tokens(issuer: Issuer) -> None:
    """Cached tokens end within the set's maximum age, without an unknown key.

    A key that stays keeps its tokens.
    """
    now = 0.0
    keys = JsonWebKeySet(str(issuer.place), fresh_s=300, clock=lambda: now)
    bearer = BearerTokens(keys, OPTIONS)
    old = issuer.token()
    withdrawn = await bearer.principal(old)
    issuer.rotate("second", keep=True)
    now += 301
    token = issuer.token("bob")
    stays = await bearer.principal(token)
    assert await bearer.principal(old) is withdrawn
    issuer.withdraw("first")
    now += 301
    assert await bearer.principal(token) is stays
    assert not keys.holds(withdrawn.key)
    with pytest.raises(Unauthenticated, match="key of the token: unknown"):
        await bearer.principal(old)


async def test_a_set_is_read_again_without_requests(issuer: Issuer) -> None:
    """Open connections end with a withdrawn key, too."""
    keys = JsonWebKeySet(str(issuer.place), fresh_s=0.01)
    principal = await BearerTokens(keys, OPTIONS).principal(issuer.token())
    changed = asyncio.Event()
    keys.changed = changed.set
    watching = asyncio.create_task(keys.watch())
    issuer.rotate("second")
    async with asyncio.timeout(10):
        await changed.wait()
    watching.cancel()
    assert not keys.holds(principal.key)


async def test_unknown_keys_cause_a_bounded_number_of_reads(issuer: Issuer) -> None:
    """Tokens with invented key ids do not make the gateway send requests."""
    now = 0.0
    keys = JsonWebKeySet(str(issuer.place), clock=lambda: now)
    reads = 0
    read = keys._read

    async def counted() -> Any:
        nonlocal reads
        reads += 1
        return await read()

    keys._read = counted  # type: ignore[method-assign]
    await keys.key("first", "ES256")
    for number in range(50):
        now += 0.1
        with pytest.raises(Unauthenticated):
            await keys.key(f"invented-{number}", "ES256")
    assert reads == 1
    now += 10
    with pytest.raises(Unauthenticated):
        await keys.key("invented", "ES256")
    assert reads == 2


async def test_a_set_that_cannot_be_read_leaves_the_last_one(issuer: Issuer) -> None:
    """Without an earlier set, the gateway is unavailable."""
    now = 0.0
    keys = JsonWebKeySet(str(issuer.place), clock=lambda: now)
    await keys.key("first", "ES256")
    issuer.place.write_text("not JSON")
    now += 1000
    assert await keys.key("first", "ES256")
    with pytest.raises(Unavailable):
        await JsonWebKeySet(str(issuer.place)).key("first", "ES256")


@pytest.mark.parametrize("algorithms", [[], ["none"], ["HS256", "RS256"], ["XX"]])
def test_forbidden_algorithms_are_refused(algorithms: list[str]) -> None:
    """The check is at the start."""
    with pytest.raises(ValueError, match="algorithm"):
        BearerOptions(algorithms=algorithms, issuer="i", audience="a")


async def test_a_cached_principal_is_returned_only_while_its_token_is_valid(
    issuer: Issuer, bearer: BearerTokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token must have been verified, be unexpired, and its key must not be withdrawn."""
    token = issuer.token()
    assert bearer.known(token) is None
    principal = await bearer.principal(token)
    assert bearer.known(token) is principal
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: principal.expires_at)
        assert bearer.known(token) is None
    assert bearer.known(token) is principal
    with monkeypatch.context() as withdrawn:
        withdrawn.setattr(bearer.keys, "_made", {})
        assert bearer.known(token) is None
