"""gql.observability.error_response: whoever refuses a request, it is told in one way, counted, and
logged now and then."""

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
async def test_the_code_of_a_failure_says_status_and_headers(
    failure: Exception, status: int, code: str, header: tuple[str, str] | None
) -> None:
    """As JSON that nobody keeps, with nothing of what is masked; and it is counted."""
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


async def test_a_storm_of_refusals_is_a_line_and_a_number(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of each code, whatever kind of operation it was; the metrics have how many there were."""
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
