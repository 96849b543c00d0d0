"""Error responses: one form for all refusals, counted, with throttled log lines."""

from __future__ import annotations

import logging

import orjson
import pytest

from revstream.gql.http.request import Refused
from revstream.gql.observability.error_response import ErrorReporter
from revstream.gql.observability.operation_metrics import Operations
from revstream.resolvers.errors import Forbidden, Unauthenticated
from revstream.streams.core.errors import TimeLimit, Unavailable


@pytest.mark.parametrize(
    ("failure", "status", "code", "header"),
    [
        (Unavailable("later"), 503, "UNAVAILABLE", ("retry-after", "1")),
        (Unavailable("later", retryAfterSeconds=7), 503, "UNAVAILABLE", ("retry-after", "7")),
        (Forbidden("no"), 403, "FORBIDDEN", None),
        (Refused(413, "too long"), 413, "BAD_USER_INPUT", None),
        (Refused(405, "no", headers={"allow": "GET"}), 405, "BAD_USER_INPUT", ("allow", "GET")),
        (RuntimeError("secret"), 500, "INTERNAL", None),
        (
            Unauthenticated('say "who"'),
            401,
            "UNAUTHENTICATED",
            (
                "www-authenticate",
                'Bearer realm="revstream", error="invalid_token", error_description="say \'who\'"',
            ),
        ),
    ],
)
async def test_the_code_of_an_error_decides_status_and_headers(
    failure: Exception, status: int, code: str, header: tuple[str, str] | None
) -> None:
    """The body is JSON that is not cached, without masked details; the error is counted."""
    operations = Operations()
    response = ErrorReporter(operations).response(failure)
    assert response.status_code == status
    (error,) = orjson.loads(response.body)["errors"]
    assert error["extensions"]["code"] == code
    assert "secret" not in str(error)
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    if header is not None:
        assert response.headers[header[0]] == header[1]
    assert operations.failed == {("unknown", code): 1}


async def test_many_refusals_are_one_log_line_and_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """There is one line per code for all kinds of operations; the metrics have the exact number."""
    operations = Operations()
    failures = ErrorReporter(operations)
    with caplog.at_level(logging.INFO):
        for _ in range(100):
            failures.error(Unavailable("too many"), "query")
            failures.error(TimeLimit("too long"), "mutation")
            failures.error(Unauthenticated("who?"))
    assert [(each.code, each.levelno) for each in caplog.records] == [  # type: ignore[attr-defined]
        ("UNAVAILABLE", logging.ERROR),
        ("TIMEOUT", logging.WARNING),
        ("UNAUTHENTICATED", logging.INFO),
    ]
    assert operations.failed["query", "UNAVAILABLE"] == 100
