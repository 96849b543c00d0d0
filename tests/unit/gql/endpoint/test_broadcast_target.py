"""Broadcast targets: a client reads the messages that are written to a target."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.protocol import State
from websockets.uri import parse_uri

from revstream.gql.endpoint.broadcast_target import WebSocketTarget
from revstream.gql.subscriptions.broadcast_message import BroadcastMessage, send_events


class Connection:
    """A writer that keeps its texts."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> bool:
        self.written += data
        return True


def frames_read(data: bytes) -> list[Frame]:
    """Read frames as a client does."""
    client = ClientProtocol(parse_uri("ws://localhost/"), state=State.OPEN, max_size=None)
    client.receive_data(data)
    return [each for each in client.events_received() if isinstance(each, Frame)]


@given(st.lists(st.text(max_size=300), min_size=1, max_size=3), st.text(min_size=1, max_size=5))
@example(["a" * 81, "a" * 82, "a" * 83], "1")
@example(["a" * 65_500, "a" * 65_536], "1")
def test_each_event_is_one_text_message(texts: list[str], id_: str) -> None:
    """Lengths have 7, 16 and 64 bits; several targets share the bytes around their ids."""
    events = [
        BroadcastMessage(
            str(number), json.dumps({"data": text}).encode(), shown=str(number), counts=True
        )
        for number, text in enumerate(texts, 1)
    ]
    for own in (id_, "é", id_):
        connection = Connection()
        target = WebSocketTarget(own, b"next", connection)
        assert send_events(events, target) == (len(events), True)
        frames = frames_read(connection.written)
        assert all(each.opcode is Opcode.TEXT and each.fin for each in frames)
        assert [json.loads(bytes(each.data)) for each in frames] == [
            {"id": own, "type": "next", "payload": {"data": text}} for text in texts
        ]
        target.close()
        assert send_events(events, target) == (len(events), True)
        assert len(frames_read(connection.written)) == len(events)
