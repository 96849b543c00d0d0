"""gql.callers: what is made for a caller is kept for his next request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from starlette.datastructures import Headers

import gql.callers
from gql.callers import Callers
from gql.context import Context
from gql.sign_in import Credentials, SignIn
from resolvers.principals import Principal
from tests.support.reads import Memory


class _Known:
    """A sign-in of callers by the token's text, always the same ones."""

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


async def test_who_asks_often_is_kept(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many others come in between; the one that was away for longest goes."""
    monkeypatch.setattr(gql.callers, "_MOST", 2)
    made: list[Any] = []

    def make(principal: Principal) -> Context:
        made.append(principal.name)
        return memory.context()

    callers = Callers(cast(SignIn, _Known()), make, author_header=None, deciding=frozenset())
    for name in ("often", "a", "often", "b", "often", "c", "often", "a"):
        context = await callers.of_request(Headers({"authorization": name}))
        assert context.principal == name
    assert made == ["often", "a", "b", "c", "a"]
