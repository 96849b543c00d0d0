"""Find the documents of a page that cannot be shown before one takes the whole page with it.

GraphQL answers a missing value of a non-null field with null for the object that has it, and in a
list of non-null objects that is null for the list. So a page leaves such documents out and says so
in the errors of the response. Looked at is what is selected, and it is judged as it will be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from bson import Decimal128, ObjectId
from graphql import GraphQLError

from gql.context import Context, ResolveInfo
from gql.generated import sure_of
from gql.records import CurrentDocument, EmbeddedDocument, VersionRecord
from gql.references import follow
from gql.selection import Nodes, Selections
from gql.shapes import Link, Shape
from model.entities import Field, Scalar
from resolvers.errors import DocumentMisfit
from resolvers.values import Convert, converter

__all__ = ["SURE", "fitting", "showable"]

SURE: Mapping[Scalar, type] = {
    Scalar.ID: str,
    Scalar.STRING: str,
    Scalar.BOOLEAN: bool,
    Scalar.DECIMAL: Decimal128,
    Scalar.DATETIME: datetime,
    Scalar.OBJECTID: ObjectId,
}
"""Values of exactly this class always fit: what is slow to convert is converted once only."""


@dataclass(frozen=True, slots=True)
class _Check:
    """A selected field that must have a value. `inside`: of the documents that it holds."""

    name: str
    stored: str
    sure: type | None
    convert: Convert
    inside: Callable[[], _Checks] | None
    items: bool


@dataclass(frozen=True, slots=True)
class _Checks:
    """What is asked of a document, or of one inside of it."""

    shape: Shape
    fields: Sequence[_Check]
    links: Sequence[tuple[Link, Nodes]]
    sure: Callable[[Callable[[str], Any]], bool] | None


_Demand = tuple[Link, CurrentDocument | EmbeddedDocument, Nodes]


async def fitting(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: Shape, nodes: Nodes
) -> list[bool]:
    """Which documents can be shown; of each other one the response gets an error at this field.

    Args:
        nodes: where the documents' fields are selected.
    """
    misfits = await _misfits(info, documents, shape, nodes)
    _name(info, misfits)
    return [misfit is None for misfit in misfits]


def showable(
    info: ResolveInfo, versions: Sequence[VersionRecord], shape: Shape, nodes: Nodes
) -> list[bool]:
    """The same of versions, of which nothing but the document's id must have a value."""
    asked = info.context.selections(info).under(nodes, shape.version)
    if _IDS.isdisjoint(asked):
        return [True] * len(versions)
    misfits: list[DocumentMisfit | None] = []
    for each in versions:
        try:
            each.document_id  # noqa: B018
            misfits.append(None)
        except DocumentMisfit as misfit:
            misfits.append(misfit)
    _name(info, misfits)
    return [misfit is None for misfit in misfits]


_IDS = frozenset({"documentId", "id", "nodeId"})


def _name(info: ResolveInfo, misfits: Iterable[DocumentMisfit | None]) -> None:
    """In the errors of the response."""
    info.context.problems.extend(
        GraphQLError(
            misfit.message,
            nodes=info.field_nodes,
            path=info.path.as_list(),
            original_error=misfit,
        )
        for misfit in misfits
        if misfit is not None
    )


async def _misfits(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: Shape, nodes: Nodes
) -> list[DocumentMisfit | None]:
    checks = _checks(info.context, info.context.selections(info), shape, nodes)
    found: list[DocumentMisfit | None] = [None] * len(documents)
    demands: list[tuple[int, _Demand]] = []
    for index, document in enumerate(documents):
        wanted: list[_Demand] = []
        try:
            _check(checks, document, wanted)
        except DocumentMisfit as misfit:
            found[index] = misfit
        else:
            demands += [(index, demand) for demand in wanted]
    if demands:
        # References that must lead somewhere. Execution follows them again, and reads nothing anew.
        answers = await asyncio.gather(*(_demanded(info, demand) for _, demand in demands))
        for (index, _), answer in zip(demands, answers, strict=True):
            found[index] = found[index] or answer
    return found


async def _demanded(info: ResolveInfo, demand: _Demand) -> DocumentMisfit | None:
    link, source, nodes = demand
    try:
        target = follow(link, source, info, nodes)
        if isinstance(target, Awaitable):
            target = await target
    except DocumentMisfit as misfit:
        return misfit
    assert isinstance(target, CurrentDocument)
    return (await _misfits(info, [target], link.target, nodes))[0]


def _checks(context: Context, selections: Selections, shape: Shape, nodes: Nodes) -> _Checks:
    fields: list[_Check] = []
    links: list[tuple[Link, Nodes]] = []
    required: list[Field] = []
    for name, places in selections.under(nodes, shape.name).items():
        member = shape.guarded.get(name)
        if member is not None and not context.scope.may_read(shape.type, member):
            # It is refused when it is read; what it holds is not for the errors of the response.
            continue
        link = shape.links.get(name)
        if link is not None and link.reference.required:
            links.append((link, places))
        field = shape.fields.get("id" if name == "nodeId" else name)
        if field is not None and field.required:
            fields.append(_check_of(context, selections, shape, field, places))
            required.append(field)
    return _Checks(shape, fields, links, sure_of(tuple(required)))


def _check_of(
    context: Context, selections: Selections, shape: Shape, field: Field, nodes: Nodes
) -> _Check:
    embedded = shape.embedded.get(field.name)
    # Made where a value is there: documents end somewhere, types that hold themselves do not.
    inside = (
        None if embedded is None else cache(lambda: _checks(context, selections, embedded, nodes))
    )
    return _Check(
        name=field.name,
        stored=field.stored,
        sure=None if field.is_list else _sure(field),
        convert=converter(field),
        # A list of items that may be null loses an item, and nothing else.
        inside=None if field.is_list and not field.item_required else inside,
        items=field.is_list,
    )


def _sure(field: Field) -> type | None:
    scalar = field.stored_scalar if field.type is Scalar.ID else field.type
    return SURE.get(scalar) if isinstance(scalar, Scalar) else None


def _check(
    checks: _Checks, source: CurrentDocument | EmbeddedDocument, demands: list[_Demand]
) -> None:
    """Raises:
    DocumentMisfit: a selected field that must have a value has none.
    """
    values, place = source.values, source.place
    fields = () if checks.sure is not None and checks.sure(values.get) else checks.fields
    for each in fields:
        value = values.get(each.stored)
        if value.__class__ is each.sure:
            continue
        shown = each.convert(value, place)
        if each.inside is None:
            continue
        inner = each.inside()
        items = enumerate(shown) if each.items else [(None, shown)]
        for index, item in items:
            name = each.name if index is None else f"{each.name}.{index}"
            _check(inner, EmbeddedDocument(inner.shape, item, place.inside(name), None), demands)
    demands += [(link, source, nodes) for link, nodes in checks.links]
