"""Filter of one subscription to drafts or comments: the events that concern it, and their
transitions.

The rules for a caller are those of pages. `transition` is relative to the filter and to those
rules: a published draft leaves the queue of the proposed ones.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from revstream.model.definition import Entity
from revstream.resolvers.drafts.comments import Comment
from revstream.resolvers.drafts.draft import Draft
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.resolvers.subscriptions.token_refresh import TokenRefresh
from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost
from revstream.streams.live.oplog_replay import OplogEvents
from revstream.streams.live.replay import BufferedEvents, Idle, LiveEvents, Part
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document, decode
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import archived_operation

__all__ = ["ProposalChange", "ProposalKind", "ProposalRequest", "ProposalWatch", "Visible"]

ProposalKind = Literal["drafts", "comments"]
Parse = Callable[[Entity, Mapping[str, Any]], Draft | Comment | None]
"""A record -> what it is, None where it is neither."""
Visible = Callable[[Entity, Sequence[Any]], Awaitable[Sequence[bool]]]
"""n drafts or comments -> whether each is there for the caller."""

# Records that are looked up together; they may be large.
_PORTION = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalRequest:
    """Arguments of a subscription to drafts or comments.

    Args:
        entities: those that the caller may read.
        documents: the possible `_id`s of the requested document; empty: all documents.
        where: over records.
        after: a token without its deployment tag; None: from now on.
        caller: shares the processor fairly with others.
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
        """Return a predicate over records; None if every record matches."""
        matches = None if self.where is None else compile_predicate(self.where)
        if not self.documents:
            return matches
        return lambda record: self.concerns(record) and (matches is None or matches(record))

    def concerns(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record belongs to a requested document."""
        wanted = {identity(each) for each in self.documents}
        return not wanted or identity(record.get("doc")) in wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalChange:
    """One event of a subscription.

    Attributes:
        kind: CHANGE or CHECKPOINT.
        document: the `_id` of the document; None if it is unknown.
        key: the draft's number or the comment's id.
        record: None if it was removed.
        operation: None if the caller does not see the record any more.
        replayed: read again; of a CHECKPOINT, more missed events follow.
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


@dataclass(frozen=True, slots=True)
class _Stored:
    """A record, and the draft or comment that it is."""

    record: Document
    item: Draft | Comment


@dataclass(slots=True, kw_only=True)
class _State:
    """A record around an event; None where it was not there, is not known, or is neither a draft
    nor a comment: any program may write there.

    `gone`: it was removed since.
    """

    event: ChangeEvent
    entity: Entity
    before: _Stored | None
    after: _Stored | None
    gone: bool = False


class ProposalWatch:
    """Filter and transitions of one subscription.

    Args:
        visible: predicate of the caller's rows.
        limited: names of entities of which the caller may not see all records.
        quiet_s: maximum wait for a newer token.

    Attributes:
        lost: the reason why no event can follow; None before that.
    """

    def __init__(
        self,
        mongo: Mongo,
        request: ProposalRequest,
        parse: Parse,
        visible: Visible,
        limited: frozenset[str],
        *,
        quiet_s: float,
    ) -> None:
        self._mongo = mongo
        self._request = request
        self._collections = request.collections
        self._matches = request.predicate()
        self._parse = parse
        self._visible = visible
        self._limited = limited
        self._refresh = TokenRefresh(quiet_s)
        self.lost: HistoryLost | None = None

    async def take(self, part: Part | OplogEvents) -> AsyncGenerator[Sequence[ProposalChange]]:
        """Yield the changes of a part that concern this subscription."""
        if isinstance(part, Idle):
            self._refresh.note(part.token, part.token)
            yield [ProposalChange(kind="CHECKPOINT", token=part.token)]
            return
        assert isinstance(part, BufferedEvents | LiveEvents | OplogEvents)
        events = self._until_lost(part.events)
        for first in range(0, len(events), _PORTION):
            portion = events[first : first + _PORTION]
            states = await self._states(portion, again=isinstance(part, OplogEvents))
            seen = await self._visibility(states)
            kept = [
                change
                for state, (before, after) in zip(states, seen, strict=True)
                if (change := self._change(state, before, after, live=isinstance(part, LiveEvents)))
            ]
            self._refresh.note(portion[-1].token, kept[-1].token if kept else None)
            yield kept
        if isinstance(part, OplogEvents) and self.lost is None:
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
                f"{event.collection}: the collection was replaced or removed ({event.operation}); "
                "read the current state, and subscribe after it",
                oldestResumeToken=resume_tokens.token_after_event(event.token),
            )
            return events[:number]
        return events

    async def _states(self, events: Sequence[ChangeEvent], *, again: bool) -> list[_State]:
        states = [
            _State(
                event=event,
                entity=self._collections[event.collection],
                before=self._stored(event, event.document_before),
                after=self._stored(event, event.document),
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
            FindOptions(projection=None if whole else {"_id": 1}),
        )
        by_id = {identity(each["_id"]): each for each in found}
        for state in states:
            record = by_id.get(identity(state.event.key))
            state.gone = record is None
            if state.event.after is None and record is not None:
                state.after = self._stored(state.event, _as_of(record, state.event))

    def _stored(self, event: ChangeEvent, record: Document | None) -> _Stored | None:
        if record is None:
            return None
        item = self._parse(self._collections[event.collection], record)
        return None if item is None else _Stored(record, item)

    async def _visibility(self, states: Sequence[_State]) -> list[tuple[bool, bool]]:
        """Return of each whether the caller may see the record before, and after."""
        seen: dict[int, bool] = {}
        for entity in self._request.entities:
            items = [
                stored.item
                for state in states
                if state.entity is entity
                for stored in (state.before, state.after)
                if stored is not None
            ]
            allowed: Sequence[bool] = [True] * len(items)
            if items and entity.name in self._limited:
                allowed = await self._visible(entity, items)
            seen |= {id(item): may for item, may in zip(items, allowed, strict=True)}

        def allows(stored: _Stored | None) -> bool:
            return stored is not None and seen[id(stored.item)]

        return [(allows(state.before), allows(state.after)) for state in states]

    def _change(
        self, state: _State, seen_before: bool, seen_after: bool, *, live: bool
    ) -> ProposalChange | None:
        event, limited = state.event, state.entity.name in self._limited
        transition = self._transition(state, seen_before, seen_after)
        if transition is None:
            return None
        shown = state.after if seen_after else None
        known = shown or state.before
        item = None if known is None else known.item
        return ProposalChange(
            kind="CHANGE",
            token=event.token,
            entity=state.entity,
            # For a caller with a row rule, a record that left the rows is like a removed one.
            operation=None if shown is None and limited else archived_operation(event),
            transition=transition,
            document=None if item is None else item.document,
            key=self._key(event, item),
            record=None if shown is None or state.gone else shown.item,
            at=event.wall,
            replayed=not live,
        )

    def _key(self, event: ChangeEvent, item: Draft | Comment | None) -> Any:
        if self._request.kind == "comments":
            return str(event.key)
        return item.number if isinstance(item, Draft) else None

    def _transition(self, state: _State, seen_before: bool, seen_after: bool) -> str | None:
        before = seen_before and self._asked_for(state.before)
        after = seen_after and self._asked_for(state.after)
        operation = state.event.operation
        # It was there, and may have matched: the server has kept no image.
        unknown = state.event.before is None and operation != "insert"
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
        concerned = (
            seen_after and state.after is not None and self._request.concerns(state.after.record)
        )
        return "LEAVE" if concerned else None

    def _asked_for(self, stored: _Stored | None) -> bool:
        return stored is not None and (self._matches is None or self._matches(stored.record))


def _as_of(record: Document, event: ChangeEvent) -> Document:
    """Return a record of today as an update without an image left it."""
    if event.update is None:
        return record
    updated = decode(event.update.raw).get("updatedFields", {})
    then = {**record, **updated}
    if "status" in updated and "publishedAs" not in updated:
        then.pop("publishedAs", None)
    return then
