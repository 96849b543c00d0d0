"""Check that no name of the model is one that the API takes.

There are types that every API has, types and root fields that are made for each entity, and fields
that are added to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graphql.language import Node

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    FieldDeclaration,
    TypeDeclaration,
)
from revstream.model.compiler.parsing.diagnostics import Report
from revstream.model.compiler.validation.collections import plural, singular
from revstream.model.definition import Scalar
from revstream.model.naming import upper_first

__all__ = ["check_names"]

AGGREGATE_SUFFIXES = (
    "AggregateGroupBy",
    "AggregateKey",
    "AggregateKeyOrder",
    *(
        f"Aggregate{result}{suffix}"
        for result in ("Sum", "Average", "Extremes", "Distinct")
        for suffix in ("", "Order", "Where")
    ),
)
ENTITY_AGGREGATE_SUFFIXES = (
    "Aggregate",
    "AggregateGroup",
    "AggregateGroupOrder",
    "AggregateGroupWhere",
    *AGGREGATE_SUFFIXES,
)
FIXED_TYPES = frozenset(
    {
        "AlreadyExists",
        "Change",
        "ChangeKind",
        "Comment",
        "CommentChange",
        "CommentConnection",
        "CommentEdge",
        "CommentWhere",
        "DateBucket",
        "DateUnit",
        "DocumentNotFound",
        "Draft",
        "DraftChange",
        "DraftConnection",
        "DraftEdge",
        "DraftStatus",
        "DraftStatusFilter",
        "DraftWhere",
        "FieldChange",
        "FieldChangeKind",
        "HistoryCut",
        "HistoryGap",
        "InvalidDocument",
        "Mutation",
        "Node",
        "Operation",
        "OperationFilter",
        "PageInfo",
        "Query",
        "ResumeToken",
        "SavedCursor",
        "SortDirection",
        "StaleWrite",
        "StreamReading",
        "StreamStatus",
        "Subscription",
        "TimeBucket",
        "TimePoint",
        "TimeUnit",
        "Transition",
        "Version",
        "VersionConflict",
        "VersionWhere",
        "WriteError",
        *(f"Version{each}" for each in ENTITY_AGGREGATE_SUFFIXES),
        *(f"{each.value}Filter" for each in Scalar if each is not Scalar.POINT),
        *(f"{each.value}ListFilter" for each in Scalar if each is not Scalar.POINT),
    }
)
"""Types that every API has."""

POINT_TYPES = frozenset(
    {
        "Point",
        "PointBox",
        "PointCircle",
        "PointFilter",
        "PointInput",
        "PointNear",
        "PointOrder",
        "PointWithin",
    }
)
"""Types of an API whose model has a field of type Point. Otherwise the model may have them."""

ENTITY_SUFFIXES = (
    "Version",
    "Snapshot",
    "State",
    "Where",
    "ListFilter",
    "Order",
    "OrderBy",
    "OrderByCount",
    "By",
    "Connection",
    "Edge",
    "VersionConnection",
    "VersionEdge",
    "SnapshotConnection",
    "SnapshotEdge",
    "StateConnection",
    "StateEdge",
    "Change",
    "Draft",
    "DraftChange",
    "DraftConnection",
    "DraftEdge",
    "Blame",
    "Input",
    "Patch",
    "Increment",
    "Written",
    "Write",
    "Drafted",
    "Proposal",
    *ENTITY_AGGREGATE_SUFFIXES,
)
EMBEDDED_SUFFIXES = (
    "State",
    "Snapshot",
    "Where",
    "OrderBy",
    "ListFilter",
    "Input",
    "Patch",
    *AGGREGATE_SUFFIXES,
)
ENUM_SUFFIXES = ("Filter", "ListFilter")

QUERY_FIELDS = ("node", "resumeToken", "savedCursors", "streams", "allDrafts", "allComments")
MUTATION_FIELDS = ("removeCursor", "saveCursor")
SUBSCRIPTION_FIELDS = ("allDraftChanges", "allCommentChanges")
# The owner of what is there without any entity; no type has such a name.
_EVERY_API = ""

WRITES = (
    "create",
    "update",
    "replace",
    "delete",
    "restore",
    "propose",
    "proposeNew",
    "publish",
    "reject",
    "commentOn",
)

# Fields that an entity has in the API, and what they are. `id` is the model's to declare.
ENTITY_FIELDS = {
    "nodeId": "the id across all types",
    "version": "the document's version",
    "history": "the document's versions",
    "state": "one version of the document",
    "diff": "what changed between two versions",
    "blame": "who changed each field last",
    "drafts": "the proposed changes",
}
FILTER_WORDS = ("and", "or", "not")

CHANGE_FIELDS = frozenset(
    {
        "at",
        "author",
        "before",
        "changedFields",
        "comment",
        "diff",
        "documentId",
        "gap",
        "kind",
        "operation",
        "replayed",
        "resumeToken",
        "traceparent",
        "transition",
        "version",
    }
)
"""Fields of every change, beside the document under its singular name."""


def check_names(declarations: Declarations, report: Report) -> None:
    """Report every name of the model that the API takes or that two entities would share."""
    for type_ in declarations.types.values():
        owner = declarations.types.get(type_.member_of or "")
        for field in type_.fields.values():
            # A shared field is reported with its interface.
            if owner is None or field.name not in owner.fields:
                _check_field(type_, field)
    _check_types(declarations, report)
    _check_root_fields(declarations)


def _check_field(type_: TypeDeclaration, field: FieldDeclaration) -> None:
    name = field.name
    node = field.node.name
    keep = f'@stored(as: "{field.stored}")'
    other = f"{singular(type_)}{upper_first(name.lstrip('_'))}"
    mend = f"rename it: {other}: {field.type_text} {keep}"
    if name.startswith("__"):
        field.place.error(node, "names that begin with __ are reserved by GraphQL", mend)
    elif name == "_id":
        field.place.error(
            node,
            'caches of clients would confuse "_id" with "id"',
            'remove it: "id" is stored there' if type_.is_entity else mend,
        )
    elif type_.is_entity and name == "version":
        collection = type_.directives.one("collection")
        counted = collection.text("version") if collection else None
        field.place.error(
            node,
            '"version" is a field of the API: the document\'s version',
            "remove it; @collection(version:) names where it is stored"
            if field.stored == counted
            else mend,
        )
    elif type_.is_entity and name in ENTITY_FIELDS:
        field.place.error(node, f'"{name}" is a field of the API: {ENTITY_FIELDS[name]}', mend)
    elif name in FILTER_WORDS or (name == "exists" and not type_.is_entity):
        field.place.error(node, f'"{name}" is reserved for filters', mend)
    elif name in ("id", "nodeId") and not type_.is_entity:
        # Caches key on __typename and id: two versions of one embedded document would be taken for
        # the same (ADR 0001).
        if name == "id" and not field.directives.one("stored"):
            # Where Mongoose has made the ids of subdocuments, they lie there.
            mend += ', or @stored(as: "_id") if it is stored so, as by Mongoose'
        field.place.error(
            node,
            f'{type_.name} is embedded, and caches of clients would confuse its "{name}" '
            "with that of a document",
            f"{mend}; or make {type_.name} an entity with @collection",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A name that revstream makes for a type of the model."""

    name: str
    owner: str


