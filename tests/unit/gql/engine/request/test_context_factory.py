"""Context factory: a caller's context is cached for the next request."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.datastructures import Headers

from revstream.gql.auth.authenticator import Authenticator, Credentials
from revstream.gql.engine.request import context_factory
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.context_factory import RequestContextFactory
from revstream.resolvers.access.principal import Principal
from tests.support.reads import Memory


class _Known:
    """Authenticates callers by the token's text, always with the same principals."""

    keys = ()

    def __init__(self) -> None:
        self.principals: dict[str | None, Principal] = {}

    def holds(self, _principal: Principal) -> bool:
        return True

    def known(self, headers: Mapping[str, str]) -> Principal | None:
        return self.principals.get(headers.get("authorization"))

    async def principal(self, credentials: Credentials) -> Principal:
        name = credentials.authorization
        return self.principals.setdefault(name, Principal(name=name))


async def test_frequent_callers_stay_cached(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least recently used caller is evicted."""
    monkeypatch.setattr(context_factory, "_MOST", 2)
    created: list[Any] = []

    def make(principal: Principal) -> RequestContext:
        created.append(principal.name)
        return memory.context()

    callers = RequestContextFactory(
        cast(Authenticator, _Known()), make, author_header=None, deciding=frozenset()
    )
    for name in ("often", "a", "often", "b", "often", "c", "often", "a"):
        context = await callers.for_request(Headers({"authorization": name}))
        assert context.principal == name
    assert created == ["often", "a", "b", "c", "a"]


async def test_a_reserved_name_in_the_author_header_is_ignored(memory: Memory) -> None:
    """Only the copier has such a name."""
    callers = RequestContextFactory(
        None, lambda _: memory.context(), author_header="x-user", deciding=frozenset()
    )
    for name, author in (("ann", "ann"), ("revstream:copier", None), ("revstream:", None)):
        context = await callers.for_request(Headers({"x-user": name}))
        assert context.principal == author


async def test_a_key_and_a_token_of_one_name_are_two_owners(memory: Memory) -> None:
    """Cursors, drafts and idempotency keys have owners; the author of both is the same."""
    known = _Known()
    known.principals = {
        "token": Principal(name="bob"),
        "key": Principal(name="bob", account="revstream:key:bob"),
    }
    callers = RequestContextFactory(
        cast(Authenticator, known),
        lambda _: memory.context(),
        author_header=None,
        deciding=frozenset(),
    )
    found = [
        await callers.for_request(Headers({"authorization": each, "idempotency-key": "k"}))
        for each in ("token", "key")
    ]
    info = cast(Any, SimpleNamespace(field_name="f", path=SimpleNamespace(key="f")))
    authors = [each.author_of(info, {}) for each in found]
    assert [each.by for each in authors] == ["bob", "bob"]
    assert len({each.owner for each in found}) == 2
    assert len({each.owner for each in authors}) == 2
    assert len({each.repeat for each in authors}) == 2
