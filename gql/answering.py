"""Who answers requests that have one head, and is kept with it (`gql.known_heads`); and what a
client takes as an answer.

Source: docs/decisions/0033-known-heads.md, 0036-lookups.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send
from strawberry.types import ExecutionResult

from gql.context import Context
from gql.event_streams import MULTIPART, SSE, Framing, body_of
from gql.failures import answer
from gql.http_requests import GraphQLRequest
from gql.known_heads import Waiting
from gql.lookups import Lookup
from gql.media_types import JSON, Accept, MediaType
from gql.responses import Executed

if TYPE_CHECKING:
    from gql.http import GraphQLEndpoint

__all__ = ["Answering", "Takes", "answered", "taken"]

_HTML = MediaType("text/html")
_RESPONSE_JSON = MediaType("application/graphql-response+json", {"charset": "utf-8"})


@dataclass(frozen=True, slots=True)
class Takes:
    """What a client takes: a page rather than JSON; which JSON; which stream."""

    page: bool
    json: MediaType | None
    stream: Framing | None


# A client sends the same with each request, and reading it takes as long as parsing a small query.
@lru_cache(maxsize=128)
def taken(header: str) -> Takes:
    accept = Accept(header)
    plain, modern = accept.rank(JSON), accept.rank(_RESPONSE_JSON)
    most = max(plain, modern)
    # Who names the newer type understands it; anybody else understands the older one.
    newer = modern > plain or (modern == plain and modern[1] == 2)
    json = (_RESPONSE_JSON if newer else JSON) if most[0] else None
    events = accept.rank(SSE.media_type)
    # Without the parameter it is the multipart of incremental delivery, which is another one.
    parts = accept.rank(MULTIPART.media_type, naming="subscriptionspec")
    stream = None
    if parts[0] and (json is not None or parts > events):
        stream = MULTIPART
    elif events[0] and json is None:
        stream = SSE
    return Takes(accept.rank(_HTML) > most, json, stream)


class Answering:
    """Answers requests that have one head: see `gql.known_heads.Answerer`."""

    __slots__ = ("_endpoint", "_headers", "_method", "_takes")

    def __init__(
        self, endpoint: GraphQLEndpoint, headers: Mapping[str, str], takes: Takes, method: str
    ) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._takes = takes
        self._method = method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = self._endpoint.response(scope, receive, self._headers, self._takes)
        await self._answer(asked, scope, receive, send)

    def begin(self, body: bytes, waiting: Waiting) -> bool:
        json = self._takes.json
        if json is None or self._method != "POST":
            return False
        at_hand = self._endpoint.at_hand(body, self._headers)
        if at_hand is None:
            return False

        def looked_up(lookup: Lookup, data: dict[str, Any] | None) -> None:
            if data is None:
                waiting.hand_over(partial(self._go_on, lookup))
                return
            try:
                response = Executed({"data": data}, json)
            except Exception as exc:
                waiting.hand_over(self._failed(exc))
            else:
                waiting.answer(response)

        if not self._endpoint.schema.lookups.begin(*at_hand, looked_up):
            waiting.hand_over(partial(self._execute, *at_hand))
        return True

    async def _execute(
        self, asked: GraphQLRequest, context: Context, scope: Scope, receive: Receive, send: Send
    ) -> None:
        endpoint = self._endpoint
        making = endpoint.response_to(asked, context, scope, self._headers, self._takes)
        await self._answer(making, scope, receive, send)

    async def _go_on(self, lookup: Lookup, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(self._gone_on(lookup), scope, receive, send)

    async def _gone_on(self, lookup: Lookup) -> ASGIApp:
        return answered(await self._endpoint.schema.go_on(lookup), self._takes.json or JSON)

    async def _answer(
        self, making: Awaitable[ASGIApp], scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            response = await making
        except ClientDisconnect:
            return
        except Exception as exc:
            response = self._failed(exc)
        await response(scope, receive, send)

    def _failed(self, exc: Exception) -> ASGIApp:
        return self._endpoint.schema.failures.response(exc, self._takes.json or JSON)


def answered(result: ExecutionResult, media_type: MediaType) -> ASGIApp:
    """The response to what was executed, or was refused."""
    body = body_of(result)
    if "data" in body:
        return Executed(body, media_type)
    # In application/json, for which the specification wants 200, what is wrong with a document is
    # no matter of the status.
    return answer(body, media_type, otherwise=400 if media_type is _RESPONSE_JSON else 200)
