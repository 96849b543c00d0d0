"""The token after which the client of a subscription goes on, and the end that tells it."""

from __future__ import annotations

from revstream.gql.engine.request.context import RequestContext
from revstream.gql.subscriptions.broadcast_message import BroadcastTarget
from revstream.gql.subscriptions.interruption import PASSING, passes
from revstream.resolvers.errors import Unauthenticated
from revstream.streams.core.errors import GatewayError

__all__ = ["RESUMABLE_ERRORS", "Resumption"]

RESUMABLE_ERRORS: tuple[type[GatewayError], ...] = (Unauthenticated, *PASSING)
"""Errors that have the token to go on after."""


class Resumption:
    """Progress of one subscription.

    Attributes:
        token: after which its client goes on; None where it can not.

    Args:
        target: which others may have written to.
    """

    def __init__(self, context: RequestContext, target: BroadcastTarget | None) -> None:
        self._context = context
        self._target = target
        self.token: str | None = None

    def begin(self, token: str) -> None:
        """Take note of the beginning."""
        self.token = token

    def reach(self, token: str | None) -> None:
        """Take note of the next event, before it is sent; None where its token resumes nothing."""
        if token is not None:
            self.token = token
        if self._context.place is not None:
            shown = None if self.token is None else self._context.token_out(self.token)
            self._context.place.token = shown

    def end(self, error: GatewayError) -> GatewayError:
        """Return the error that ends this subscription.

        Where `resubscribe` is set and there is a token, a checkpoint comes before it.
        """
        # Others may be told the same one.
        end = error.again()
        # What a client that kept no token of its own resumes after.
        last = max(self.token or "", "" if self._target is None else self._target.token)
        end.resubscribe = passes(error, begun=bool(last))
        if last:
            self.token = end.facts["resumeToken"] = last
            if end.resubscribe:
                self.reach(last)
        return end
