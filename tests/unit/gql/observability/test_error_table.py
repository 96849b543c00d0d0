"""Error table: from class to code, log level and masking."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from graphql import GraphQLError
from strawberry.schema.exceptions import CannotGetOperationTypeError

from revstream.gql.observability.error_table import TABLE, Incidents, finish_errors, rule_of
from revstream.resolvers.errors import BadUserInput, DocumentMisfit
from revstream.streams.core.errors import (
    DatabaseError,
    GatewayError,
    HistoryLost,
    LeaseLost,
    TimeLimit,
)


def subclasses(kind: type[Exception]) -> Iterator[type[Exception]]:
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


def wrapped(cause: Exception) -> GraphQLError:
    return GraphQLError(str(cause), path=["products", 0], original_error=cause)


def test_every_error_class_has_the_code_of_the_table() -> None:
    """A class that is missing in the table is masked, or it would show a code of its own."""
    for each in subclasses(GatewayError):
        assert issubclass(each, GatewayError)
        rule = next(TABLE[kind] for kind in each.__mro__ if kind in TABLE)
        assert rule.code == each.code, each
        assert each in TABLE or rule.masked, each


def test_an_expected_error_reaches_the_client_unchanged() -> None:
    """It has its message, its code and its facts."""
    error = wrapped(BadUserInput("first: -1, minimum is 0", argument="first"))
    finish_errors([error], str.lower)
    assert error.formatted == {
        "message": "first: -1, minimum is 0",
        "path": ["products", 0],
        "extensions": {"code": "BAD_USER_INPUT", "argument": "first"},
    }


@pytest.mark.parametrize(
    "cause",
    [
        RuntimeError("mongodb://user:secret@host"),
        DatabaseError("a query plan", number=2, plan="COLLSCAN"),
        LeaseLost("a newer token"),
    ],
)
def test_an_unexpected_error_is_masked(cause: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """The client gets an incident id, and the log that id with the traceback."""
    error = wrapped(cause)
    with caplog.at_level(logging.INFO):
        finish_errors([error], str.lower)
    (record,) = caplog.records
    incident = error.formatted["extensions"]["incident"]
    assert error.formatted["extensions"] == {"code": "INTERNAL", "incident": incident}
    assert str(cause) not in str(error.formatted)
    assert record.incident == incident  # type: ignore[attr-defined]
    assert record.exc_info is not None
    assert record.exc_info[1] is cause
    assert record.levelno == logging.ERROR


def test_one_exception_at_many_fields_is_one_incident(caplog: pytest.LogCaptureFixture) -> None:
    """Fields that are read together fail together, and the log has one line."""
    cause = RuntimeError("broken")
    errors = [wrapped(cause) for _ in range(3)]
    with caplog.at_level(logging.INFO):
        finish_errors(errors, str.lower)
    assert len({error.formatted["extensions"]["incident"] for error in errors}) == 1
    assert len(caplog.records) == 1


def test_expected_errors_are_logged_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """The level is the table's; the line has code and path as facts."""
    with caplog.at_level(logging.DEBUG):
        finish_errors([wrapped(TimeLimit("a read took longer than 30 s"))], str.lower)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.exc_info is None
    assert record.code == "TIMEOUT"  # type: ignore[attr-defined]
    assert record.path == ["products", 0]  # type: ignore[attr-defined]


def test_resume_tokens_among_the_facts_have_the_deployments_tag() -> None:
    """A client can use them."""
    error = wrapped(HistoryLost("too old", oldestResumeToken="66AB", since="AB"))
    finish_errors([error], lambda token: f"{token}.tests")
    assert error.extensions == {
        "code": "HISTORY_LOST",
        "oldestResumeToken": "66AB.tests",
        "since": "AB",
    }


def test_graphql_errors_keep_their_message(caplog: pytest.LogCaptureFixture) -> None:
    """Syntax and validation errors are for the client, and are not logged."""
    plain = GraphQLError("Cannot query field 'nope' on type 'Product'.")
    again = GraphQLError("Variable '$x' has invalid value", original_error=plain)
    unnamed = wrapped(CannotGetOperationTypeError("nope"))
    before = [plain.message, again.message, unnamed.message]
    with caplog.at_level(logging.DEBUG):
        finish_errors([plain, again, unnamed], str.lower)
    assert [plain.message, again.message, unnamed.message] == before
    assert plain.extensions == again.extensions == unnamed.extensions == {"code": "BAD_USER_INPUT"}
    assert not caplog.records


def test_the_nearest_class_decides() -> None:
    """A subclass without a rule has that of its base class."""

    class Special(BadUserInput):
        pass

    assert rule_of(Special("x")) is TABLE[BadUserInput]
    assert rule_of(ValueError("x")).masked
    assert not TABLE[DocumentMisfit].masked


def test_repeated_faults_of_one_line_of_code_are_one_incident_for_a_while(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The next line has the number of those in between."""
    now = 0.0
    incidents = Incidents(lambda: now)

    def failed(kind: type[Exception], text: str) -> str:
        try:
            raise kind(text)
        except Exception as exc:
            error = wrapped(exc)
        finish_errors([error], str, incidents=incidents)
        number = (error.extensions or {})["incident"]
        assert isinstance(number, str)
        return number

    with caplog.at_level(logging.INFO):
        numbers = {failed(RuntimeError, f"cursor {n}") for n in range(50)}
        assert len(numbers) == len(caplog.records) == 1
        assert failed(KeyError, "another") not in numbers
        assert len(caplog.records) == 2
        now = 10.0
        assert failed(RuntimeError, "again") not in numbers
    *_, last = caplog.records
    assert vars(last)["more"] == 49


def test_a_masked_error_has_the_id_of_its_request() -> None:
    """A user reports it, and an operator finds the lines of the request in the log."""
    errors = [GraphQLError("secret", original_error=RuntimeError("secret"))]
    finish_errors(errors, str, request_id="r1")
    [error] = errors
    assert (error.extensions or {})["requestId"] == "r1"
