"""Error table: code, log level and masking of each error that leaves the process.

Guarantees: an exception that is not in the table is a fault of revstream: the client gets INTERNAL
and an incident id, the log gets the id with the traceback. Messages of graphql-core about a
document or its variables are passed on unchanged, as BAD_USER_INPUT.
"""

from __future__ import annotations

import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLError
from strawberry.exceptions import MissingQueryError
from strawberry.schema.exceptions import CannotGetOperationTypeError, InvalidOperationTypeError

from revstream.gql.http.request import Refused
from revstream.resolvers.errors import (
    BadUserInput,
    DocumentMisfit,
    Forbidden,
    LimitExceeded,
    NumberMisfit,
    PersistedQueryNotFound,
    SignInEnded,
    Unauthenticated,
)
from revstream.streams.core.errors import (
    ArchiveBehind,
    ConnectionLost,
    GatewayError,
    HistoryLost,
    InternalError,
    NotWritable,
    ParallelLists,
    ResumeTokenInvalid,
    SlowConsumer,
    TimeLimit,
    Unavailable,
    Unsuitable,
)
from revstream.streams.core.log_throttle import LogThrottle
from revstream.streams.core.lru_cache import LruCache

__all__ = ["TABLE", "Incidents", "Rule", "finish_errors", "rule_of", "storms"]

logger = logging.getLogger(__name__)

# Time in which faults at one line are the same incident, and the maximum number of known lines.
_SAME_INCIDENT_S = 10.0
_MOST_INCIDENTS = 200
_MOST_CAUSES = 10


@dataclass(frozen=True, slots=True)
class Rule:
    """Code, log level and masking of one class of errors.

    Attributes:
        masked: the client gets an incident id instead of the message.
    """

    code: str
    level: int
    masked: bool = False


TABLE: Mapping[type[Exception], Rule] = {
    BadUserInput: Rule("BAD_USER_INPUT", logging.INFO),
    Unauthenticated: Rule("UNAUTHENTICATED", logging.INFO),
    SignInEnded: Rule("UNAUTHENTICATED", logging.INFO),
    Forbidden: Rule("FORBIDDEN", logging.INFO),
    LimitExceeded: Rule("LIMIT_EXCEEDED", logging.INFO),
    Refused: Rule("BAD_USER_INPUT", logging.INFO),
    PersistedQueryNotFound: Rule("PERSISTED_QUERY_NOT_FOUND", logging.DEBUG),
    DocumentMisfit: Rule("DOCUMENT_MISFIT", logging.WARNING),
    NumberMisfit: Rule("DOCUMENT_MISFIT", logging.WARNING),
    ParallelLists: Rule("DOCUMENT_MISFIT", logging.WARNING),
    ResumeTokenInvalid: Rule("RESUME_TOKEN_INVALID", logging.INFO),
    HistoryLost: Rule("HISTORY_LOST", logging.WARNING),
    ArchiveBehind: Rule("ARCHIVE_BEHIND", logging.WARNING),
    SlowConsumer: Rule("SLOW_CONSUMER", logging.WARNING),
    TimeLimit: Rule("TIMEOUT", logging.WARNING),
    Unavailable: Rule("UNAVAILABLE", logging.ERROR),
    ConnectionLost: Rule("UNAVAILABLE", logging.ERROR),
    Unsuitable: Rule("UNAVAILABLE", logging.ERROR),
    NotWritable: Rule("UNAVAILABLE", logging.ERROR),
    InternalError: Rule("INTERNAL", logging.ERROR, masked=True),
    GatewayError: Rule("INTERNAL", logging.ERROR, masked=True),
    Exception: Rule("INTERNAL", logging.ERROR, masked=True),
}


_OF_THE_REQUEST = (
    GraphQLError,
    MissingQueryError,
    CannotGetOperationTypeError,
    InvalidOperationTypeError,
)


def storms() -> dict[str, LogThrottle]:
    """Create a log throttle for each code whose refusals are logged."""
    return {
        each.code: LogThrottle(logger, "request refused", level=each.level)
        for each in TABLE.values()
        if each.level >= logging.INFO and not each.masked
    }


def rule_of(error: BaseException) -> Rule:
    """Return the rule of the nearest base class that has one."""
    return next(TABLE[each] for each in type(error).__mro__ if each in TABLE)


