"""Documents of a page that violate the model, detected before they turn the page into null.

A missing value of a non-null field makes its object null, and in a list of non-null objects the
whole list. So a page leaves such documents out, and the response has an error for each, at the path
of the field. Only selected fields are checked, by the conversion that reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from bson import Decimal128, ObjectId
from graphql import GraphQLError

from revstream.gql.engine.definitions.object_type import Link, ObjectTypeInfo
from revstream.gql.engine.definitions.value_tests import compile_validity_test
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.references import follow_reference
from revstream.gql.engine.request.selection import Nodes, Selections
from revstream.gql.engine.request.source import (
    CurrentDocument,
    EmbeddedDocument,
    SnapshotDocument,
    VersionRecord,
    member_misfit,
    not_archived_error,
)
from revstream.model.definition import Field, Scalar
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.pagination.page import Page
from revstream.resolvers.values.output import INT_LIMIT, Convert, ValueLocation, converter
from revstream.streams.core.errors import ArchiveBehind, GatewayError, ParallelLists

__all__ = ["VALID_CLASSES", "report_invalid_versions", "report_unordered", "without_invalid"]

VALID_CLASSES: Mapping[Scalar, type] = {
    Scalar.ID: str,
    Scalar.STRING: str,
    Scalar.BOOLEAN: bool,
    Scalar.DECIMAL: Decimal128,
    Scalar.DATETIME: datetime,
    Scalar.OBJECTID: ObjectId,
}
"""Classes whose values are always valid, so that a slow conversion is done only once."""


@dataclass(frozen=True, slots=True)
class _Check:
    """Check of a selected field that must have a value.

    Attributes:
        key: its response name.
        inside: checks of the embedded documents that it holds.
    """

    name: str
    key: str
    stored: str
    sure: type | None
    convert: Convert
    inside: Callable[[Any], _Checks] | None
    items: bool


@dataclass(frozen=True, slots=True)
class _Checks:
    """Checks of a document, or of an embedded document."""

    shape: ObjectTypeInfo
    fields: Sequence[_Check]
    links: Sequence[tuple[str, Link, Nodes]]
    sure: Callable[[Callable[[str], Any]], bool] | None


T = TypeVar("T")

_Path: TypeAlias = "tuple[str | int, ...]"
"""Path of a field below the document, in response names."""
_Misfit: TypeAlias = "tuple[_Path, DocumentMisfit | ArchiveBehind]"
_Demand: TypeAlias = "tuple[_Path, Link, CurrentDocument | EmbeddedDocument, Nodes]"


async def without_invalid(
    info: ResolveInfo,
    documents: Sequence[CurrentDocument],
    shape: ObjectTypeInfo,
    nodes: Nodes,
    *,
    paged: bool = True,
) -> list[bool]:
    """Return which documents are valid; the response gets an error for each other one.

    Args:
        nodes: selections of the documents.
        paged: the field is a connection, and not a list.
    """
    if not nodes:
        # A total, or cursors: no document is shown.
        return [True] * len(documents)
    misfits = await _misfits(info, documents, shape, nodes)
    _report(info, misfits, shape.name, paged=paged)
    return [misfit is None for misfit in misfits]


def report_invalid_versions(
    info: ResolveInfo, versions: Sequence[VersionRecord], shape: ObjectTypeInfo, nodes: Nodes
) -> list[bool]:
    """Return the same for versions, which need a valid document id, number and operation."""
    asked = info.context.selections(info).under(nodes, shape.version)
    named = next((each for name, each in asked.items() if name in _IDS), None)
    facts: list[tuple[Nodes, Callable[[VersionRecord], str]]] = []
    if named is not None:
        facts.append((named, attrgetter("document_id")))
    if "operation" in asked:
        facts.append((asked["operation"], attrgetter("operation")))
    misfits = [_first_misfit(each, facts) for each in versions]
    if "version" in asked:
        misfits = [
            _number_misfit(each.version.number, each.place, asked["version"]) or misfit
            for each, misfit in zip(versions, misfits, strict=True)
        ]
    _report(info, misfits, shape.version)
    return [misfit is None for misfit in misfits]


def report_invalid_snapshots(
    info: ResolveInfo,
    snapshots: Sequence[SnapshotDocument],
    shape: ObjectTypeInfo,
    nodes: Nodes,
    *,
    paged: bool = True,
) -> list[bool]:
    """Return the same for past documents, which need a valid id."""
    if not nodes:
        return [True] * len(snapshots)
    selections = info.context.selections(info)
    asked = [selections.under(nodes, each.snapshot) for each in shape.variants]
    named = [each[name] for each in asked for name in each if name in _IDS]
    facts = [(each, attrgetter("id_text")) for each in named[:1]]
    misfits: list[_Misfit | None] = []
    for each in snapshots:
        unknown = member_misfit(each)
        misfits.append(_first_misfit(each, facts) if unknown is None else ((), unknown))
    _report(info, misfits, shape.snapshot, paged=paged)
    return [misfit is None for misfit in misfits]


def _first_misfit(record: T, facts: Sequence[tuple[Nodes, Callable[[T], Any]]]) -> _Misfit | None:
    """Return the first fact of a record that is not valid.

    Args:
        facts: the selection of each, and its reader.
    """
    for place, read in facts:
        try:
            read(record)
        except DocumentMisfit as exc:
            return (_key(place),), exc
    return None


def _number_misfit(number: int, place: ValueLocation, nodes: Nodes) -> _Misfit | None:
    return None if number < INT_LIMIT else ((_key(nodes),), place.misfit("version", number, "Int"))


def report_unordered(info: ResolveInfo, page: Page[Any]) -> None:
    """Add an error to the response for documents that have no position in a page's order."""
    for kind in page.unordered:
        misfit = ParallelLists(
            f"documents with {kind}: MongoDB cannot sort them, so they are left out; store one "
            "short value in each of these fields",
            leftOut=True,
        )
        info.context.problems.append(
            GraphQLError(
                misfit.message,
                nodes=info.field_nodes,
                path=info.path.as_list(),
                original_error=misfit,
            )
        )


