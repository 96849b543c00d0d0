"""Orders by values outside of a document: a field of a referenced document, the number of documents
that refer to it, or the distance of its point from another one.

The documents that match are read with what the order needs of them, at most `MOST_ORDERED`. Their
related values are read next, with the caller's rows. MongoDB sorts both together, as it would sort
documents that held the values. Only then are the documents of the page read.

Source: docs/decisions/0054-related-orders.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import bson
from bson.timestamp import Timestamp

from revstream.model.definition import Entity, Field
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.order_by import (
    CountKey,
    DistanceKey,
    Order,
    ReferenceKey,
    order_keys,
    related_keys,
)
from revstream.resolvers.pagination.page import SORT_KEY, Page, PageRequest, Window
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.values.field_path import value_at
from revstream.resolvers.values.points import distance, stored_coordinates
from revstream.resolvers.values.reference_ids import check_id_bytes
from revstream.streams.changefeed.event import identity
from revstream.streams.core.operation import count_computed
from revstream.streams.layouts.core.sort_key import sort_key_expressions
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, Document

__all__ = ["MOST_ORDERED", "RelatedOrder", "RelatedReads", "Row", "page_of_items"]

T = TypeVar("T")
W = TypeVar("W")

MOST_ORDERED = 10_000
"""Documents that are ordered by related values. Each is read, for every page."""

_MOST_BYTES = 8 * 1024 * 1024
"""Values that are given to the server to sort; a command may have 16 MB."""

_MOST_ITEMS = 100_000
"""Ids in the lists of the documents, each time that they occur: looking at them takes 0.1 s."""

_PORTION = 500
"""Rows that are prepared without letting other tasks run: about 3 ms."""

_CONTENT = "full."


@dataclass(slots=True)
class Row:
    """Document to order.

    Attributes:
        at: the cluster time of its related values; None for the present.
        content: the fields that its order needs.
        related: related documents and counts, by the API names that lead to them.
    """

    id: Any
    at: Timestamp | None
    content: Mapping[str, Any]
    related: Document = field(default_factory=dict)


class RelatedReads(Protocol):
    """Reads of the other side of relations, limited to the rows of the caller."""

    async def referenced(
        self,
        target: Entity,
        wanted: Sequence[tuple[Any, Timestamp | None]],
        fields: frozenset[str],
    ) -> Sequence[Mapping[str, Any] | None]:
        """N (id, cluster time) -> for each the document with these fields; None for none."""

    async def referring(
        self, target: Entity, by: Field, wanted: Sequence[tuple[Any, Timestamp | None]]
    ) -> Sequence[int]:
        """N (id, cluster time) -> for each the number of documents whose field holds the id."""


class RelatedOrder:
    """Order of one list by related values.

    Args:
        kind: the name of the list, part of its cursors.

    Attributes:
        numbering: the order of reads of its documents, whose order does not matter: by version
            number, if that is one of the keys, so that they are read with the number that is shown.
    """

    def __init__(self, entity: Entity, order: Order, request: PageRequest, kind: str) -> None:
        self._entity = entity
        self._related = related_keys(order)
        version = None if entity.version is None else f"{_CONTENT}{entity.version}"
        keys = order_keys(entity, order, version_path=version, prefix=_CONTENT)
        distances = [each for each in self._related if isinstance(each, DistanceKey)]
        # A cursor holds distances from these points.
        kind += "".join(f" {each.place} {each.origin}" for each in distances)
        self._window = Window(Keyset(kind, keys), request)
        own = {path.removeprefix(_CONTENT) for path, _ in keys if path.startswith(_CONTENT)}
        by = {key.by for key in self._related if key.by != "_id"}
        self._fields = frozenset(own | by)
        self.numbering: Order | None = [("version", "ASC")] if entity.version in own else None
        self._names = frozenset(path.split(".")[0] for path in own)

    def rows_query(self, where: W | None) -> PageQuery[W]:
        """Return the query of the documents to order."""
        return PageQuery(
            where=where,
            order=self.numbering,
            page=PageRequest(first=MOST_ORDERED + 1),
            fields=self._fields,
            facts=frozenset(),
            most=MOST_ORDERED + 1,
            for_output=True,
        )

    def _check_count(self, count: int) -> None:
        """Check the number of documents to order.

        Raises:
            LimitExceeded: it is above the maximum.
        """
        if count > MOST_ORDERED:
            names = ", ".join(each.name for each in self._related)
            mend = "add conditions, or order by fields of the document"
            if not all(isinstance(each, DistanceKey) for each in self._related):
                mend += ": @copy keeps a copy of a field of a referenced one"
            raise LimitExceeded(
                f"{self._entity.name}: more than {MOST_ORDERED:,} documents match, which is the "
                f"maximum of an order by {names}; {mend}",
                limit="documents ordered by related values",
                asked=count,
                bound=MOST_ORDERED,
            )

    async def pages(
        self, mongo: Mongo, reads: RelatedReads, groups: Sequence[Sequence[Row]]
    ) -> list[Page[Row]]:
        """Return a page of each group of rows.

        Raises:
            LimitExceeded: too many rows, or values that are too large together.
        """
        rows = [row for group in groups for row in group]
        self._check_count(len(rows))
        if not rows:
            return [Page(items=[], cursors=[], total=0) for _ in groups]
        for place in dict.fromkeys(key.place for key in self._related):
            there = [key for key in self._related if key.place == place]
            keys = [key for key in there if not isinstance(key, DistanceKey)]
            if isinstance(there[0], DistanceKey):
                await _measure(there[0], rows)
            elif isinstance(keys[0], CountKey) and keys[0].field is None:
                await self._count_listed(reads, keys[0], rows)
            else:
                await _relate(reads, keys, rows)
        window = self._window
        given = await self._documents(rows)
        limit = [{"$limit": window.limit}] if len(groups) == 1 else []

        async def read(beside: Mapping[str, Any]) -> list[Document]:
            stages: list[Mapping[str, Any]] = [
                # literal: values such as "$name" are no field paths
                {"$documents": {"$literal": given}},
                {"$match": {"$and": [each for each in (window.query, beside) if each] or [{}]}},
                {"$sort": window.sort},
                *limit,
                {"$project": {"n": 1, SORT_KEY: sort_key_expressions(window.keys)}},
            ]
            return await mongo.aggregate(None, stages, in_memory=True)

        found, unordered = await window.read(read)
        owners = [n for n, group in enumerate(groups) for _ in group]
        ordered: list[list[Document]] = [[] for _ in groups]
        for each in found:
            own = ordered[owners[each["n"]]]
            if len(own) < window.limit:
                own.append({**given[each["n"]], SORT_KEY: each[SORT_KEY]})
        return [
            window.page(each, lambda row: rows[row["n"]], total=len(group), unordered=unordered)
            for each, group in zip(ordered, groups, strict=True)
        ]

    async def _count_listed(self, reads: RelatedReads, key: CountKey, rows: Sequence[Row]) -> None:
        """Count the documents of the lists of ids, and store the numbers in the rows.

        Raises:
            LimitExceeded: the lists have too many ids together.
        """
        lists = [each if isinstance(each := _value(row, key.by), list) else [] for row in rows]
        # Ids may recur, in other lists and in the same one.
        self._check_ids(key, sum(map(len, lists)), _MOST_ITEMS)
        wanted = {
            (identity(id_), row.at): (id_, row.at)
            for ids, row in zip(lists, rows, strict=True)
            for id_ in ids
            if id_ is not None and not isinstance(id_, list)
        }
        self._check_ids(key, len(wanted), MOST_ORDERED)
        check_id_bytes(key.target, [id_ for id_, _ in wanted.values()])
        found = await reads.referenced(key.target, [*wanted.values()], frozenset())
        there = {name for name, each in zip(wanted, found, strict=True) if each is not None}
        for ids, row in zip(lists, rows, strict=True):
            _store(row, key.place, sum((identity(id_), row.at) in there for id_ in ids))

    def _check_ids(self, key: CountKey, count: int, most: int) -> None:
        """Check a number of ids in lists.

        Raises:
            LimitExceeded: it is above the maximum.
        """
        if count > most:
            raise LimitExceeded(
                f"{self._entity.name}: {count:,} ids, maximum of an order by {key.name} is "
                f"{most:,}; add conditions",
                limit="documents ordered by related values",
                asked=count,
                bound=most,
            )

    async def _documents(self, rows: Sequence[Row]) -> list[Document]:
        """Return the rows as documents to sort.

        Raises:
            LimitExceeded: they are too large together.
        """
        made: list[Document] = []
        size = counted = 0
        for n, row in enumerate(rows):
            content = {name: row.content[name] for name in self._names if name in row.content}
            document = {"n": n, "_id": row.id, "full": content, "to": row.related}
            size += len(bson.encode(document, codec_options=DECODED))
            if size > _MOST_BYTES:
                raise LimitExceeded(
                    f"{self._entity.name}: more than {_MOST_BYTES:,} bytes of values to order by, "
                    "which is the maximum; add conditions, or order by fields with shorter values",
                    limit="memory",
                    bound=_MOST_BYTES,
                )
            made.append(document)
            if n % _PORTION == 0:
                await count_computed(size - counted, _PORTION)
                counted = size
                await asyncio.sleep(0)
        return made


def page_of_items(
    page: Page[Row], items: Mapping[Any, T], *, total: bool, token: str | None = None
) -> Page[T]:
    """Return a page with the items of its rows, without those that are gone meanwhile.

    Args:
        items: by `identity` of the row's id.
        total: True to keep the total.
        token: the resume token of the page.
    """
    names = [identity(row.id) for row in page.items]
    kept = [n for n, name in enumerate(names) if name in items]
    cursors = page.cursors
    return Page(
        items=[items[names[n]] for n in kept],
        cursors=cursors if len(kept) == len(names) else [cursors[n] for n in kept],
        has_next=page.has_next,
        has_previous=page.has_previous,
        total=page.total if total else None,
        token=token,
        unordered=page.unordered,
    )


async def _relate(
    reads: RelatedReads, keys: Sequence[ReferenceKey | CountKey], rows: Sequence[Row]
) -> None:
    """Read the values of the keys of one relation, and store them in the rows.

    Raises:
        LimitExceeded: the ids are too large together.
    """
    key = keys[0]
    ids = [_value(row, key.by) for row in rows]
    names = [(identity(id_), row.at) for id_, row in zip(ids, rows, strict=True)]
    # A list in place of an id leads nowhere, as does null.
    wanted = {
        name: (id_, row.at)
        for name, id_, row in zip(names, ids, rows, strict=True)
        if id_ is not None and not isinstance(id_, list)
    }
    check_id_bytes(key.target, [id_ for id_, _ in wanted.values()])
    found: Sequence[Any]
    if isinstance(key, CountKey):
        assert key.field is not None
        found = await reads.referring(key.target, key.field, [*wanted.values()])
    else:
        fields = frozenset(each.path for each in keys if isinstance(each, ReferenceKey))
        found = await reads.referenced(key.target, [*wanted.values()], fields)
    values = dict(zip(wanted, found, strict=True))
    await asyncio.sleep(0)
    for name, row in zip(names, rows, strict=True):
        value = values.get(name)
        if value is not None:
            _store(row, key.place, value)


async def _measure(key: DistanceKey, rows: Sequence[Row]) -> None:
    """Store the distances in the rows; none for a value that is no point."""
    for n, row in enumerate(rows):
        place = stored_coordinates(_value(row, key.by))
        if place is not None:
            _store(row, key.place, distance(key.origin, place))
        if n % _PORTION == 0:
            await asyncio.sleep(0)


def _store(row: Row, place: str, value: Any) -> None:
    *outer, last = place.split(".")
    inner = row.related
    for name in outer:
        inner = inner.setdefault(name, {})
    inner[last] = value


def _value(row: Row, path: str) -> Any:
    return row.id if path == "_id" else value_at(row.content, path)
