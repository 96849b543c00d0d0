"""WebSocket clients of the benchmarks count a server's events, however its bytes are split."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from benchmarks.socket_load import Link, Links, text_frame

EVENT = b'{"id":"1","type":"next","payload":{"data":{"productChanges":{"product":{"stock":7}}}}}'
AWAKENED = EVENT.replace(b"7", b"0")
NOTHING = b'{"id":"1","type":"next","payload":{"data":{"productChanges":{"product":null}}}}'


def served(text: bytes, opcode: int = 0x81) -> bytes:
    """Return the frame as a server sends it: not masked."""
    masked = text_frame(text, opcode)
    at = masked.index(b"\0\0\0\0" + text) if text else len(masked) - 4
    return bytes((masked[0], masked[1] & 0x7F)) + masked[2:at] + text


class Server:
    """Accepts everything, and sends what the test says."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def agree(self) -> None:
        self.plain, _ = self._listening.accept()
        self.plain.recv(65536)
        self.plain.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        self.plain.recv(65536)
        self.plain.sendall(served(b'{"type":"connection_ack"}'))
        self.subscribed = self.plain.recv(65536)

    def close(self) -> None:
        self.plain.close()
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


def subscribe(server: Server, lost: list[Link]) -> tuple[Links, Link]:
    thread = threading.Thread(target=server.agree)
    thread.start()
    links = Links(server.address, lost.append)
    link = Link(1, {"query": "subscription { s }"}, [])
    links.open(link)
    while not links.subscribed:
        links.turn(1)
    thread.join()
    return links, link


@pytest.mark.parametrize("size", [7, 3001, 100_000])
def test_frames_are_counted_in_any_pieces(server: Server, size: int) -> None:
    """Long frames, pongs and short frames arrive in pieces of any size."""
    long = EVENT + b" " * 70_000
    sent = b"".join([served(EVENT), served(long), served(b"", 0x8A), served(EVENT + b" " * 200)])
    links, link = subscribe(server, [])
    assert b"subscription { s }" in server.subscribed
    for start in range(0, len(sent), size):
        server.plain.sendall(sent[start : start + size])
        links.turn(0.001)
    while links.texts < 3:
        links.turn(1)
    assert sum(links.counts.values()) == links.texts == 3
    assert [text for _, text in link.kept or ()] == [EVENT, long, EVENT + b" " * 200]
    assert links.arrived == 1
    links.close()


def test_a_checkpoint_is_no_event_and_a_ping_is_answered(server: Server) -> None:
    """A checkpoint event is not counted, and the pong has the ping's bytes."""
    lost: list[Link] = []
    links, link = subscribe(server, lost)
    server.plain.sendall(served(NOTHING) + served(b"hello", 0x89) + served(EVENT))
    while not links.texts:
        links.turn(1)
    assert sum(links.counts.values()) == links.texts == 1
    assert server.plain.recv(100) == text_frame(b"hello", 0x8A)
    server.plain.sendall(served(b"\x03\xe8", 0x88))
    while not lost:
        links.turn(1)
    assert lost == [link]
    links.close()


def test_events_that_only_signal_readiness_are_not_counted(server: Server) -> None:
    """They prove that a subscription is open, and may arrive late."""
    links, link = subscribe(server, [])
    server.plain.sendall(served(AWAKENED) + served(EVENT) + served(AWAKENED))
    while links.texts < 3:
        links.turn(1)
    assert sum(links.counts.values()) == 1
    assert links.arrived == 1
    assert [text for _, text in link.kept or ()] == [AWAKENED, EVENT, AWAKENED]
    links.close()
