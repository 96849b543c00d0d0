"""Reader of server-sent events, comments included."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

__all__ = ["AUTHOR_HEADER", "Event", "EventStream", "open_stream"]

AUTHOR_HEADER = "x-author"
"""The `--author-header` of the gateways under test."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `fields` are all lines by name; `data` is None for comments and empty texts."""

    event: str
    data: Any
    id: str | None
    fields: dict[str, str] = field(default_factory=dict, repr=False, compare=False)


class EventStream:
    """Events of one response."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def __aiter__(self) -> AsyncIterator[Event]:
        found: dict[str, str] = {}
        async for line in self._lines:
            if line:
                name, _, value = line.partition(":")
                found[name or "comment"] = value.removeprefix(" ")
                continue
            data = found.get("data")
            yield Event(
                event=found.get("event", "comment"),
                data=json.loads(data) if data else None,
                id=found.get("id"),
                fields=found,
            )
            found = {}

    async def next(self) -> Event:
        """Return the next event that is not a comment."""
        async for each in self:
            if each.event != "comment":
                return each
        raise AssertionError("the stream has ended")

    async def change(self) -> dict[str, Any]:
        """Return the next change, with its event `id` as a field."""
        while True:
            event = await self.next()
            assert "errors" not in event.data, event
            (change,) = event.data["data"].values()
            if change["kind"] != "CHECKPOINT":
                return {**change, "id": event.id}

    async def rest(self) -> list[Event]:
        """Return all events until the end, without comments."""
        return [each async for each in self if each.event != "comment"]


@asynccontextmanager
async def open_stream(
    address: str,
    query: str,
    *,
    method: str = "POST",
    last: str | None = None,
    author: str | None = None,
    **variables: Any,
) -> AsyncIterator[EventStream]:
    """Open a stream with `Accept: text/event-stream`; `last` is the id of the last event."""
    headers = {"accept": "text/event-stream"}
    if author is not None:
        headers[AUTHOR_HEADER] = author
    if last is not None:
        headers["last-event-id"] = last
    asked: dict[str, Any] = {"json": {"query": query, "variables": variables}}
    if method == "GET":
        asked = {"params": {"query": query, "variables": json.dumps(variables)}}
    async with (
        httpx.AsyncClient(timeout=60) as client,
        client.stream(method, f"{address}/graphql", headers=headers, **asked) as response,
    ):
        yield EventStream(response)
