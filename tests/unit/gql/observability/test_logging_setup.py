"""Logging: format of lines, and lines that are suppressed."""

from __future__ import annotations

import logging

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strawberry.http.exceptions import WebSocketDisconnected

from revstream.gql.observability import logging_setup
from revstream.gql.observability.logging_setup import configure_logging
from revstream.streams.core.traceparent import TRACEPARENT


@pytest.mark.parametrize(("failure", "count"), [(WebSocketDisconnected(), 0), (ValueError("x"), 1)])
def test_a_send_to_a_disconnected_client_is_not_logged(
    failure: Exception, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Strawberry logs the end of such an operation on a socket."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        configure_logging("info", json=False)
        logging.getLogger("strawberry.ws.task").exception("failed", exc_info=failure)
    finally:
        root.handlers[:], root.level = handlers, level
    assert capsys.readouterr().err.count("failed") == count


@pytest.mark.parametrize("as_json", [False, True])
def test_a_line_has_the_trace_of_the_work_that_logs_it(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """A line outside any trace has no ids."""
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    token = TRACEPARENT.set(f"00-{trace}-{span}-01")
    try:
        configure_logging("info", json=as_json)
        logging.getLogger("revstream.test").warning("inside")
        TRACEPARENT.set(None)
        logging.getLogger("revstream.test").warning("outside")
    finally:
        TRACEPARENT.reset(token)
        root.handlers[:], root.level = handlers, level
    inside, outside = capsys.readouterr().err.splitlines()
    assert "trace_id" not in outside
    if as_json:
        assert {"trace_id": trace, "span_id": span}.items() <= orjson.loads(inside).items()
    else:
        assert inside.endswith(f"inside trace_id={trace} span_id={span}")


def record(event: str, failure: BaseException | None = None, **facts: object) -> logging.LogRecord:
    log_record = logging.makeLogRecord({"name": "gql.test", "levelno": logging.INFO, "msg": event})
    vars(log_record).update(levelname="INFO", **facts)
    if failure is not None:
        log_record.exc_info = type(failure), failure, None
    return log_record


# Line ends of every kind, escape sequences, direction marks, half of a surrogate pair.
NASTY = "\n\r\x0b\x0c\x1b\x85\u2028\u2029\u202e\u2066\x00\x7f\ud800"
HOSTILE = st.text(alphabet=st.sampled_from([*NASTY, *'a ="\\'])) | st.text()


@given(st.lists(HOSTILE, min_size=3, max_size=3), st.booleans())
def test_input_of_a_client_stays_in_its_line_and_in_its_fact(
    texts: list[str], as_json: bool
) -> None:
    """This holds for text and JSON.

    A line of an exception never looks like the start of a log line.
    """
    event, fact, words = texts
    formatter = logging_setup._Json() if as_json else logging_setup._Text()
    line = formatter.format(record(event, ValueError(words), name_=fact, paths=[fact, 1]))
    line.encode()
    if as_json:
        parsed = orjson.loads(line)
        assert parsed.keys() == {"time", "level", "logger", "event", "name_", "paths", "exception"}
        assert "\n" not in line
        return
    _, *others = line.split("\n")
    assert all(each.startswith("    ") for each in others)
    assert not any(each in line for each in NASTY if each != "\n")


def test_a_fact_cannot_forge_another_fact() -> None:
    """It cannot forge the next line either."""
    fake = "x principal=admin\n2026-11-27T00:00:00.000+00:00 error   gone"
    line = logging_setup._Text().format(record("refused", by=fake, count=1))
    assert line.endswith(
        r'refused by="x principal=admin\n2026-11-27T00:00:00.000+00:00 error   gone" count=1'
    )


@pytest.mark.parametrize(
    "formatter", [logging_setup._Text(), logging_setup._Json()], ids=["text", "json"]
)
def test_a_line_has_a_maximum_length(formatter: logging.Formatter) -> None:
    """Start and end of a long text are kept."""
    long = "first" + "y" * 200_000 + "last"
    line = formatter.format(record(long, ValueError(long), fact=long, facts=[long]))
    assert len(line) < 30_000
    assert line.count("first") == line.count("last") == 4


def test_lines_of_libraries_are_throttled() -> None:
    """One kind of line counts whatever its arguments.

    The next one has the number of those left out.
    """
    now = 0.0
    throttle = logging_setup.LibraryThrottle(lambda: now)

    def passed(name: str, event: str, *given: object) -> logging.LogRecord | None:
        log_record = logging.makeLogRecord({"name": name, "msg": event, "args": given})
        return log_record if throttle.filter(log_record) else None

    assert passed("uvicorn.error", "Invalid HTTP request received.")
    assert passed("uvicorn.error", "other %s", "a")
    for _ in range(5):
        assert not passed("uvicorn.error", "Invalid HTTP request received.")
        assert not passed("uvicorn.error", "other %s", "b")
        assert passed("revstream.gql.runtime.gateway", "ours")
    now = 10.0
    again = passed("uvicorn.error", "Invalid HTTP request received.")
    assert again is not None
    assert vars(again)["more"] == 5
    now = 20.0
    last = passed("uvicorn.error", "Invalid HTTP request received.")
    assert last is not None
    assert "more" not in vars(last)
    for number in range(1000):
        passed("uvicorn.error", f"kind {number}")
    assert len(throttle._passed) <= 200
