"""History of an entity: `ProductVersion`, `ProductBlame`, and the fields that return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Argument, Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import FALLBACK
from revstream.gql.engine.execution.worker_thread import count_items, has_read_much, run_in_thread
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.selection import Nodes
from revstream.gql.engine.request.source import CurrentDocument, VersionRecord
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.comments import resolve_version_comments
from revstream.gql.schema.entities.drafts import drafts_field, version_draft_field
from revstream.gql.schema.entities.history_field import history_field
from revstream.gql.schema.entities.interfaces import version_fields
from revstream.model.definition import Model
from revstream.model.naming import with_article
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.history.blame import FieldBlame, blame_documents
from revstream.resolvers.values.dates import in_utc
from revstream.resolvers.values.field_diff import FieldChange, FieldDiff
from revstream.resolvers.values.global_id import node_id
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = [
    "STATE_ARGUMENTS",
    "define_versions",
    "history_fields",
    "read_version",
]

STATE_ARGUMENTS = (
    Argument("version", "Int", "The version with this number."),
    Argument("asOf", "TimePoint", "The version that was current at this time point."),
)


_DIFF_COST = 10
_BLAME_COST = 50
"""Costs in documents: `diff` compares two states, `blame` may read hundreds of versions."""

_INITIAL_OPERATIONS = frozenset({"INSERT", "BASELINE"})
"""Operations of versions without a previous state."""


@dataclass(frozen=True, slots=True)
class BlameRecord:
    """Source of the object type `<Entity>Blame`."""

    path: str
    value: Any
    version: VersionRecord


def define_versions(types: Types, model: Model, shape: ObjectTypeInfo) -> None:
    """Define the types of an entity's versions and of its blame."""
    entity = shape.entity

    def compared(context: RequestContext) -> FieldDiff:
        """Return the comparison of the fields that the caller may read."""
        return context.scope.compared(shape.comparison)

    def resume_token(source: VersionRecord, context: RequestContext) -> str:
        return context.token_out(source.version.token)

    def changed_fields(source: VersionRecord, context: RequestContext) -> list[str]:
        return compared(context).paths(source.version.changed)

    def until(source: VersionRecord, info: ResolveInfo) -> Any:
        known = known_until(source, info.context)
        if known is not FALLBACK:
            return known
        version = source.version
        return info.context.loads.version_ended(entity, version.document, version.number)

    def known_until(source: VersionRecord, _context: RequestContext) -> Any:
        """Return the end that was read with the page; FALLBACK without one. Does not wait."""
        return FALLBACK if source.ends is None else source.ends[source.version.token]

    common = version_fields(
        types.naming,
        node_id=lambda source: node_id(shape.version, source.id_text),
        id=attrgetter("id_text"),
        document_id=attrgetter("document_id"),
        version=attrgetter("version.number"),
        operation=attrgetter("operation"),
        at=attrgetter("version.wall"),
        until=until,
        known_until=known_until,
        author=attrgetter("version.by"),
        comment=attrgetter("version.why"),
        changed_fields=changed_fields,
        restored_from=attrgetter("version.restored_from"),
        from_draft=attrgetter("version.draft"),
        traceparent=attrgetter("version.traceparent"),
        gap=attrgetter("version.gap"),
        cut=attrgetter("version.cut"),
        resume_token=resume_token,
        comments=resolve_version_comments,
    )

    async def previous(source: VersionRecord, info: ResolveInfo) -> VersionRecord | None:
        fields = info.context.selections(info).version(info.field_nodes, shape).fields
        return _version_record(shape, await _before(source.version, info, fields))

    def diff(source: VersionRecord, info: ResolveInfo) -> Any:
        if has_read_much():
            return diff_off_loop(source, info)
        known = known_diff(source, info.context)
        return read_diff(source, info) if known is FALLBACK else known

    async def diff_off_loop(source: VersionRecord, info: ResolveInfo) -> Any:
        known = await run_in_thread(known_diff, source, info.context)
        return await read_diff(source, info) if known is FALLBACK else known

    def known_diff(source: VersionRecord, context: RequestContext) -> Any:
        """Return the difference without waiting.

        Returns FALLBACK if the previous version was not read with the page.
        """
        version, before = source.version, source.before
        if version.cut is not None and version.operation not in _INITIAL_OPERATIONS:
            return count_items(compared(context).latest(version.changed, version.full))
        if version.previous is not None and before is None:
            return FALLBACK
        return count_items(
            compared(context).changes(_content_from_version(before), version.full, version.changed)
        )

    async def read_diff(source: VersionRecord, info: ResolveInfo) -> Sequence[FieldChange]:
        before = await _before(source.version, info, shape.everything)
        # Versions that were read for a compiled query may have dates without a time zone.
        after = in_utc(source.version.full)
        changes = compared(info.context).changes
        if has_read_much():
            return count_items(await run_in_thread(changes, _content_from_version(before), after))
        return count_items(changes(_content_from_version(before), after))

    async def _before(
        version: Version, info: ResolveInfo, fields: frozenset[str] | None
    ) -> Version | None:
        if version.previous is None:
            return None
        loads = info.context.loads
        found: Version | None = await loads.version_before(entity, version.previous, fields)
        return found

    types.add_object(
        shape.version,
        [
            *common,
            Read(
                "document",
                shape.snapshot,
                "The document in the state of this version; null if the version is a deletion.",
                attrgetter("snapshot"),
            ),
            Resolve(
                "previous",
                shape.version,
                "The previous version; null if this version is the first, or if the earlier ones "
                "were deleted (`cut`).",
                previous,
            ),
            Resolve(
                "diff",
                "[FieldChange!]!",
                "The differences from the previous version; if that was deleted (`cut`), without "
                "the old values.",
                diff,
                ready=lambda executor, details: known_diff,
            ),
            version_draft_field(shape),
        ],
        f"One version of {with_article(shape.name)}.",
        ["Node", "Version"],
    )
    types.add_object(
        f"{shape.name}Blame",
        [
            Read(
                "path",
                "String!",
                "The field, as a dotted path inside embedded documents.",
                attrgetter("path"),
            ),
            Read("value", "JSON", "The current value.", attrgetter("value")),
            Read(
                "version",
                f"{shape.version}!",
                "The version that last changed it.",
                attrgetter("version"),
            ),
        ],
        f"The version that last changed a field of {with_article(shape.name)}.",
    )


