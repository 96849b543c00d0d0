"""Filter of one subscription: which changes concern it, and their transitions.

`where` means the same as in a query, here as a predicate. A transition is ENTER, STAY or LEAVE. A
change without a matching document, before or after, is not sent. For a caller with a row rule, a
document outside of its rows does not exist: if it leaves the rows, or is deleted, the caller
receives a LEAVE with its id and time alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.filters.number_filters import asks_for_number, with_number
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.resolvers.subscriptions.event_enrichment import Change, EventEnrichment, EventNeeds
from revstream.resolvers.subscriptions.start import ChangeRequest
from revstream.resolvers.subscriptions.token_refresh import TokenRefresh
from revstream.streams.changefeed.event import identity
from revstream.streams.live.replay import BufferedEvents, Idle, LiveEvents, Part, ReplayedRecords
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["EventFilter"]

Predicate = Callable[[Mapping[str, Any]], bool]


class EventFilter:
    """Filter, transitions and token refresh of one subscription."""

    def __init__(
        self,
        entity: Entity,
        request: ChangeRequest,
        rows: RowFilter,
        completion: EventEnrichment,
        *,
        quiet_s: float,
    ) -> None:
        """Create the filter of one subscription.

        Args:
            quiet_s: maximum wait for a newer token.
        """
        self._entity = entity
        self._rows = rows
        self._request = request
        self._completion = completion
        self._matches: Predicate | None = (
            None if request.where is None else compile_predicate(request.where)
        )
        self._numbered = asks_for_number(entity, rows.narrowed(request.where))
        self._needs = EventNeeds(
            version=request.needs_version or self._numbered,
            before=request.needs_before or request.where is not None or rows.limits,
            author=request.needs_author,
        )
        self._wanted = frozenset(map(identity, request.ids))
        self._since = request.since
        self._refresh = TokenRefresh(quiet_s)

    async def take(self, part: Part) -> list[Change]:
        """The changes of a part that concern this subscription."""
        if isinstance(part, Idle):
            self._refresh.note(part.token, part.token)
            return [Change(entity=self._entity, kind="CHECKPOINT", token=part.token)]
        made: Sequence[Change]
        if isinstance(part, ReplayedRecords):
            made = await self._completion.of_records(part.records, self._needs)
        else:
            assert isinstance(part, BufferedEvents | LiveEvents)
            made = await self._completion.of_events(
                part.events, self._needs, replayed=isinstance(part, BufferedEvents)
            )
        kept = [judged for each in made if (judged := self._judged(each)) is not None]
        self._refresh.note(made[-1].token if made else None, kept[-1].token if kept else None)
        return kept

    def fresher_token(self) -> str | None:
        """The last token passed over, once nothing was sent for long."""
        return self._refresh.due_token()

    def _judged(self, change: Change) -> Change | None:
        if self._since is not None:
            if change.at is not None and change.at < self._since:
                return None
            # Only the beginning is judged by the wall clock; from there on the stream's order
            # counts.
            self._since = None
        if not self._concerns(change):
            return None
        operations = self._request.operations
        if self._numbered:
            change = self._with_numbers(change)
        shown = self._shown(change) if self._rows.limits else change
        if shown is None:
            return None
        # A change that is not sent has no operation to be filtered by.
        visible = shown.operation is not None
        if operations is not None and visible and change.operation not in operations:
            return None
        transition = self._transition(shown)
        if transition is None:
            return None
        # The state before a LEAVE is not sent either.
        return (shown if visible else replace(shown, before=None)).moved(transition)

    def _with_numbers(self, change: Change) -> Change:
        """Return the change with states that have the numbers that are shown."""
        after = with_number(self._entity, change.document, change.version)
        before = with_number(self._entity, change.before, change.previous_version)
        return replace(change, document=after, before=before)

    def _concerns(self, change: Change) -> bool:
        """Return whether it is about the document that is followed: what befalls the collection as
        a whole brings all documents.
        """
        return not self._wanted or identity(change.document_id) in self._wanted

    def _shown(self, change: Change) -> Change | None:
        """Return the part of a change that the caller may see; None for nothing."""
        before, after = self._allowed(change, change.before), self._allowed(change, change.document)
        if before is None and after is None:
            # Where what it was is not known, it cannot be judged.
            return None
        if after is None:
            return Change(
                entity=change.entity,
                kind=change.kind,
                token=change.token,
                document_id=change.document_id,
                at=change.at,
                replayed=change.replayed,
                before=before,
            )
        if before is not None:
            return change
        cut = change.cut and change.before is None
        return replace(change, before=None, previous_version=None, changed_paths=None, cut=cut)

    def _allowed(self, change: Change, state: Document | None) -> Document | None:
        if state is None or not self._rows.allow({**state, "_id": change.document_id}):
            return None
        return state

    def _transition(self, change: Change) -> str | None:
        if self._matches is None:
            if change.operation in ("DELETE", None):
                return "LEAVE"
            if self._rows.limits:
                return "ENTER" if change.before is None else "STAY"
            return "ENTER" if change.operation in ("INSERT", "BASELINE") else "STAY"
        before = change.before is not None and self._matches(change.before)
        after = change.document is not None and self._matches(change.document)
        if after:
            return "STAY" if before else "ENTER"
        # With an unknown state before, the document may have matched: clients must evict it.
        return "LEAVE" if before or change.cut else None
