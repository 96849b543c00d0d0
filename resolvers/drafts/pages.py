"""Pages of drafts and comments, of one document, one type or several types in one order.

The order is that of creation: records have ObjectIds, made one after the other, and unique over
all collections.
"""

from __future__ import annotations

import heapq
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Generic, Literal, TypeVar

from revstream.model.definition import Entity, EnumType, Field, Model, Scalar
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.filters.parser import Condition, parse_where
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.page import Page, PageRequest, Window
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions

__all__ = [
    "DRAFT_STATUS",
    "Judge",
    "RecordFilter",
    "RecordSource",
    "draft_condition",
    "draft_query",
    "read_page",
]

DRAFT_STATUS = EnumType(name="DraftStatus", values=("PROPOSED", "PUBLISHED", "REJECTED"))

T = TypeVar("T")
Judge = Callable[[Sequence[T]], Awaitable[Sequence[bool]]]
"""n drafts or comments -> whether the caller may see each."""

_PORTION = 200
_FEWEST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSource(Generic[T]):
    """Drafts or comments of one entity, in one collection.

    Args:
        parse: returns None for a record that is none, which is left out.
        judge: None where the caller may see all that the query finds.
    """

    entity: Entity
    collection: str
    query: Mapping[str, Any]
    parse: Callable[[Entity, Document], T | None]
    projection: Mapping[str, Any] | None = None
    judge: Judge[T] | None = None


RecordFilter = Literal["DraftWhere", "CommentWhere"]


def draft_query(
    model: Model, name: RecordFilter, where: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Translate a DraftWhere or CommentWhere to a query over records.

    Raises:
        BadUserInput: a field, operator or value that is none; names it.
    """
    return to_query(draft_condition(model, name, where)) if where else {}


def draft_condition(model: Model, name: RecordFilter, where: Mapping[str, Any]) -> Condition:
    """Translate a DraftWhere or CommentWhere to a condition on records.

    Raises:
        BadUserInput: a field, operator or value that is none; names it.
    """
    fields = [
        Field(name="author", stored="by", type=Scalar.STRING),
        Field(name="at", stored="at", type=Scalar.DATETIME),
    ]
    if name == "DraftWhere":
        fields.append(Field(name="status", stored="status", type=DRAFT_STATUS))
    # As if the records were modelled, for the one filter language.
    records = Entity(
        name=name,
        fields=tuple(fields),
        collection=name,
        singular=name,
        plural=f"{name}s",
        version=None,
    )
    return parse_where(model, records, where)


async def read_page(
    mongo: Mongo,
    kind: str,
    sources: Sequence[RecordSource[T]],
    request: PageRequest,
    *,
    newest_first: bool,
    total: bool,
) -> Page[tuple[Entity, T]]:
    """Read one page over all sources.

    Costs one read of at most a page for each source, and further ones where records are left out;
    `total` reads all records where there is a judge, else it counts those that are none, too.

    Args:
        kind: what is paged, for cursors: those of another kind are refused.
    """
    keyset = Keyset(kind, (("_id", -1 if newest_first else 1),), uniform=True)
    window = Window(keyset, request)
    found: list[Document] = []
    for source in sources:
        found += await _first(mongo, source, window)
    ((_, direction),) = window.keys
    pick = heapq.nlargest if direction < 0 else heapq.nsmallest
    rows = pick(window.limit, found, key=itemgetter("_id"))
    count = None
    if total:
        whole = window.unbounded()
        count = sum([await _count(mongo, each, whole) for each in sources])
    return window.page(rows, itemgetter(_ITEM), total=count)


_ITEM = "item"
# Others have no place in the order of creation.
_CREATED = {"_id": {"$type": "objectId"}}


async def _first(mongo: Mongo, source: RecordSource[T], window: Window) -> list[Document]:
    rows: list[Document] = []
    async with aclosing(
        _visible_rows(mongo, source, window, max(window.limit, _FEWEST))
    ) as portions:
        async for portion in portions:
            rows += portion
            if len(rows) >= window.limit:
                break
    return rows[: window.limit]


async def _count(mongo: Mongo, source: RecordSource[T], window: Window) -> int:
    if source.judge is None:
        return await mongo.count(source.collection, {"$and": [_CREATED, source.query]})
    count = 0
    async with aclosing(_visible_rows(mongo, source, window, _PORTION)) as portions:
        async for portion in portions:
            count += len(portion)
    return count


async def _visible_rows(
    mongo: Mongo, source: RecordSource[T], window: Window, size: int
) -> AsyncGenerator[list[Document]]:
    """Yield what the caller may see, one read after the other: rows with `_id` and item.

    Args:
        size: of the first read.
    """
    place: Mapping[str, Any] = window.query
    while True:
        found = await mongo.find(
            source.collection,
            {"$and": [_CREATED, source.query, place]},
            FindOptions(projection=source.projection, sort=list(window.sort.items()), limit=size),
        )
        parsed = [(each["_id"], source.parse(source.entity, each)) for each in found]
        items = [(id_, item) for id_, item in parsed if item is not None]
        if source.judge is not None and items:
            seen = await source.judge([item for _, item in items])
            items = [each for each, allowed in zip(items, seen, strict=True) if allowed]
        yield [{"_id": id_, _ITEM: (source.entity, item)} for id_, item in items]
        if len(found) < size:
            return
        place = window.query_after(found[-1])
        size = _PORTION
