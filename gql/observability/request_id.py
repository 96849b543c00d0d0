"""Id of the running request: from its client or made here, in log lines, the response and errors.

A WebSocket is one request, with the id of its handshake; its operations have the ids that the
client gives them beside it.
"""

from __future__ import annotations

import itertools
import logging
import re
import secrets
from contextvars import ContextVar

from starlette.types import Message, Scope, Send

__all__ = ["REQUEST_ID", "add_request_id", "enter_operation_id", "identified"]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Id of the running request; None outside of requests."""

_OPERATION_ID: ContextVar[str | None] = ContextVar("operation_id", default=None)
_HEADER = b"x-request-id"
# No text that a log or a header would have to escape.
_FORM = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
# A random number for each request would cost a system call.
_PROCESS = secrets.token_hex(12)
_NUMBERS = itertools.count()
_STARTS = ("http.response.start", "websocket.accept")
# Maximum characters of an operation's id.
_MOST_OPERATION = 64


def identified(scope: Scope, send: Send) -> Send:
    """Set the id of a request, in its own task; return a `send` that adds it to the response.

    An id of the client is kept if it is at most 128 letters, digits and some signs.
    """
    for name, value in scope["headers"]:
        if name == _HEADER and _FORM.fullmatch(value):
            own = value.decode()
            break
    else:
        own = f"{_PROCESS}{next(_NUMBERS):08x}"
    REQUEST_ID.set(own)
    _OPERATION_ID.set(None)

    async def send_identified(message: Message) -> None:
        if message["type"] in _STARTS:
            message["headers"] = [*message.get("headers", ()), (_HEADER, own.encode())]
        await send(message)

    return send_identified


def enter_operation_id(operation_id: str) -> None:
    """Set the client's id of an operation on a WebSocket, in the operation's task."""
    _OPERATION_ID.set(operation_id[:_MOST_OPERATION])


def add_request_id(record: logging.LogRecord) -> bool:
    """Add the ids of the running request to a log line; a filter that passes all lines."""
    request_id, operation_id = REQUEST_ID.get(), _OPERATION_ID.get()
    if request_id is not None:
        record.request_id = request_id
    if operation_id is not None:
        record.operation_id = operation_id
    return True