_IDS = frozenset({"documentId", "id", "nodeId"})


def _report(
    info: ResolveInfo, misfits: Iterable[_Misfit | None], item: str, *, paged: bool = True
) -> None:
    """Add the errors of documents that are left out to the response.

    The path is that of the field, as for each field that became null.

    Args:
        item: the name of the items' type.
    """
    problems = [(index, each) for index, each in enumerate(misfits) if each is not None]
    if not problems:
        return
    before, after = _place_of_items(info, item) if paged else ((), ())
    for index, (path, misfit) in problems:
        misfit.facts["leftOut"] = True
        info.context.problems.append(
            GraphQLError(
                misfit.message,
                nodes=info.field_nodes,
                path=[*info.path.as_list(), *before, index, *after, *path],
                original_error=misfit,
            )
        )


def _place_of_items(info: ResolveInfo, item: str) -> tuple[_Path, _Path]:
    """Return the path to a connection's items, before and after their index."""
    selections = info.context.selections(info)
    selected = selections.under(info.field_nodes, f"{item}Connection")
    if "nodes" in selected:
        return (_key(selected["nodes"]),), ()
    edges = selected["edges"]
    return (_key(edges),), (_key(selections.under(edges, f"{item}Edge")["node"]),)


def _key(nodes: Nodes) -> str:
    alias = nodes[0].alias
    return nodes[0].name.value if alias is None else alias.value


async def _misfits(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: ObjectTypeInfo, nodes: Nodes
) -> list[_Misfit | None]:
    selections = info.context.selections(info)
    checks = cache(lambda each: _checks(info.context, selections, each, nodes))
    numbered = None
    if shape.is_entity:
        selected = (selections.under(nodes, each.name).get("version") for each in shape.variants)
        numbered = next(filter(None, selected), None)
    found: list[_Misfit | None] = [None] * len(documents)
    if numbered is not None:
        found = await _unnumbered(info, documents, shape, numbered)
        # Numbers that were read ahead.
        known = info.context.loads.known_numbers(shape.entity, [d.values for d in documents])
        for index, (number, document) in enumerate(zip(known, documents, strict=True)):
            if number is not None:
                found[index] = _number_misfit(number, document.place, numbered)
    demands: list[tuple[int, _Demand]] = []
    for index, document in enumerate(documents):
        wanted: list[_Demand] = []
        misfit = member_misfit(document)
        if misfit is not None:
            found[index] = (), misfit
            continue
        of_type = checks(shape.variant(document.values))
        found[index] = found[index] or _check(of_type, document, wanted, ())
        if found[index] is None:
            demands += [(index, demand) for demand in wanted]
    if demands:
        # Required references. Execution follows them again without a second read.
        answers = await asyncio.gather(*(_demanded(info, demand) for _, demand in demands))
        for (index, _), answer in zip(demands, answers, strict=True):
            found[index] = found[index] or answer
    return found


