"""Webhook receiver on a real socket, with behaviour that a test sets.

It records each request, and answers, fails, hangs, resets, or sends a body without an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Receiver", "Reply", "Request", "running_receiver", "taken"]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """Answer to one request.

    `hang`: never answer. `reset`: reset the connection. `endless`: send a body that never ends.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hang: bool = False
    reset: bool = False
    endless: bool = False


@dataclass(kw_only=True)
class Request:
    """One received request; `status` is 0 until it is answered."""

    path: str
    headers: dict[str, str]
    body: bytes
    event: dict[str, Any]
    status: int = 0

    @property
    def subject(self) -> str:
        return str(self.event.get("subject"))

    @property
    def version(self) -> int:
        return int(self.event["data"].get("version", 0))

    @property
    def fence(self) -> int:
        return int(self.event["fencingtoken"])


Behave = Callable[[Request], Reply | Awaitable[Reply]]


class Receiver:
    """A webhook receiver.

    Attributes:
        behave: returns the answer to a request; may wait.
        requests: all received requests, in order.
        at_once: the highest number of requests in progress at a time.
        overlapping: documents with a request that arrived before the answer to the previous one.
    """

    def __init__(self, behave: Behave = lambda request: Reply()) -> None:
        self.behave = behave
        self.requests: list[Request] = []
        self.at_once = 0
        self.connections = 0
        self.port = 0
        self.overlapping: list[str] = []
        self._open: Counter[str] = Counter()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/changes"

    @property
    def taken(self) -> list[tuple[str, int]]:
        """Return the requests answered with 200, as (subject, version), in order of arrival."""
        return taken(self.requests)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Receiver]:
        """Serve, on the same port each time."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for writer in list(self._writers):
                writer.transport.abort()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.rstrip().split("\r\n")
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        event = json.loads(body) if body else {}
        request = Request(path=first.split()[1], headers=headers, body=body, event=event)
        self.requests.append(request)
        # Per lease holder: the previous one may still be at work for a moment.
        name = f"{request.subject}, {request.headers.get('revstream-fencing-token')}"
        if self._open[name]:
            self.overlapping.append(name)
        self._open[name] += 1
        self.at_once = max(self.at_once, self._open.total())
        try:
            act = self.behave(request)
            if not isinstance(act, Reply):
                act = await act
        finally:
            self._open[name] -= 1
        return await self._act(act, request, writer)

    async def _act(self, act: Reply, request: Request, writer: asyncio.StreamWriter) -> bool:
        if act.hang:
            await asyncio.get_running_loop().create_future()
        if act.reset:
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            return False
        request.status = act.status
        length = {} if act.endless else {"content-length": str(len(act.body))}
        lines = [f"{name}: {value}" for name, value in {**length, **act.headers}.items()]
        writer.write("\r\n".join([f"HTTP/1.1 {act.status} Status", *lines, "", ""]).encode())
        writer.write(act.body)
        await writer.drain()
        while act.endless:
            writer.write(b"x" * 65536)
            await writer.drain()
        return True


def taken(requests: list[Request]) -> list[tuple[str, int]]:
    return [(each.subject, each.version) for each in requests if each.status == 200]


@contextmanager
def running_receiver(receiver: Receiver) -> Iterator[Receiver]:
    """Run the receiver on an event loop in a thread of its own, for tests without a loop."""
    started, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with receiver.serving():
            started.set()
            await stop.wait()
        # Hanging requests.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for each in left:
            each.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(10)
    try:
        yield receiver
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