def _made_types(declarations: Declarations) -> Iterator[_Made]:
    for type_ in declarations.types.values():
        for suffix in ENTITY_SUFFIXES if type_.is_entity else EMBEDDED_SUFFIXES:
            yield _Made(name=f"{type_.name}{suffix}", owner=type_.name)
        list_name = plural(type_)
        if type_.is_entity and list_name and _has_fence(type_):
            yield _Made(name=f"{type_.name}Event", owner=type_.name)
            yield _Made(name=f"{upper_first(list_name)}Applied", owner=type_.name)
    for name in declarations.enums:
        for suffix in ENUM_SUFFIXES:
            yield _Made(name=f"{name}{suffix}", owner=name)


def _check_types(declarations: Declarations, report: Report) -> None:
    nodes: dict[str, Node] = {
        **{name: each.node for name, each in declarations.types.items()},
        **declarations.enum_nodes,
    }
    fixed = FIXED_TYPES
    if any(declarations.kind(each) is Scalar.POINT for _, each in declarations.fields):
        fixed |= POINT_TYPES
    # A model that has a type Point of its own uses that one.
    scalars = {each.value for each in Scalar if each is not Scalar.POINT}
    refused: set[str] = set()
    for name, node in nodes.items():
        place = report.place(name)
        if name.startswith("__"):
            place.error(node, "names that begin with __ are reserved by GraphQL", "rename it")
        elif name in scalars:
            place.error(node, f'"{name}" is a scalar of the model language', "rename the type")
        elif name in fixed:
            place.error(
                node,
                f'"{name}" is reserved: every API has a type of this name',
                f'rename the type, for example "Shop{name}"',
            )
        else:
            continue
        refused.add(name)
    for made in _made_types(declarations):
        if made.owner in refused:
            continue
        if made.name in nodes:
            report.place(made.name).error(
                nodes[made.name],
                f'"{made.name}" is the name of a type that revstream creates for {made.owner}',
                "rename one of the two",
            )
            refused.add(made.name)
        elif made.name in fixed:
            report.place(made.owner).error(
                nodes[made.owner],
                f'revstream would create a type "{made.name}" for it, which every API already has',
                "rename the type",
            )


