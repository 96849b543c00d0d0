"""A TCP proxy between a client and a gateway that can be cut and mended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

__all__ = ["TcpProxy", "tcp_proxy"]


class TcpProxy:
    """A TCP proxy; `address` is the address for clients, which stays the same for any target."""

    def __init__(self, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last = address
        self._target: str | None = address
        self._open: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.connections = 0

    def cut(self) -> None:
        """Close all connections and accept none until `mend`."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result(timeout=30)

    def mend(self, address: str | None = None) -> None:
        """Forward again, to `address` if it is given, else to the last target."""
        self._target = self._last = address or self._last

    async def serve(self) -> asyncio.Server:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _cut(self) -> None:
        self._target = None
        for each in self._open:
            each.transport.abort()

    async def _connected(self, near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        if self._target is None:
            back.transport.abort()
            return
        parts = urlsplit(self._target)
        try:
            far, forth = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            back.transport.abort()
            return
        self.connections += 1
        ends = {back, forth}
        self._open |= ends
        await asyncio.gather(_flow(near, forth), _flow(far, back))
        self._open -= ends


async def _flow(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


@contextmanager
def tcp_proxy(address: str) -> Iterator[TcpProxy]:
    """Run a proxy on an event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    wire = TcpProxy(address, loop)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(wire.serve(), loop).result(timeout=30)
    try:
        yield wire
    finally:
        wire.cut()

        async def end() -> None:
            server.close()
            await asyncio.gather(
                *asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True
            )

        asyncio.run_coroutine_threadsafe(end(), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
