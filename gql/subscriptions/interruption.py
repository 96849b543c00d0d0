"""The ends of subscriptions that their clients answer by subscribing again.

Guarantees: such an end is no error to a client. It is a closed socket or a stream without its end,
which is what clients of other makers connect again after; before it comes a checkpoint with the
token to go on after, and nothing else.

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

__all__ = ["PASSING", "Interruption", "interruption_of", "passes"]

# IANA's "Service Restart" and "Try Again Later".
_RESTART, _LATER = 1012, 1013

_CODES: dict[type[GatewayError], int] = {
    ArchiveBehind: _LATER,
    SignInEnded: _RESTART,
    SlowConsumer: _LATER,
    TimeLimit: _LATER,
    Unavailable: _RESTART,
}

PASSING: tuple[type[GatewayError], ...] = tuple(_CODES)
"""Errors whose cause may have passed once the client is back."""


def passes(error: GatewayError, *, begun: bool) -> bool:
    """Return whether a subscription goes on once its client subscribes again.

    Args:
        begun: it has sent its client a token. What takes too long to begin with, as a snapshot may,
            would take as long each time.
    """
    return isinstance(error, PASSING) and (begun or not isinstance(error, TimeLimit))


@dataclass(frozen=True, slots=True)
class Interruption:
    """The end of a subscription that goes on once its client subscribes again.

    Args:
        code: of the frame that closes a WebSocket.
    """

    message: str
    code: int = _RESTART


def interruption_of(result: ExecutionResult) -> Interruption | None:
    """Return how a subscription is interrupted by its last result; None where it is not."""
    if result.data is not None or not result.errors:
        return None
    cause = result.errors[0].original_error
    while isinstance(cause, GraphQLError):
        cause = cause.original_error
    if not isinstance(cause, GatewayError) or not cause.resubscribe:
        return None
    code = next((_CODES[each] for each in type(cause).__mro__ if each in _CODES), _RESTART)
    return Interruption(cause.message, code)
