"""Type `Subscription`: changes of the documents of each entity, live or from a resume token."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Hashable, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

from bson.datetime_ms import DatetimeMS
from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.limits.concurrency import SubscriptionOperation
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.selection import Nodes, Selections
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.change_record import ChangeRecord
from revstream.gql.schema.entities.interfaces import change_fields
from revstream.gql.schema.roots.node import stored_id
from revstream.gql.schema.roots.proposal_subscription import (
    all_proposal_change_fields,
    proposal_change_fields,
)
from revstream.gql.schema.roots.resumption import RESUMABLE_ERRORS, Resumption
from revstream.gql.schema.roots.subscription_key import group_key, response_cache_key
from revstream.gql.schema.roots.tracked_subscription import TrackedSubscription
from revstream.gql.subscriptions.broadcast_group import BroadcastGroup, EventSource
from revstream.gql.subscriptions.broadcast_message import (
    CURRENT_TARGET,
    BroadcastMessage,
    BroadcastTarget,
)
from revstream.model.definition import Entity, Model
from revstream.model.naming import with_article
from revstream.resolvers.current.stored_ids import ids_shown_as
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Condition
from revstream.resolvers.filters.pattern import refuse_patterns
from revstream.resolvers.filters.reference_filters import references_in
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.resolvers.subscriptions.start import ChangeRequest, without_received_snapshot
from revstream.resolvers.values.dates import date_text
from revstream.resolvers.values.field_diff import FieldChange, changed_fields
from revstream.streams.core.operation import OPERATION

__all__ = ["define_subscription"]

# Number of events that are serialized before the first of them is sent.
_EVENTS_PER_BATCH = 20


def define_subscription(types: Types, model: Model, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define the type `Subscription` and the event types of each entity."""
    fields = []
    for entity in model.entities:
        _define_change(types, model, shapes[entity.name])
        fields.append(_changes_field(model, shapes[entity.name]))
        fields += proposal_change_fields(model, shapes[entity.name])
    fields += all_proposal_change_fields(model, shapes)
    types.add_object(
        "Subscription",
        fields,
        "All changes, live or from a resume token.",
    )


def _define_change(types: Types, model: Model, shape: ObjectTypeInfo) -> None:
    entity = shape.entity

    def changed(source: ChangeRecord, info: ResolveInfo) -> list[str] | None:
        change = source.change
        if change.kind != "CHANGE" or change.changed is None:
            return None
        return changed_fields(*_compared(info), change.changed)

    def diff(source: ChangeRecord, info: ResolveInfo) -> Sequence[FieldChange] | None:
        change = source.change
        if change.kind != "CHANGE":
            return None
        return source.diff(info.context.scope.compared(shape.comparison))

    def _compared(info: ResolveInfo) -> tuple[Entity, Model]:
        return info.context.scope.readable(entity, model)

    def resume_token(source: ChangeRecord, info: ResolveInfo) -> str:
        token: str = info.context.token_out(source.change.token)
        return token

    common = change_fields(
        kind=attrgetter("change.kind"),
        operation=attrgetter("operation"),
        transition=attrgetter("change.transition"),
        document_id=attrgetter("document_id"),
        version=attrgetter("change.version"),
        changed_fields=changed,
        diff=diff,
        at=attrgetter("change.at"),
        author=attrgetter("change.by"),
        comment=attrgetter("change.why"),
        traceparent=attrgetter("change.traceparent"),
        replayed=attrgetter("change.replayed"),
        gap=attrgetter("change.gap"),
        resume_token=resume_token,
    )
    types.add_object(
        f"{shape.name}Change",
        [
            *common,
            Read(
                entity.singular,
                shape.name,
                "The document after this change, with the id of the current document, so that "
                "normalized caches update it. Null after a deletion.",
                attrgetter("current"),
            ),
            Read(
                "before",
                shape.snapshot,
                "The document before this change; null if it did not exist.",
                attrgetter("before"),
            ),
        ],
        f"A change or a snapshot of {with_article(shape.name)}, or a checkpoint event.",
        ["Change"],
    )


