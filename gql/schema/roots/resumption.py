"""Resume token of a running subscription, and the error that sends it to the client."""

from __future__ import annotations

from revstream.gql.engine.request.context import RequestContext
from revstream.gql.subscriptions.broadcast_message import BroadcastTarget
from revstream.gql.subscriptions.interruption import TEMPORARY_ERRORS, is_temporary
from revstream.resolvers.errors import Unauthenticated
from revstream.streams.core.errors import GatewayError

__all__ = ["RESUMABLE_ERRORS", "Resumption"]

RESUMABLE_ERRORS: tuple[type[GatewayError], ...] = (Unauthenticated, *TEMPORARY_ERRORS)
"""Errors that end a subscription and carry a resume token."""


class Resumption:
    """Progress of one subscription.

    Attributes:
        token: the resume token of the last event; None if the client cannot resume.

    Args:
        context: the context of the subscription.
        target: the broadcast target, to which a broadcast group may have sent later events.
    """

    def __init__(self, context: RequestContext, target: BroadcastTarget | None) -> None:
        self._context = context
        self._target = target
        self.token: str | None = None

    def begin(self, token: str) -> None:
        """Record the token at which the subscription starts."""
        self.token = token

    def reach(self, token: str | None) -> None:
        """Record the token of the next event, before it is sent.

        Args:
            token: None for an event after which a client cannot resume.
        """
        if token is not None:
            self.token = token
        if self._context.position is not None:
            shown = None if self.token is None else self._context.token_out(self.token)
            self._context.position.token = shown

    def end(self, error: GatewayError) -> GatewayError:
        """Return a copy of the error with the resume token and the flag `resubscribe`.

        If both are set, the caller sends a checkpoint event before the error.
        """
        # A copy: other subscriptions may end with the same error object.
        end = error.copy()
        # A client that stored no token itself resumes after this one.
        last = max(self.token or "", "" if self._target is None else self._target.token)
        end.resubscribe = is_temporary(error, begun=bool(last))
        if last:
            self.token = end.facts["resumeToken"] = last
            if end.resubscribe:
                self.reach(last)
        return end
