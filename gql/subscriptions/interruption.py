"""Ends of subscriptions after which a client subscribes again by itself.

Guarantees: such an end is not an error message. It is a closed WebSocket, or a stream without its
final part, after which clients of other libraries reconnect. A checkpoint with the token to resume
from is sent before it, and nothing else.

Source: graphql-ws, `isFatalInternalCloseCode`; RFC 6455, 7.4; IANA's "WebSocket Close Code Number
Registry".
"""

from __future__ import annotations

from dataclasses import dataclass

from graphql import GraphQLError
from strawberry.types import ExecutionResult

from revstream.resolvers.errors import SignInEnded
from revstream.streams.core.errors import (
    ArchiveBehind,
    GatewayError,
    SlowConsumer,
    TimeLimit,
    Unavailable,
)

__all__ = ["TEMPORARY_ERRORS", "Interruption", "interruption_of", "is_temporary"]

# IANA's "Service Restart" and "Try Again Later".
_RESTART, _LATER = 1012, 1013

_CODES: dict[type[GatewayError], int] = {
    ArchiveBehind: _LATER,
    SignInEnded: _RESTART,
    SlowConsumer: _LATER,
    TimeLimit: _LATER,
    Unavailable: _RESTART,
}

TEMPORARY_ERRORS: tuple[type[GatewayError], ...] = tuple(_CODES)
"""Errors whose cause may be gone when the client subscribes again."""


def is_temporary(error: GatewayError, *, begun: bool) -> bool:
    """Return whether a subscription can continue when its client subscribes again.

    Args:
        begun: a token was sent to the client. A start that takes too long, as of a snapshot, would
            take too long each time.
    """
    return isinstance(error, TEMPORARY_ERRORS) and (begun or not isinstance(error, TimeLimit))


@dataclass(frozen=True, slots=True)
class Interruption:
    """The end of a subscription that continues when its client subscribes again.

    Args:
        code: the close code of the WebSocket.
    """

    message: str
    code: int = _RESTART


def interruption_of(result: ExecutionResult) -> Interruption | None:
    """Return the interruption that a last result stands for; None if the end is another one."""
    if result.data is not None or not result.errors:
        return None
    cause = result.errors[0].original_error
    while isinstance(cause, GraphQLError):
        cause = cause.original_error
    if not isinstance(cause, GatewayError) or not cause.resubscribe:
        return None
    code = next((_CODES[each] for each in type(cause).__mro__ if each in _CODES), _RESTART)
    return Interruption(cause.message, code)
