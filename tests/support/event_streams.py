"""Server-sent events as they come, comments among them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2 as httpx

__all__ = ["AUTHOR_HEADER", "Event", "EventStream", "open_stream"]

AUTHOR_HEADER = "x-author"
"""For gateways that are started with it as `--author-header`."""


@dataclass(frozen=True, slots=True)
class Event:
    """`data`: None of a comment, and where it is empty. `fields`: all lines, by their names."""

    event: str
    data: Any
    id: str | None
    fields: dict[str, str] = field(default_factory=dict, repr=False, compare=False)


class EventStream:
    """One response."""

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
        """The next that is no comment."""
        async for each in self:
            if each.event != "comment":
                return each
        raise AssertionError("the stream has ended")

    async def change(self) -> dict[str, Any]:
        """The next change; its `id` is among its fields."""
        while True:
            event = await self.next()
            assert "errors" not in event.data, event
            (change,) = event.data["data"].values()
            if change["kind"] != "CHECKPOINT":
                return {**change, "id": event.id}

    async def rest(self) -> list[Event]:
        """All until its end, without comments."""
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
    """The answer to who takes nothing but events; `last` is the last event's id."""
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
