"""One subscription's view of drafts or comments: which events concern it, and what they mean to it.

A record is there for a caller under the same rules as on a page. `transition` is relative to the
filter and to those rules: a published draft leaves the queue of the proposed ones.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from model.entities import Entity
from resolvers.conditions import Condition
from resolvers.drafts.comments import Comment
from resolvers.drafts.draft import Draft
from resolvers.matching import compile_predicate
from resolvers.token_refresh import TokenRefresh
from streams import tokens
from streams.changefeed.oplog_replay import ReadAgain
from streams.documents import Document, decode
from streams.errors import HistoryLost
from streams.events import ChangeEvent, identity
from streams.mongo import Mongo
from streams.replay import Caught, Live, Part, Quiet
from streams.storms import Storm
from streams.versions import archived_operation

__all__ = ["ProposalChange", "ProposalKind", "ProposalRequest", "ProposalWatch", "Visible"]

log = logging.getLogger(__name__)

ProposalKind = Literal["drafts", "comments"]
Visible = Callable[[Entity, Sequence[Mapping[str, Any]]], Awaitable[Sequence[bool]]]
"""n records -> whether each is there for the caller."""

# Records that are looked up together; they may be large.
_PORTION = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRequest:
    """A subscription to drafts or comments.

    Args:
        entities: those that the caller may read.
        documents: the `_id`s that the asked document may have; empty: all documents.
        where: over records.
        after: a token without its deployment tag; None: from now on.
        caller: takes turns with others.
    """

    kind: ProposalKind
    entities: Sequence[Entity]
    documents: Sequence[Any] = ()
    where: Condition | None = None
    after: str | None = None
    caller: str = ""

    @property
    def collections(self) -> dict[str, Entity]:
        return {f"{each.collection}.{self.kind}": each for each in self.entities}

    def predicate(self) -> Callable[[Mapping[str, Any]], bool] | None:
        """Return a function of a record; None where all are asked for."""
        matches = None if self.where is None else compile_predicate(self.where)
        if not self.documents:
            return matches
        return lambda record: self.concerns(record) and (matches is None or matches(record))

    def concerns(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record is of a document that is asked for."""
        wanted = {identity(each) for each in self.documents}
        return not wanted or identity(record.get("doc")) in wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalChange:
    """One event of a subscription.

    `kind`: CHANGE or CHECKPOINT. `document`: the `_id` of the document; None where it is not known.
    `key`: the draft's number or the comment's id. `record`: None where it is not there any more.
    `operation`: None where the caller does not see the record any more. `replayed`: read again; of
    a CHECKPOINT, more that was missed follows.
    """

    kind: str
    token: str
    entity: Entity | None = None
    operation: str | None = None
    transition: str | None = None
    document: Any = None
    key: Any = None
    record: Draft | Comment | None = None
    at: datetime | None = None
    replayed: bool = False


@dataclass(slots=True, kw_only=True)
class _State:
    """A record around an event; None where it was not there, or is not known.

    `gone`: it was removed since.
    """

    event: ChangeEvent
    entity: Entity
    before: Document | None
    after: Document | None
    gone: bool = False


