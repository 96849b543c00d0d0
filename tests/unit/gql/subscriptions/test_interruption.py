"""Interruptions: ends after which a client should subscribe again, and their codes."""

from __future__ import annotations

import pytest
from graphql import GraphQLError
from strawberry.types import ExecutionResult

from revstream.gql.subscriptions.interruption import Interruption, interruption_of, is_temporary
from revstream.resolvers.errors import Forbidden, SignInEnded, Unauthenticated
from revstream.streams.core.errors import (
    ArchiveBehind,
    ConnectionLost,
    GatewayError,
    HistoryLost,
    SlowConsumer,
    TimeLimit,
    Unavailable,
    Unsuitable,
)


@pytest.mark.parametrize(
    ("kind", "begun", "at_first"),
    [
        (ArchiveBehind, True, True),
        (ConnectionLost, True, True),
        (SignInEnded, True, True),
        (SlowConsumer, True, True),
        (Unavailable, True, True),
        # A snapshot that is too slow is as slow each time.
        (TimeLimit, True, False),
        (Forbidden, False, False),
        (HistoryLost, False, False),
        (Unauthenticated, False, False),
        (Unsuitable, False, False),
    ],
)
def test_temporary_errors_are_those_that_a_retry_fixes(
    kind: type[GatewayError], begun: bool, at_first: bool
) -> None:
    """They happen after the start, or at the start."""
    assert is_temporary(kind("away"), begun=True) == begun
    assert is_temporary(kind("away"), begun=False) == at_first


@pytest.mark.parametrize(
    ("kind", "code"),
    [(Unavailable, 1012), (ConnectionLost, 1012), (SignInEnded, 1012), (SlowConsumer, 1013)],
)
def test_the_code_decides_whether_to_wait(kind: type[GatewayError], code: int) -> None:
    """1012: the service restarts; 1013: try again later. Queries have none."""
    error = kind("away")
    result = ExecutionResult(data=None, errors=[GraphQLError("away", original_error=error)])
    assert interruption_of(result) is None
    error.resubscribe = True
    assert interruption_of(result) == Interruption("away", code)
