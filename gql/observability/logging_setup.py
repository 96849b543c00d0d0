"""Log lines: a fixed event name and its facts, as text for people or JSON for machines. One per
state change, none per event."""

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

from revstream.streams.core.errors import Unavailable
from revstream.streams.core.lru_cache import LruCache

__all__ = ["LibraryThrottle", "configure_logging", "expect_refusals"]

# Characters of a fact, of a message, and of an exception with its traceback.
_MOST_FACT = 1000
_MOST_MESSAGE = 2000
_MOST_EXCEPTION = 20_000
# Loggers of libraries, whose lines come with what anybody sends, as often as it is sent.
_LIBRARIES = frozenset({"asyncio", "httptools", "starlette", "strawberry", "uvicorn", "websockets"})
# Between two of their lines that are the same but for what they name.
_LIBRARY_LINE_S = 10.0
_MOST_KINDS = 200
# What ends a line or moves what stands in it, on any terminal; halves of surrogate pairs.
_UNSAFE = re.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, *, json: bool) -> None:
    """Send every logger's lines to standard error, once."""
    handler = _Stderr()
    handler.setFormatter(_Json() if json else _Text())
    handler.addFilter(LibraryThrottle())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # They tell each connection and each request.
    for chatty in ("uvicorn.access", "pymongo", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.setLevel(logging.WARNING)
    uvicorn.addFilter(_no_fault)
    logging.getLogger("strawberry.ws.task").addFilter(_not_gone)
    # A line for each page of another origin, which gql.endpoint.http tells now and then.
    logging.getLogger("strawberry.ws").setLevel(logging.ERROR)


class _Stderr(logging.StreamHandler[Any]):
    """To what standard error is at the time: while a bar is shown, what keeps lines above it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _no_fault(record: logging.LogRecord) -> bool:
    """False for requests that were given up at the end, each of which uvicorn tells as an error;
    how many there were stays, as a warning. False for what is the client's fault, too."""
    if str(record.msg).startswith("Cancel %s running task"):
        record.levelno, record.levelname = logging.WARNING, "WARNING"
    kind = record.exc_info[0] if record.exc_info else None
    # The latter is raised by text that is not UTF-8, which closes a WebSocket with 1007.
    return kind is None or not issubclass(kind, asyncio.CancelledError | UnicodeDecodeError)


def _not_gone(record: logging.LogRecord) -> bool:
    """False where a client is gone that something was being sent to."""
    kind = record.exc_info[0] if record.exc_info else None
    return kind is None or not issubclass(kind, WebSocketDisconnected)


def expect_refusals() -> None:
    """From now on clients are told to come again because the process ends: no fault, and not worth
    a line for each of thousands."""
    logging.getLogger("revstream.gql.observability.error_table").addFilter(_no_farewell)


def _no_farewell(record: logging.LogRecord) -> bool:
    return getattr(record, "code", None) != Unavailable.code


class LibraryThrottle(logging.Filter):
    """Passes a line of a library now and then; the next of its kind tells how many were left out.

    Args:
        clock: seconds, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        # By kind: when the last one passed, and how many did not since.
        self._told = LruCache[Hashable, tuple[float, int]](most=_MOST_KINDS)

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in _LIBRARIES:
            return True
        failure = record.exc_info[0] if record.exc_info else None
        kind = record.name, str(record.msg)[:_MOST_FACT], failure
        told_at, more = self._told.get(kind) or (-math.inf, 0)
        now = self._clock()
        if now - told_at < _LIBRARY_LINE_S:
            self._told.put(kind, (told_at, more + 1))
            return False
        self._told.put(kind, (now, 0))
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
        # Indented: what an exception says may look like a line of the log.
        told = _cut(self.formatException(record.exc_info), _MOST_EXCEPTION).split("\n")
        return "\n    ".join([line, *(_line(each, _MOST_EXCEPTION) for each in told)])


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
            told = self.formatException(record.exc_info)
            line["exception"] = _unicode(_cut(told, _MOST_EXCEPTION))
        return orjson.dumps(line).decode()


def _cut(text: str, most: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}… {len(text) - 2 * half} characters …{text[-half:]}"


def _line(text: str, most: int) -> str:
    """A text that stays in its line, and is no longer than so many characters."""
    return _UNSAFE.sub(_escaped, _cut(text, most))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _fact(value: object) -> str:
    """Return a fact as text, quoted where it could be taken for another one."""
    text = _cut(str(value), _MOST_FACT)
    if '"' in text and not {"'", "\\"} & set(text):
        # As it is, for readers who copy a command from the line.
        text = f"'{text}'"
    elif "=" in text or '"' in text:
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return _UNSAFE.sub(_escaped, text)


def _value(value: object) -> object:
    """A fact as JSON has it; as text, where it has not, or at too great length."""
    if isinstance(value, str):
        return _unicode(_cut(value, _MOST_FACT))
    try:
        if len(orjson.dumps(value)) <= _MOST_FACT:
            return value
    except TypeError:
        pass
    return _unicode(_cut(str(value), _MOST_FACT))


def _unicode(text: str) -> str:
    """A text without halves of surrogate pairs, which no JSON can hold."""
    return text.encode(errors="backslashreplace").decode()