def _changes_field(model: Model, shape: ObjectTypeInfo) -> StrawberryField:
    def resolve(
        _root: None,
        info: ResolveInfo,
        id: str | None = None,
        where: Mapping[str, Any] | None = None,
        operations: Sequence[str] | None = None,
        after: str | None = None,
        since: datetime | DatetimeMS | None = None,
        cursor: str | None = None,
        snapshot: bool | None = False,
    ) -> AsyncGenerator[ChangeRecord]:
        context = info.context
        selections = context.selections(info)
        if context.position is not None and context.position.after is not None:
            # The client resumes: its original starting point is before this token.
            after, since, cursor = context.position.after, None, None
        asked = ChangeRequest(
            ids=() if id is None else ids_shown_as(shape.entity, stored_id(shape, id)),
            where=None if where is None else _parse_where(context, model, shape.entity, where),
            operations=None if operations is None else frozenset(operations),
            after=None if after is None else context.token_in(after),
            since=_check_since(since),
            cursor=cursor,
            owner=context.owner,
            snapshot=bool(snapshot),
            needs_version=_needs_version(selections, info.field_nodes, shape),
            needs_before=_needs_before(selections, info.field_nodes, shape),
            needs_author=_needs_author(selections, info.field_nodes, shape),
        )
        request = without_received_snapshot(asked)
        context.scope.check_shown(shape.entity)
        context.subscription_filters.check(context.owner, where)
        # Not a generator itself, so that invalid arguments raise before the stream starts.
        return _stream_changes(shape, info, request, where)

    name = shape.name
    return Resolve(
        f"{shape.entity.singular}Changes",
        f"{name}Change!",
        "All changes of the collection's documents that match, in order, each exactly once.",
        resolve,
        (
            Argument("id", "ID", "Only changes of the document with this id."),
            Argument(
                "where",
                f"{name}Where",
                "Only changes of documents that match before or after it: see `transition`.",
            ),
            Argument("operations", "[Operation!]", "Only these operations."),
            Argument(
                "after",
                "ResumeToken",
                "Resume after this token. Pass at most one of after, since, cursor and snapshot; "
                "without them the subscription starts now. Together with `snapshot: true`, the "
                "token of the last event is accepted: the snapshot is skipped, or sent again if it "
                "was not complete.",
            ),
            Argument(
                "since",
                "DateTime",
                "Replay from this time, from the archive if the change stream no longer has it.",
            ),
            Argument(
                "cursor", "String", "Resume after the saved cursor with this name (`saveCursor`)."
            ),
            Argument(
                "snapshot",
                "Boolean",
                "Send the documents that match now, then a CHECKPOINT, then the changes after it.",
                default=False,
            ),
        ),
        stream=True,
    )


async def _stream_changes(
    shape: ObjectTypeInfo,
    info: ResolveInfo,
    request: ChangeRequest,
    where: Mapping[str, Any] | None,
) -> AsyncGenerator[ChangeRecord]:
    """Yield the events of one subscription, until it joins a broadcast group."""
    context, target, entity = info.context, CURRENT_TARGET.get(), shape.entity
    OPERATION.set(SubscriptionOperation(context.owner))
    resumption = Resumption(context, target)
    membership = None
    if target is not None:
        source = _GroupEventSource(shape, context, request, response_cache_key(info))
        selected = context.selections(info).under(info.field_nodes, f"{shape.name}Change")
        group = context.broadcast_groups.group(
            group_key(info), context.services.live.delivery_counter(entity)
        )
        membership = _GroupMembership(group, target, source, alike="replayed" not in selected)

    filters = context.subscription_filters.hold(context.owner, where)
    with (
        filters,
        TrackedSubscription(context, info.field_name) as tracked,
        membership or nullcontext(),
    ):
        changes = context.services.live.changes(
            entity, request, company=membership, shutdown=tracked.shutdown, begun=resumption.begin
        )
        try:
            async with aclosing(changes) as opened:
                async for change in opened:
                    resumption.reach(None if change.kind == "SNAPSHOT" else change.token)
                    yield ChangeRecord(shape, change)
        except RESUMABLE_ERRORS as exc:
            end, last = resumption.end(exc), resumption.token
            if end.resubscribe and last:
                yield ChangeRecord(shape, Change(entity=entity, kind="CHECKPOINT", token=last))
            raise end from exc


