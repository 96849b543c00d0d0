"""Queries that are one lookup by key, answered without a task of their own.

What such a query takes beside its share of a read is mostly what it takes to have something that
waits: a task, the coroutines within each other, a context with nothing in it. Here the future of
the read calls back. Whatever is unusual about a request is left to `Schema.execute` before anything
has been read, or to `Schema.go_on` with what was: limits, errors and what is counted are the same.

Source: docs/decisions/0036-lookups.md
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from gql.admission import Admission
from gql.context import Context
from gql.documents import Documents, KnownOperation
from gql.http_requests import GraphQLRequest
from gql.operations import Operations
from gql.plans import Plan
from resolvers.own_writes import Seen
from resolvers.shown import Asked, Shown
from streams.errors import GatewayError

__all__ = ["Answered", "Lookup", "Lookups"]

Answered: TypeAlias = "Callable[[Lookup, dict[str, Any] | None], None]"
"""Called with a lookup and the data of its response; None: it is to be gone on with."""


class Lookups:
    """Begins them; arguments as of `Schema`."""

    def __init__(self, operations: Operations, admission: Admission, documents: Documents) -> None:
        self.operations = operations
        self.admission = admission
        self._documents = documents

    def begin(self, asked: GraphQLRequest, context: Context, answered: Answered) -> bool:
        """False where it is anything else, or where something is wrong with it, or where it would
        have to wait for its turn: nothing has come of it then.

        Args:
            answered: called in a later turn of the loop. May not raise.
        """
        began = time.perf_counter()
        if asked.extensions:
            return False
        try:
            _, document = self._documents.asked(asked.query, None)
        except GatewayError:
            # Who executes it is told the same, and says so.
            return False
        known = None if document is None else document.operations.get(asked.operation_name)
        if known is None or not (known.looks_up and known.fits):
            return False
        given = known.coerce(asked.variables or {})
        plan = None if given is None else known.document.plans.of(known.name, given)
        if given is None or plan is None or plan.direct is None or not plan.direct.looks_up:
            return False
        admission = self.admission
        if not admission.enter():
            return False
        try:
            admission.begin(context.owner)
        except GatewayError:
            admission.leave()
            return False
        try:
            read = plan.direct.ask(context, given)
        except Exception:
            # As above.
            admission.leave()
            admission.end(context.owner)
            return False
        self.operations.begun["known"] += 1
        lookup = Lookup(self, asked.variables, context, known, plan, began, read, answered)
        admission.clock.watch(lookup, asyncio.get_running_loop())
        read.reading.add_done_callback(lookup.done)
        return True

    def ended(self, lookup: Lookup) -> None:
        """With nothing left to do."""
        self.admission.leave()
        self.admission.end(lookup.context.owner)
        self.operations.took(lookup.known.kind_name, time.perf_counter() - lookup.began)


@dataclass(slots=True, eq=False)
class Lookup:
    """One that has begun. It has a place (`gql.admission`) until it is answered; whoever goes on
    with it has the place then, and gives it back.

    Attributes:
        variables: as they were sent.
        context: of the caller; no `fresh` one.
        known, plan: the operation, and what is kept of it.
        began: by the performance counter.
        outcome: what was read, or the error. late: it has taken longer than it may.
        expires: see `gql.admission.Held`.
    """

    _lookups: Lookups
    variables: dict[str, Any] | None
    context: Context
    known: KnownOperation
    plan: Plan
    began: float
    _read: Asked
    _answered: Answered
    outcome: Shown | Exception | None = None
    late: bool = False
    expires: float = 0.0

    @property
    def seen(self) -> Seen | None:
        """See `Context.fresh`."""
        return self.outcome[2] if isinstance(self.outcome, tuple) else None

    def expire(self) -> None:
        self._read.reading.cancel()

    def done(self, reading: asyncio.Future[Any]) -> None:
        """It was read, or not."""
        self._lookups.admission.clock.leave(self)
        data = None
        if reading.cancelled():
            self.late = True
        else:
            assert self.plan.direct is not None
            try:
                [self.outcome] = self._read.shown()
                data = self.plan.direct.told(self.outcome)
            except Exception as exc:
                self.outcome = exc
        if data is not None:
            self._lookups.ended(self)
        self._answered(self, data)
