"""HTTP server for the keys of an issuer, with responses that a test sets."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["KeyServer", "key_server"]


@dataclass
class KeyServer:
    """A JWKS server.

    `pieces`: parts of the body, each sent by itself. `held`: while it is clear, the remaining parts
    are not sent.
    """

    url: str = ""
    port: int = 0
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Iterable[bytes] = ()
    held: threading.Event = field(default_factory=threading.Event)
    asked: int = 0


@contextlib.contextmanager
def key_server(body: bytes = b"", port: int = 0) -> Iterator[KeyServer]:
    served = KeyServer(pieces=[body])
    served.held.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked += 1
            self.send_response(served.status)
            for name, value in served.headers.items():
                self.send_header(name, value)
            self.end_headers()
            for piece in served.pieces:
                with contextlib.suppress(OSError):
                    self.wfile.write(piece)
                    self.wfile.flush()
                served.held.wait(30)

        def log_message(self, *_given: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        served.port = server.server_address[1]
        served.url = f"http://127.0.0.1:{served.port}/jwks.json"
        running = threading.Thread(target=server.serve_forever, args=(0.01,))
        running.start()
        try:
            yield served
        finally:
            served.held.set()
            server.shutdown()
            running.join()