class _GroupMembership:
    """Membership of one subscription in a broadcast group, as a context manager.

    `resolvers.subscriptions.stream` calls `join` after the replay.

    Args:
        group: the broadcast group.
        target: the broadcast target of the subscription.
        source: creates the events of the group, if this member is its leader.
        alike: whether a replayed event has the same response as a live one.
    """

    def __init__(
        self, group: BroadcastGroup, target: BroadcastTarget, source: EventSource, *, alike: bool
    ) -> None:
        self._group = group
        self._target = target
        self._source = source
        self._alike = alike

    def __enter__(self) -> None:
        self._group.__enter__()

    def __exit__(self, *_: object) -> None:
        self._group.__exit__()

    @property
    def others(self) -> bool:
        return self._group.held > 1

    async def join(self, position: str, *, caught_up: bool) -> str | None:
        if not (caught_up or self._alike):
            return None
        return await self._group.join(self._target, position, self._source, caught_up=caught_up)


class _GroupEventSource:
    """`EventSource` that executes the subscription once for all members of a broadcast group."""

    def __init__(
        self,
        shape: ObjectTypeInfo,
        context: RequestContext,
        request: ChangeRequest,
        selection: Hashable,
    ) -> None:
        """Prepare the executor.

        Args:
            shape: the object type of the documents.
            context: the context of the subscription that leads the group.
            request: the arguments of that subscription.
            selection: the cache key of responses, `response_cache_key`.
        """
        self._shape = shape
        self._context = context
        # Its own executor: the group may outlive the subscription that leads it.
        self._executor = None if context.executor is None else context.executor()
        self._request = request
        self._selection = selection

    async def events_after(self, position: str) -> AsyncGenerator[Sequence[BroadcastMessage]]:
        request = replace(self._request, after=position, since=None, cursor=None, snapshot=False)
        parts = self._context.services.live.parts(self._shape.entity, request)
        async with aclosing(parts) as opened:
            async for changes in opened:
                for first in range(0, len(changes), _EVENTS_PER_BATCH):
                    yield [
                        await self._message(each)
                        for each in changes[first : first + _EVENTS_PER_BATCH]
                    ]

    async def checkpoint(self, token: str) -> BroadcastMessage:
        return await self._message(
            Change(entity=self._shape.entity, kind="CHECKPOINT", token=token)
        )

    async def _message(self, change: Change) -> BroadcastMessage:
        context = self._context
        seen = change.transition, change.replayed, change.cut, change.before is None
        key = self._selection, change.kind, change.token, seen
        message = context.broadcast_groups.responses.get(key)
        if message is None:
            assert self._executor is not None
            response = await self._executor.response_to(ChangeRecord(self._shape, change))
            message = BroadcastMessage(
                change.token,
                response,
                shown=context.token_out(change.token),
                counts=change.kind != "CHECKPOINT",
            )
            context.broadcast_groups.responses[key] = message
        return message


def _parse_where(
    context: RequestContext, model: Model, entity: Entity, where: Mapping[str, Any]
) -> Condition:
    condition = context.condition(model, entity, where)
    references = references_in(condition)
    if references:
        mend = "the field with the id" if references[0].by is None else "fields of the document"
        raise BadUserInput(
            f"{references[0].name}: a filter through a reference, which subscriptions do not "
            f"support, because changes of the other document would not be seen; filter by {mend}"
        )
    refuse_patterns(condition)
    return condition


def _check_since(since: datetime | DatetimeMS | None) -> datetime | None:
    if isinstance(since, DatetimeMS):
        raise BadUserInput(f"since: {date_text(since)}, expected a year from 1 to 9999")
    return since


def _needs_version(selections: Selections, nodes: Nodes, shape: ObjectTypeInfo) -> bool:
    selected = selections.under(nodes, f"{shape.name}Change")
    current, before = selected.get(shape.entity.singular, ()), selected.get("before", ())
    return (
        "version" in selected
        or selections.selects(current, shape, "version")
        or selections.selects(before, shape, "id", "nodeId", "version", past=True)
    )


def _needs_before(selections: Selections, nodes: Nodes, shape: ObjectTypeInfo) -> bool:
    selected = selections.under(nodes, f"{shape.name}Change")
    # The fields that changed are found by comparing the two states.
    return any(name in selected for name in ("before", "diff", "changedFields"))


def _needs_author(selections: Selections, nodes: Nodes, shape: ObjectTypeInfo) -> bool:
    selected = selections.under(nodes, f"{shape.name}Change")
    return any(name in selected for name in ("author", "comment", "traceparent"))