def _has_fence(type_: TypeDeclaration) -> bool:
    return any("fence" in each.directives for each in type_.fields.values())


def _root_fields(type_: TypeDeclaration) -> Iterator[tuple[str, str, bool]]:
    """Return (root type, field, whether it is made of the plural) for one entity."""
    one = singular(type_)
    many = plural(type_)
    if many == one:
        # Reported by `model.compiler.validation.collections`.
        return
    yield "Query", one, False
    yield "Query", f"{one}State", False
    yield "Query", f"{one}States", False
    yield "Query", f"{one}Version", False
    yield "Query", f"{one}Versions", False
    yield "Query", f"{one}VersionsAggregate", False
    yield "Query", f"{one}Drafts", False
    yield "Query", f"{one}Comments", False
    yield "Subscription", f"{one}Changes", False
    yield "Subscription", f"{one}DraftChanges", False
    yield "Subscription", f"{one}CommentChanges", False
    for verb in WRITES:
        yield "Mutation", f"{verb}{upper_first(type_.name)}", False
    if _has_fence(type_):
        yield "Mutation", f"apply{upper_first(type_.name)}", False
    if many:
        yield "Query", many, True
        yield "Query", f"{many}AsOf", True
        yield "Query", f"{many}Aggregate", True
    if many and _has_fence(type_):
        yield "Mutation", f"apply{upper_first(many)}", True


def _check_root_fields(declarations: Declarations) -> None:
    owners = {("Query", name): _EVERY_API for name in QUERY_FIELDS}
    owners.update({("Mutation", name): _EVERY_API for name in MUTATION_FIELDS})
    owners.update({("Subscription", name): _EVERY_API for name in SUBSCRIPTION_FIELDS})
    for type_ in declarations.entities:
        if type_.name in FIXED_TYPES:
            continue
        if singular(type_) in CHANGE_FIELDS:
            type_.place.error(
                type_.node,
                f'a change would have the field "{singular(type_)}" for it, '
                "which every change already has",
                f'rename the type, for example "Shop{type_.name}"',
            )
        for root, name, by_plural in _root_fields(type_):
            if (root, name) not in owners:
                owners[root, name] = type_.name
                continue
            owner = owners[root, name]
            others = {type_.name: "defined twice", _EVERY_API: "one that every API has"}
            directive = type_.directives.one("collection")
            type_.place.error(
                directive.at("plural") if directive and by_plural else type_.node,
                f'its root field "{name}" would be {others.get(owner, f"that of {owner} too")}',
                'name the list with @collection(plural: "…")'
                if by_plural
                else "rename one of the two",
            )
            # The names derived from the same word clash as well; one error is enough.
            break
