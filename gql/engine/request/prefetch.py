"""Reads of references and version numbers of a page's documents, before their fields run.

There is one read per selected reference, however many documents. A read that fails (an invalid id,
a type that the caller may not read) is left to the field, which reports the error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from revstream.gql.engine.definitions.field import IdOnlyField
from revstream.gql.engine.definitions.object_type import Link, ObjectTypeInfo
from revstream.gql.engine.request.context import RequestContext, ResolveInfo
from revstream.gql.engine.request.references import referenced_ids
from revstream.gql.engine.request.selection import Nodes
from revstream.gql.engine.request.source import CurrentDocument
from revstream.streams.core.errors import GatewayError
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["id_only_reads", "prefetch"]


async def prefetch(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: ObjectTypeInfo, nodes: Nodes
) -> None:
    """Read the references and version numbers of documents.

    Args:
        nodes: selections of the documents.
    """
    context = info.context
    if not documents:
        return
    needs = context.selections(info).needs(nodes, shape)
    reads: list[Awaitable[None]] = [
        _refer(info, documents, link, places)
        for name, link, places in needs.links
        if _readable(info, shape, name)
    ]
    if context.assumes_valid:
        reads += id_only_reads(context, [each.values for each in documents], needs.id_only)
    if needs.version and not _numbered(info, documents, shape):
        reads.append(_number(info, documents, shape))
    if len(reads) == 1:
        await reads[0]
    elif reads:
        await asyncio.gather(*reads)


def id_only_reads(
    context: RequestContext, documents: Sequence[Document], fields: Sequence[IdOnlyField]
) -> list[Awaitable[None]]:
    """Return the reads of fields that need only the documents' `_id`, and were not read yet."""
    reads: list[Awaitable[None]] = []
    for field in fields:
        ids = [each["_id"] for each in documents]
        wanted = [each for each in ids if context.prefetched(field.nodes, each) is None]
        if wanted:
            reads.append(_read(context, field, wanted))
    return reads


async def _read(context: RequestContext, field: IdOnlyField, ids: Sequence[Any]) -> None:
    context.keep_prefetched(field.nodes, ids, await field.read(context, ids))


def _readable(info: ResolveInfo, shape: ObjectTypeInfo, name: str) -> bool:
    member = shape.guarded.get(name)
    return member is None or info.context.scope.may_read(shape.type, member)


def _numbered(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: ObjectTypeInfo
) -> bool:
    """Set the known version numbers, and return whether all are known."""
    known = info.context.loads.known_numbers(shape.entity, [each.values for each in documents])
    for document, number in zip(documents, known, strict=True):
        document.number = number
    return None not in known


async def _number(
    info: ResolveInfo, documents: Sequence[CurrentDocument], shape: ObjectTypeInfo
) -> None:
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
    named = referenced_ids(link, [each.values for each in documents])
    wanted = {name: id_ for name, id_ in named.items() if name not in known}
    if not wanted:
        return
    try:
        ids = list(wanted.values())
        if context.assumes_valid:
            # A compiled query reads each document at one place only, without the loaders.
            found: Sequence[Any] = await context.services.current.by_ids(
                target.entity, ids, fields, for_output=True
            )
        else:
            found = await context.loads.documents(target.entity, ids, fields)
    except GatewayError:
        return
    records = [None if each is None else CurrentDocument(target, each) for each in found]
    await prefetch(info, [each for each in records if each is not None], target, nodes)
    known.update(zip(wanted, records, strict=True))
