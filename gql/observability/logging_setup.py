"""Log format: an event name and its facts, as text or as JSON.

One line per change of state, none per change event.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import sys
import time
from collections.abc import Callable, Hashable
from datetime import UTC, datetime
from typing import Any

import orjson
from strawberry.http.exceptions import WebSocketDisconnected

from revstream.gql.observability.request_id import add_request_id
from revstream.gql.observability.tracing import add_trace_ids
from revstream.streams.core.errors import Unavailable
from revstream.streams.core.lru_cache import LruCache

__all__ = ["LibraryThrottle", "configure_logging", "expect_refusals"]

# Maximum characters of a fact, a message, and an exception with its traceback.
_MOST_FACT = 1000
_MOST_MESSAGE = 2000
_MOST_EXCEPTION = 20_000
# Loggers of libraries: any client can provoke their lines, as often as it likes.
_LIBRARIES = frozenset(
    {"asyncio", "httptools", "opentelemetry", "starlette", "strawberry", "uvicorn", "websockets"}
)
# Seconds between two of their lines that differ only in their arguments.
_LIBRARY_LINE_S = 10.0
_MOST_KINDS = 200
# Characters that break a line or move the cursor on a terminal; halves of surrogate pairs.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, *, json: bool) -> None:
    """Send the lines of every logger to standard error, once."""
    handler = _Stderr()
    handler.setFormatter(_Json() if json else _Text())
    handler.addFilter(LibraryThrottle())
    handler.addFilter(add_request_id)
    handler.addFilter(add_trace_ids)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # These log each connection and each request.
    for chatty in ("uvicorn.access", "pymongo", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.setLevel(logging.WARNING)
    uvicorn.addFilter(_no_fault)
    logging.getLogger("strawberry.ws.task").addFilter(_not_gone)
    # One line for each page of another origin, which gql.endpoint.http logs with a throttle.
    logging.getLogger("strawberry.ws").setLevel(logging.ERROR)


class _Stderr(logging.StreamHandler[Any]):
    """Handler that looks up `sys.stderr` for each line, since a progress bar replaces it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _no_fault(record: logging.LogRecord) -> bool:
    """Drop uvicorn's errors about cancelled requests and about text that is not UTF-8.

    uvicorn logs an error for each request that is cancelled at shutdown; their number stays, as a
    warning. Text that is not UTF-8 is the client's fault.
    """
    if str(record.msg).startswith("Cancel %s running task"):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    kind = record.exc_info[0] if record.exc_info else None
    # UnicodeDecodeError: text that is not UTF-8, which closes a WebSocket with 1007.
    return kind is None or not issubclass(kind, asyncio.CancelledError | UnicodeDecodeError)


def _not_gone(record: logging.LogRecord) -> bool:
    """Drop errors of sends to a client that has disconnected."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, WebSocketDisconnected)


def expect_refusals() -> None:
    """Stop logging refusals with UNAVAILABLE, because the process is shutting down.

    They are no faults, and thousands of clients may get one.
    """
    logging.getLogger("revstream.gql.observability.error_table").addFilter(_not_unavailable)


def _not_unavailable(record: logging.LogRecord) -> bool:
    return getattr(record, "code", None) != Unavailable.code


class LibraryThrottle(logging.Filter):
    """Filter that passes one line of each kind from a library per 10 s.

    The next line of that kind has the number of dropped lines, as `more`.

    Args:
        clock: seconds, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # By kind: time of the last passed line, and the number of dropped lines since.
        self._passed = LruCache[Hashable, tuple[float, int]](most=_MOST_KINDS)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in _LIBRARIES:
            return True
        failure = record.exc_info[0] if record.exc_info else None
        kind = record.name, str(record.msg)[:_MOST_FACT], failure
        passed_at, more = self._passed.get(kind) or (-math.inf, 0)
        now = self._clock()
        if now - passed_at < _LIBRARY_LINE_S:
            self._passed.put(kind, (passed_at, more + 1))
            return False
        self._passed.put(kind, (now, 0))
        if more:
            record.more = more
        return True


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={_fact(value)}" for name, value in _facts(record).items())
        message = _line(record.getMessage(), _MOST_MESSAGE)
        line = f"{_time(record)} {record.levelname.lower():7} {message}{facts}"
        if not record.exc_info:
            return line
        # Indented, since the text of an exception may look like a log line.
        lines = _cut(self.formatException(record.exc_info), _MOST_EXCEPTION).split("\n")
        return "\n    ".join([line, *(_line(each, _MOST_EXCEPTION) for each in lines)])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _unicode(_cut(record.getMessage(), _MOST_MESSAGE)),
            **{name: _value(value) for name, value in _facts(record).items()},
        }
        if record.exc_info:
            text = self.formatException(record.exc_info)
            line["exception"] = _unicode(_cut(text, _MOST_EXCEPTION))
        return orjson.dumps(line).decode()


def _cut(text: str, most: int) -> str:
    """Return the beginning and the end of a text that is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}… {len(text) - 2 * half} characters …{text[-half:]}"


def _line(text: str, most: int) -> str:
    """Return a text without line breaks and control characters, of at most so many characters."""
    return _UNSAFE.sub(_escaped, _cut(text, most))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _fact(value: object) -> str:
    """Return a fact as text, quoted if it contains a quote or an equals sign."""
    text = _cut(str(value), _MOST_FACT)
    if '"' in text and not {"'", "\\"} & set(text):
        # Unescaped, so that a command can be copied from the line.
        text = f"'{text}'"
    elif "=" in text or '"' in text:
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return _UNSAFE.sub(_escaped, text)


def _value(value: object) -> object:
    """Return a fact as a JSON value, or as text if it has none or is too long."""
    if isinstance(value, str):
        return _unicode(_cut(value, _MOST_FACT))
    try:
        if len(orjson.dumps(value)) <= _MOST_FACT:
            return value
    except TypeError:
        pass
    return _unicode(_cut(str(value), _MOST_FACT))


def _unicode(text: str) -> str:
    """Escape halves of surrogate pairs, which JSON cannot contain."""
    return text.encode(errors="backslashreplace").decode()