def history_fields(model: Model, shape: ObjectTypeInfo) -> list[StrawberryField]:
    """Return the fields of a current document for its history."""
    entity = shape.entity

    async def state(
        source: CurrentDocument,
        info: ResolveInfo,
        version: int | None = None,
        as_of: Mapping[str, Any] | None = None,
    ) -> VersionRecord | None:
        id_ = source.values["_id"]
        found = await read_version(info, shape, id_, info.field_nodes, version, as_of)
        # An earlier document may have had an id of another type with the same text.
        own = found is None or identity(found.version.document) == identity(in_utc(id_))
        return found if own else None

    async def diff(
        source: CurrentDocument, info: ResolveInfo, from_: int, to: int | None = None
    ) -> Sequence[FieldChange]:
        context = info.context
        id_ = source.values["_id"]

        async def content(number: int) -> Document | None:
            found = await context.loads.version_numbered(entity, id_, number, shape.everything)
            if found is None:
                raise BadUserInput(
                    f"diff: version {number}, expected one of {shape.name} {source.id_text}; take "
                    "a number from its history"
                )
            return found.full

        async def compare(_: list[Any]) -> list[Sequence[FieldChange]]:
            before = await content(from_)
            if to is None:
                after = await context.loads.document(entity, id_, shape.everything)
            else:
                after = await content(to)
            compared = context.scope.compared(shape.comparison)
            return [await run_in_thread(compared.changes, before, after)]

        # One comparison for all fields with the same arguments.
        found = await context.loads.for_document(
            ("diff", shape.name, from_, to, source.id_text), id_, compare
        )
        return count_items(found)

    async def blames(source: CurrentDocument, info: ResolveInfo) -> list[BlameRecord]:
        context = info.context
        selections = context.selections(info)
        selected = selections.under(info.field_nodes, f"{shape.name}Blame").get("version", ())
        fields = selections.version(selected, shape).fields

        async def read(ids: list[Any]) -> list[list[FieldBlame]]:
            shown, within = context.scope.readable(entity, model)
            return await blame_documents(context.services.history, within, shown, ids, fields)

        kind = ("blame", shape.name, fields)
        found = count_items(await context.loads.for_document(kind, source.values["_id"], read))
        return [
            BlameRecord(each.path, each.value, VersionRecord(shape, each.version)) for each in found
        ]

    return [
        history_field(model, shape),
        Resolve(
            "state",
            shape.version,
            "One version of the document, by number or at a time point; pass exactly one of them. "
            "Null if it did not exist; HISTORY_LOST if it may have been deleted.",
            state,
            STATE_ARGUMENTS,
        ),
        Resolve(
            "diff",
            "[FieldChange!]!",
            "The differences between two versions of the document.",
            diff,
            cost=_DIFF_COST,
            arguments=(
                Argument("from", "Int!", "The number of the version to start from."),
                Argument(
                    "to",
                    "Int",
                    "The number of the version to compare with; default: the current document.",
                ),
            ),
        ),
        Resolve(
            "blame",
            f"[{shape.name}Blame!]!",
            "For each field, the version that last changed it; without the fields for which that "
            "version was deleted.",
            blames,
            cost=_BLAME_COST,
        ),
        drafts_field(model, shape),
    ]


async def read_version(
    info: ResolveInfo,
    shape: ObjectTypeInfo,
    id_: Any,
    nodes: Nodes,
    number: int | None,
    as_of: Mapping[str, Any] | None,
) -> VersionRecord | None:
    """Read one version by its number or at a time point; None if the document did not exist.

    Args:
        info: graphql-core's info of the field.
        shape: the object type of the document.
        id_: the `_id` of the document.
        nodes: the field nodes that select the version's fields.
        number: the version number.
        as_of: the argument `asOf`, with a time or a token.

    Raises:
        BadUserInput: number and time point are both set, or neither is.
    """
    context = info.context
    if (number is None) == (as_of is None):
        got = "neither" if number is None else "both"
        raise BadUserInput(f"arguments version and asOf: got {got}, expected exactly one")
    fields = context.selections(info).version(nodes, shape).fields
    if number is not None:
        found = await context.loads.version_numbered(shape.entity, id_, number, fields)
        return _version_record(shape, found)
    assert as_of is not None
    moment = await context.loads.moment(shape.entity, as_of.get("time"), as_of.get("token"))
    found = await context.loads.version_at(shape.entity, id_, moment.at, fields)
    return None if found is None else VersionRecord(shape, found, moment.at)


def _version_record(shape: ObjectTypeInfo, version: Version | None) -> VersionRecord | None:
    return None if version is None else VersionRecord(shape, version)


def _content_from_version(version: Version | None) -> Document | None:
    return None if version is None else version.full
