"""Handshakes of WebSockets that were read as requests already, and are not read once more.

uvicorn reads a request to find out that it is a handshake, writes it down again and has websockets
read that: a twentieth of what ten thousand who reconnect take.

Guarantees: what comes of one is what comes of it read again; websockets still decides about it, and
reads by itself whatever is not plain.

Source: docs/decisions/0024-sockets.md; RFC 6455, 4.2.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeaderValue
from websockets.http11 import Request
from websockets.protocol import Protocol
from websockets.server import ServerProtocol

__all__ = ["handshake_of", "take_frames"]

# What has a body is no handshake.
_OF_A_BODY = frozenset({b"content-length", b"transfer-encoding"})
# Websockets takes more, of either, and says what is wrong with those that are too many or too long.
_HEADERS_MOST = 100
_LONGEST = 4096


def handshake_of(method: str, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Request | None:
    """As websockets would read it; None where it has to.

    Args:
        headers: names in lower case.
    """
    if method != "GET" or len(url) > _LONGEST or not url.isascii():
        return None
    read = Headers()
    for count, (name, value) in enumerate(headers):
        if (
            count == _HEADERS_MOST
            or len(value) > _LONGEST
            or len(name) > _LONGEST
            or name in _OF_A_BODY
            # Which characters they stand for depends on its version.
            or not value.isascii()
        ):
            return None
        try:
            read[name.decode("ascii")] = value.decode("ascii").strip(" \t")
        except InvalidHeaderValue:
            return None
    return Request(url.decode("ascii"), read)


def take_frames(protocol: ServerProtocol) -> None:
    """Of one that would read a handshake first: read frames from now on. Whether it is answered
    yet is known by its state, and not by what it reads."""
    protocol.parser = Protocol.parse(protocol)
    next(protocol.parser)
