"""Read ahead what the documents of a page refer to, and their version numbers: one read for each
reference that is selected, however many documents, and nothing left to wait for in each of them.

What cannot be read ahead (an id that is none, a type that the caller may not read) is left to the
field, which says what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gql.context import ResolveInfo
from gql.records import CurrentDocument
from gql.selection import Nodes
from gql.shapes import Link, Shape
from resolvers.errors import DocumentMisfit
from resolvers.values import Convert, converter
from streams.errors import GatewayError
from streams.events import identity

__all__ = ["prefetch"]


async def prefetch(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: Shape, nodes: Nodes
) -> None:
    """Args:
    nodes: where the documents' fields are selected.
    """
    context = info.context
    if not documents:
        return
    needs = context.selections(info).needs(nodes, shape)
    reads = [
        _refer(info, documents, link, places)
        for name, link, places in needs.links
        if _readable(info, shape, name)
    ]
    if needs.version and not _numbered(info, documents, shape):
        reads.append(_number(info, documents, shape))
    if len(reads) == 1:
        await reads[0]
    elif reads:
        await asyncio.gather(*reads)


def _readable(info: ResolveInfo, shape: Shape, name: str) -> bool:
    member = shape.guarded.get(name)
    return member is None or info.context.scope.may_read(shape.type, member)


def _numbered(info: ResolveInfo, documents: Sequence[CurrentDocument], shape: Shape) -> bool:
    """Whether all numbers are known."""
    known = info.context.loads.known_numbers(shape.entity, [each.values for each in documents])
    for document, number in zip(documents, known, strict=True):
        document.number = number
    return None not in known


async def _number(info: ResolveInfo, documents: Sequence[CurrentDocument], shape: Shape) -> None:
    values = [each.values for each in documents]
    try:
        numbers = await info.context.loads.numbers(shape.entity, values)
    except GatewayError:
        return
    for document, number in zip(documents, numbers, strict=True):
        document.number = number


async def _refer(
    info: ResolveInfo, documents: Sequence[CurrentDocument], link: Link, nodes: Nodes
) -> None:
    context, target = info.context, link.target
    fields = context.selections(info).stored(nodes, target, target.name)
    known = context.known.setdefault((target.name, fields), {})
    wanted: dict[Any, Any] = {}
    convert, stored = converter(link.by, nullable=True), link.by.stored
    for document in documents:
        id_ = document.values.get(stored)
        if id_ is None:
            continue
        name = identity(id_)
        if name not in known and name not in wanted and _is_id(convert, id_, document):
            wanted[name] = id_
    if not wanted:
        return
    try:
        ids = list(wanted.values())
        if context.trusting:
            # What is read for a response that is made directly is read in one place only.
            found: Sequence[Any] = await context.current.by_ids(
                target.entity, ids, fields, shown=True
            )
        else:
            found = await context.loads.documents(target.entity, ids, fields)
    except GatewayError:
        return
    records = [None if each is None else CurrentDocument(target, each) for each in found]
    await prefetch(info, [each for each in records if each is not None], target, nodes)
    known.update(zip(wanted, records, strict=True))


def _is_id(convert: Convert, id_: Any, document: CurrentDocument) -> bool:
    try:
        convert(id_, document.place)
    except DocumentMisfit:
        return False
    return True