class Incidents:
    """Incident ids of faults.

    A fault that repeats at the same line within 10 s keeps its id and is not logged again, so that
    a client that can provoke one does not fill the log.

    Args:
        clock: seconds, as `time.monotonic`.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By line: incident id, time of its log entry, and faults since.
        self._known = LruCache[Hashable, tuple[str, float, int]](most=_MOST_INCIDENTS)

    def number(self, cause: BaseException) -> tuple[str, int | None]:
        """Return the incident id of a fault, and how many earlier ones were not logged.

        The count is None if this fault is not to be logged either.
        """
        place = _place_of(cause)
        incident, since, more = self._known.get(place) or ("", -math.inf, 0)
        now = self._clock()
        if now - since < _SAME_INCIDENT_S:
            self._known.put(place, (incident, since, more + 1))
            return incident, None
        incident = secrets.token_hex(6)
        self._known.put(place, (incident, now, 0))
        return incident, more


def _place_of(cause: BaseException | None) -> Hashable:
    """Return the line that raised an exception, and the lines that raised its causes."""
    places: list[Hashable] = []
    while cause is not None and len(places) < _MOST_CAUSES:
        line: Hashable = None
        frame = cause.__traceback__
        while frame is not None:
            line, frame = (frame.tb_frame.f_code, frame.tb_lineno), frame.tb_next
        places.append((type(cause), line))
        cause = cause.__cause__
    return tuple(places)


def finish_errors(
    errors: list[GraphQLError],
    token_out: Callable[[str], str],
    *,
    storms: Mapping[str, LogThrottle] | None = None,
    incidents: Incidents | None = None,
    request_id: str | None = None,
) -> None:
    """Log each error by its rule and reduce it, in place, to what the client may read.

    One exception that many fields failed with, such as a shared read, is one incident and one line.
    Earlier states that violate the model in the same field, as after a change of its type, are one
    error, however many states there are.

    Args:
        token_out: formats a resume token as the API shows it, for tokens among the facts.
        storms: log throttles by code, since refusals may come with every event, or at every client
            at once; without them, each refusal is logged.
        incidents: ids of the process; without them, each fault gets an id of its own.
        request_id: shown with a masked error.
    """
    failed = list(errors)
    _join_past_misfits(errors)
    incidents = incidents or Incidents()
    numbers: dict[int, tuple[str, int | None]] = {}
    logged: set[int] = set()
    for error in errors:
        cause = error.original_error
        while isinstance(cause, GraphQLError) and cause.original_error is not None:
            cause = cause.original_error
        if cause is None or isinstance(cause, _OF_THE_REQUEST) or _of_a_literal(error, cause):
            # An error about the request, raised by graphql-core, Strawberry or one of our scalars.
            error.extensions = {"code": BadUserInput.code, **(error.extensions or {})}
            continue
        rule = rule_of(cause)
        facts: dict[str, Any] = {
            "code": rule.code,
            "path": error.path,
            "detail": error.message,
        }
        if rule.masked:
            if id(cause) not in numbers:
                numbers[id(cause)] = incidents.number(cause)
            incident, more = numbers[id(cause)]
            facts["incident"] = incident
            if more:
                facts["more"] = more
            error.message = f"internal error; see incident {incident} in the log"
            request = {} if request_id is None else {"requestId": request_id}
            error.extensions = {"code": rule.code, "incident": incident, **request}
        else:
            error.extensions = {"code": rule.code, **_shown(error.extensions or {}, token_out)}
        if id(cause) not in logged:
            logged.add(id(cause))
            if rule.masked and numbers[id(cause)][1] is None:
                continue
            if storms is not None and not rule.masked and rule.code in storms:
                storms[rule.code].note(**facts)
                continue
            logger.log(
                rule.level,
                "request failed" if rule.masked else "request refused",
                extra=facts,
                exc_info=cause if rule.masked else None,
            )
    _drop_tracebacks(failed)


def _drop_tracebacks(errors: Sequence[BaseException]) -> None:
    """Break the reference cycles between exceptions and the frames that they passed through.

    Otherwise all objects of a refused operation stay until the garbage collector finds them: 70
    objects each, and pauses of half a second if thousands are refused.
    """
    waiting: list[BaseException | None] = list(errors)
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        # Not by assignment, which a frozen dataclass refuses.
        each.with_traceback(None)
        waiting += (each.__cause__, each.__context__)
        if isinstance(each, GraphQLError):
            waiting.append(each.original_error)


def _join_past_misfits(errors: list[GraphQLError]) -> None:
    """Keep the first error of each field whose value in earlier states violates the model.

    Clients cannot repair earlier states; `alike` is the number of further errors.
    """
    first: dict[tuple[object, str], GraphQLError] = {}
    kept = []
    for error in errors:
        cause = error.original_error
        if isinstance(cause, DocumentMisfit) and cause.past:
            field = re.sub(r"\.[0-9]+(?=\.|$)", "", str(cause.facts["field"]))
            known = first.setdefault((cause.facts["collection"], field), error)
            if known is not error:
                facts = known.extensions or {}
                known.extensions = {**facts, "alike": facts.get("alike", 0) + 1}
                continue
        kept.append(error)
    errors[:] = kept


def _of_a_literal(error: GraphQLError, cause: Exception) -> bool:
    """Return True for an error in a literal of the document, found before any field was executed.

    graphql-core's Int does not convert a literal of thousands of digits, and raises ValueError.
    """
    return error.path is None and bool(error.nodes) and isinstance(cause, ValueError)


def _shown(facts: Mapping[str, Any], token_out: Callable[[str], str]) -> dict[str, Any]:
    return {
        name: token_out(value) if name.lower().endswith("resumetoken") else value
        for name, value in facts.items()
    }