async def _unnumbered(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: ObjectTypeInfo, nodes: Nodes
) -> list[_Misfit | None]:
    """Return the errors of documents without a number; a failed read is left to the field."""
    found: list[_Misfit | None] = [None] * len(documents)
    lacking = [index for index, each in enumerate(documents) if each.number is None]
    if lacking:
        with suppress(GatewayError):
            values = [documents[index].values for index in lacking]
            numbers = await info.context.loads.numbers(shape.entity, values)
            for index, number in zip(lacking, numbers, strict=True):
                if number is None:
                    found[index] = (_key(nodes),), not_archived_error(documents[index])
    return found


async def _demanded(info: ResolveInfo, demand: _Demand) -> _Misfit | None:
    path, link, source, nodes = demand
    try:
        target = follow_reference(link, source, info, nodes)
        if isinstance(target, Awaitable):
            target = await target
    except DocumentMisfit as misfit:
        return path, misfit
    assert isinstance(target, CurrentDocument)
    [inner] = await _misfits(info, [target], link.target, nodes)
    return None if inner is None else ((*path, *inner[0]), inner[1])


def _checks(
    context: RequestContext, selections: Selections, shape: ObjectTypeInfo, nodes: Nodes
) -> _Checks:
    fields: list[_Check] = []
    links: list[tuple[str, Link, Nodes]] = []
    required: list[Field] = []
    for name, places in selections.under(nodes, shape.name).items():
        member = shape.guarded.get(name)
        if member is not None and not context.scope.may_read(shape.type, member):
            # Reading it is refused later; an error here would reveal its value.
            continue
        link = shape.links.get(name)
        if link is not None and link.reference.required:
            links.append((_key(places), link, places))
        field = shape.fields.get(name)
        if field is None and name in _IDS:
            field = shape.entity.id
        if field is not None and field.required:
            fields.append(_check_of(context, selections, shape, field, places))
            required.append(field)
    return _Checks(shape, fields, links, compile_validity_test(tuple(required)))


def _check_of(
    context: RequestContext,
    selections: Selections,
    shape: ObjectTypeInfo,
    field: Field,
    nodes: Nodes,
) -> _Check:
    embedded = shape.embedded.get(field.name)
    # Created for existing values only: documents are finite, recursive types are not.
    checks = cache(lambda inner: _checks(context, selections, inner, nodes))
    return _Check(
        name=field.name,
        key=_key(nodes),
        stored=field.stored,
        sure=None if field.is_list else _sure(field),
        convert=converter(field),
        # In a list of nullable items only the item becomes null.
        inside=None
        if embedded is None or (field.is_list and not field.item_required)
        else lambda value: checks(embedded.variant(value)),
        items=field.is_list,
    )


def _sure(field: Field) -> type | None:
    scalar = field.stored_scalar if field.type is Scalar.ID else field.type
    return VALID_CLASSES.get(scalar) if isinstance(scalar, Scalar) else None


def _check(
    checks: _Checks,
    source: CurrentDocument | EmbeddedDocument,
    demands: list[_Demand],
    path: _Path,
) -> _Misfit | None:
    """Return the error of the first selected field that must have a value and has none.

    Args:
        demands: collects the references that must exist.
        path: path from the page's document to this one.
    """
    values, place = source.values, source.place
    fields = () if checks.sure is not None and checks.sure(values.get) else checks.fields
    for each in fields:
        value = values.get(each.stored)
        if value.__class__ is each.sure:
            continue
        try:
            shown = each.convert(value, place)
        except DocumentMisfit as misfit:
            return (*path, each.key), misfit
        if each.inside is None:
            continue
        items = enumerate(shown) if each.items else [(None, shown)]
        for index, item in items:
            name = each.name if index is None else f"{each.name}.{index}"
            here = (*path, each.key) if index is None else (*path, each.key, index)
            inner = each.inside(item)
            inside = EmbeddedDocument(inner.shape, item, place.inside(name), None)
            found = _check(inner, inside, demands, here)
            if found is not None:
                return found
    demands += [((*path, key), link, source, nodes) for key, link, nodes in checks.links]
    return None
