"""Log lines: a fixed event name and its facts, as text for people or JSON for machines. One per
state change, none per event."""

from __future__ import annotations

import asyncio
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson
from strawberry.http.exceptions import WebSocketDisconnected

from streams.errors import Unavailable

__all__ = ["configure_logging", "expect_refusals"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, *, json: bool) -> None:
    """Send every logger's lines to standard error, once."""
    handler = _Stderr()
    handler.setFormatter(_Json() if json else _Text())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # They tell each connection and each request.
    for chatty in ("uvicorn.access", "pymongo", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    uvicorn = logging.getLogger("uvicorn.error")
    uvicorn.setLevel(logging.WARNING)
    uvicorn.addFilter(_no_fault)
    logging.getLogger("strawberry.ws.task").addFilter(_not_gone)
    # A line for each page of another origin, which gql.http tells now and then.
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
    logging.getLogger("gql.errors").addFilter(_no_farewell)


def _no_farewell(record: logging.LogRecord) -> bool:
    return getattr(record, "code", None) != Unavailable.code


def _facts(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = "".join(f" {name}={value}" for name, value in _facts(record).items())
        line = f"{_time(record)} {record.levelname.lower():7} {record.getMessage()}{facts}"
        return line + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()
