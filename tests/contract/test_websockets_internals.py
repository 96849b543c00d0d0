"""Contract test of undocumented members of websockets that gql/server and gql/endpoint use."""

from __future__ import annotations

from websockets.frames import Frame, Opcode
from websockets.http11 import Response
from websockets.server import ServerProtocol

from tests.support.members import check_members


def test_websockets_has_the_members_of_a_protocol() -> None:
    """`WebSocketConnection` measures received bytes, and reads how a socket was closed."""
    protocol = ServerProtocol()
    check_members(
        "websockets",
        protocol,
        *("reader", "close_sent", "handshake_exc", "state", "fail", "data_to_send"),
    )
    check_members("websockets", protocol.reader, "buffer")
    assert len(protocol.reader.buffer) == 0


def test_websockets_serializes_responses_and_frames() -> None:
    """Refused handshakes and broadcasts are written by them."""
    check_members("websockets", Response, "serialize")
    check_members("websockets", Frame, "serialize")
    assert Frame(Opcode.TEXT, b"a").serialize(mask=False) == b"\x81\x01a"