class ProposalWatch:
    """Args:
        visible: of the caller.
        limited: names of entities of which some records may not be there for the caller.
        quiet_s: the longest that it waits for a fresher token.

    Attributes:
        lost: why no event can follow, once that is so.
    """

    def __init__(
        self,
        mongo: Mongo,
        request: ProposalRequest,
        visible: Visible,
        limited: frozenset[str],
        *,
        quiet_s: float,
    ) -> None:
        self._mongo = mongo
        self._request = request
        self._collections = request.collections
        self._matches = request.predicate()
        self._visible = visible
        self._limited = limited
        self._refresh = TokenRefresh(quiet_s)
        self._unfit = Storm(log, "record is neither a draft nor a comment: left out")
        self.lost: HistoryLost | None = None

    async def take(self, part: Part | ReadAgain) -> AsyncGenerator[Sequence[ProposalChange]]:
        """Yield the changes of a part that concern this subscription."""
        if isinstance(part, Quiet):
            self._refresh.note(part.token, part.token)
            yield [ProposalChange(kind="CHECKPOINT", token=part.token)]
            return
        assert isinstance(part, Caught | Live | ReadAgain)
        events = self._until_lost(part.events)
        for first in range(0, len(events), _PORTION):
            portion = events[first : first + _PORTION]
            states = await self._states(portion, again=isinstance(part, ReadAgain))
            seen = await self._seen(states)
            kept = [
                change
                for state, (before, after) in zip(states, seen, strict=True)
                if (change := self._change(state, before, after, live=isinstance(part, Live)))
            ]
            self._refresh.note(portion[-1].token, kept[-1].token if kept else None)
            yield kept
        if isinstance(part, ReadAgain) and self.lost is None:
            self._refresh.note(part.position, part.position)
            yield [ProposalChange(kind="CHECKPOINT", token=part.position, replayed=True)]
        elif (fresher := self._refresh.due_token()) is not None:
            yield [ProposalChange(kind="CHECKPOINT", token=fresher)]

    def _until_lost(self, events: Sequence[ChangeEvent]) -> Sequence[ChangeEvent]:
        """Return the events before one that befalls a whole collection, or all."""
        for number, event in enumerate(events):
            if event.is_write or not {event.collection, event.renamed_to} & set(self._collections):
                continue
            self.lost = HistoryLost(
                f"{event.collection}: the collection itself was changed ({event.operation}); "
                "read the present, and subscribe after it",
                oldestResumeToken=tokens.behind(event.token),
            )
            return events[:number]
        return events

    async def _states(self, events: Sequence[ChangeEvent], *, again: bool) -> list[_State]:
        states = [
            _State(
                event=event,
                entity=self._collections[event.collection],
                before=self._fit(event, event.document_before),
                after=self._fit(event, event.document),
            )
            for event in events
            if event.is_write and event.collection in self._collections
        ]
        for name in self._collections:
            wanted = [
                each
                for each in states
                if each.event.collection == name
                and each.event.operation != "delete"
                and (again or each.event.after is None)
            ]
            if wanted:
                await self._look_up(name, wanted)
        return states

    async def _look_up(self, collection: str, states: Sequence[_State]) -> None:
        """Read the records of events without images, and whether others are there still."""
        whole = any(each.event.after is None for each in states)
        found = await self._mongo.find(
            collection,
            {"_id": {"$in": [each.event.key for each in states]}},
            projection=None if whole else {"_id": 1},
        )
        by_id = {identity(each["_id"]): each for each in found}
        for state in states:
            record = by_id.get(identity(state.event.key))
            state.gone = record is None
            if state.event.after is None and record is not None:
                state.after = self._fit(state.event, _as_of(record, state.event))

    def _fit(self, event: ChangeEvent, record: Document | None) -> Document | None:
        """None where it is none of a draft or a comment: any program may write there."""
        if record is None:
            return None
        try:
            self._parsed(record)
            for each in ("base", "full") if self._request.kind == "drafts" else ():
                dict(record[each])
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            facts = {"collection": event.collection, "key": str(event.key)}
            self._unfit.note(**facts, reason=type(exc).__name__)
            return None
        return record

    def _parsed(self, record: Document) -> Draft | Comment:
        kind = Draft if self._request.kind == "drafts" else Comment
        return kind.from_record(record)

    async def _seen(self, states: Sequence[_State]) -> list[tuple[bool, bool]]:
        """Return of each whether the caller may see the record before, and after."""
        seen: dict[int, bool] = {}
        for entity in self._request.entities:
            records = [
                record
                for state in states
                if state.entity is entity
                for record in (state.before, state.after)
                if record is not None
            ]
            allowed: Sequence[bool] = [True] * len(records)
            if records and entity.name in self._limited:
                allowed = await self._visible(entity, records)
            seen |= {id(record): may for record, may in zip(records, allowed, strict=True)}
        return [
            (seen.get(id(state.before), False), seen.get(id(state.after), False))
            for state in states
        ]

    def _change(
        self, state: _State, seen_before: bool, seen_after: bool, *, live: bool
    ) -> ProposalChange | None:
        event, limited = state.event, state.entity.name in self._limited
        transition = self._transition(state, seen_before, seen_after)
        if transition is None:
            return None
        shown = state.after if seen_after else None
        known = shown or state.before or {}
        record = None if shown is None or state.gone else self._parsed(shown)
        drafts = self._request.kind == "drafts"
        return ProposalChange(
            kind="CHANGE",
            token=event.token,
            entity=state.entity,
            # To a caller with a row rule, what left his rows is like what was removed.
            operation=None if shown is None and limited else archived_operation(event),
            transition=transition,
            document=known.get("doc"),
            key=known.get("number") if drafts else str(event.key),
            record=record,
            at=event.wall,
            replayed=not live,
        )

    def _transition(self, state: _State, seen_before: bool, seen_after: bool) -> str | None:
        matches = self._matches
        before = seen_before and (matches is None or matches(state.before or {}))
        after = seen_after and (matches is None or matches(state.after or {}))
        operation = state.event.operation
        # It was there, and may have matched: the server has kept no image.
        unknown = state.before is None and operation != "insert"
        if after:
            # A record does not leave its document: it was there before.
            return "STAY" if before or (unknown and self._request.where is None) else "ENTER"
        if before:
            return "LEAVE"
        if not unknown:
            return None
        if operation == "delete":
            limited = state.entity.name in self._limited
            return None if limited or self._request.documents else "LEAVE"
        concerned = seen_after and self._request.concerns(state.after or {})
        return "LEAVE" if concerned else None


def _as_of(record: Document, event: ChangeEvent) -> Document:
    """Return a record of today as an update without an image left it."""
    if event.update is None:
        return record
    updated = decode(event.update.raw).get("updatedFields", {})
    then = {**record, **updated}
    if "status" in updated and "publishedAs" not in updated:
        then.pop("publishedAs", None)
    return then
