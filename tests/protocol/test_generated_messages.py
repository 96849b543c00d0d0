"""Generated messages, valid and invalid, in any order, on both WebSocket protocols.

The connection continues as the protocol requires, or it is closed with one of the protocol's
codes. It is never closed without a code or with 1011. The gateway's fixture checks the log at the
end.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed

from tests.support.gateway import RunningGateway
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

CODES = {4400, 4401, 4409, 4429}
# RFC 6455's own code: it requires that text is UTF-8.
CODES_OF_FRAMES = {1007}
KINDS = {
    TRANSPORT: ["connection_init", "subscribe", "complete", "ping", "pong", "next", "nope"],
    LEGACY: ["connection_init", "start", "stop", "connection_terminate", "data", "nope"],
}
QUERIES = [
    "{ resumeToken }",
    "subscription { thingChanges { kind } }",
    'mutation { deleteThing(id: "nobody") { __typename } }',
    "{",
    "",
    "{ nope }",
    "query A { resumeToken } query B { resumeToken }",
    "query ($id: ID!) { thing(id: $id) { id } }",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def messages(draw: st.DrawFn, protocol: Protocol) -> str | bytes:
    """Draw messages that are mostly valid, so that later ones are executed, too."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.text(max_size=20) | st.binary(max_size=20))
    if draw(st.integers(0, 9)) == 0:
        return json.dumps(draw(json_values))
    message: dict[str, Any] = {"type": draw(st.sampled_from(KINDS[protocol]))}
    if message["type"] in ("subscribe", "start"):
        message["payload"] = {"query": draw(st.sampled_from(QUERIES))}
        if draw(st.booleans()):
            message["payload"]["variables"] = draw(
                st.none() | st.dictionaries(st.sampled_from(["id", "x"]), json_values, max_size=2)
            )
        if draw(st.booleans()):
            message["payload"]["operationName"] = draw(st.sampled_from(["A", "C", None, ""]))
    if draw(st.integers(0, 4)):
        message["id"] = draw(st.sampled_from(["1", "2", "3"]))
    for name in draw(st.lists(st.sampled_from(["id", "payload", "type", "x"]), max_size=1)):
        if draw(st.integers(0, 3)) == 0:
            message[name] = draw(json_values)
    return json.dumps(message)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Protocol, bool, list[str | bytes]]:
    protocol = draw(st.sampled_from([TRANSPORT, LEGACY]))
    introduced = draw(st.integers(0, 3)) > 0
    return protocol, introduced, draw(st.lists(messages(protocol), min_size=1, max_size=12))


@given(conversations())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
async def test_a_conversation_continues_or_ends_with_a_code_of_its_protocol(
    gateway: RunningGateway, conversation: tuple[Protocol, bool, list[str | bytes]]
) -> None:
    """A query is answered after each conversation that stays open."""
    protocol, introduced, sent = conversation
    async with open_socket(gateway.address, protocol, init=introduced) as socket:
        with suppress(ConnectionClosed):
            for each in sent:
                await socket.send(each)
            if not introduced:
                await socket.send({"type": "connection_init"})
            await socket.start("last", "{ resumeToken }")
            async with asyncio.timeout(30):
                while (message := await socket.receive()).get("id") != "last":
                    pass
            assert message["payload"]["data"]["resumeToken"]
            return
        close = await socket.closed()
    assert close is not None, "1006"
    left = any(isinstance(each, str) and "connection_terminate" in each for each in sent)
    assert close.code in CODES | CODES_OF_FRAMES | ({1000} if left else set())
