"""Reads of a collection with one document per version, unique by document id and number.

A row is such a stored document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bson import ObjectId, Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import DatabaseError, DuplicateKey, Unsuitable
from revstream.streams.layouts.core.stored_version import (
    LayoutFieldNames,
    StoredVersion,
    decode_element,
    encode_element,
    is_exact_id,
    logical_document,
    version_number,
    written_time,
)
from revstream.streams.mongo.database import COLLATION, Mongo
from revstream.streams.mongo.driver.codecs import RAW, Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.raw_bson.fields import (
    document_from_elements,
    find_element,
    iterate_elements,
    rename_element,
)
from revstream.streams.versioning.version import CHANGE_FIELD

__all__ = ["VersionRows"]

_CHUNK_BYTES = 16 * 1024 * 1024


class VersionRows:
    """Rows of one collection, read by their unique index.

    Args:
        own: Names of the layout's own fields, which documents do not have.
    """

    def __init__(
        self, mongo: Mongo, collection: str, names: LayoutFieldNames, own: Iterable[str]
    ) -> None:
        self.mongo = mongo
        self.collection = collection
        self.names = names
        self.unique = (names.document, names.number)
        self._own = frozenset(each.encode() for each in own)

    async def prepare(self) -> None:
        """Create the unique index, on which compare-and-swap rests.

        Raises:
            Unsuitable: It cannot be created.
        """
        keys = [(name, 1) for name in self.unique]
        try:
            await self.mongo.create_index(
                self.collection, keys, unique=True, collation={"locale": "simple"}
            )
        except (DatabaseError, DuplicateKey) as exc:
            # An index with another name or direction serves as well.
            if not await self._is_unique():
                raise Unsuitable(
                    f"{self.collection}: no unique index on {{{', '.join(self.unique)}}}, expected "
                    "one, without which two writers could create the same version; correct the "
                    f"reason: {exc.message}"
                ) from exc

    async def _is_unique(self) -> bool:
        return any(
            index.get("unique") and list(index["key"]) == list(self.unique)
            for index in await self.mongo.indexes(self.collection)
            if "partialFilterExpression" not in index
        )

    def to_version(self, row: RawBSONDocument) -> StoredVersion:
        """Return the version of a row; of a delta, with the delta's content."""
        fields = dict(iterate_elements(bytes(row.raw)))
        field = fields.get(self.names.document.encode(), encode_element("", None))
        deleted = row.get(self.names.deleted) is True
        content = logical_document(row, field, self.names.number, self._own)
        return StoredVersion(
            key=decode_element(field),
            number=version_number(row.get(self.names.number), field),
            content=None if deleted else content,
            change=row.get(CHANGE_FIELD) if deleted else None,
            wall=written_time(row, self.names.at),
        )

    def to_row(self, made: StoredVersion, **more: Any) -> RawBSONDocument:
        """Return the row of a version.

        Args:
            more: The layout's own fields.
        """
        names = self.names
        fields = [encode_element("_id", ObjectId())]
        if made.content is None:
            fields += [
                encode_element(names.document, made.key),
                encode_element(names.number, made.number),
            ]
            more = {**more, names.deleted: True}
            fields.append(encode_element(CHANGE_FIELD, made.change))
        for name, each in iterate_elements(bytes(made.content.raw)) if made.content else ():
            fields.append(rename_element(each, names.document) if name == b"_id" else each)
        fields += [encode_element(name, value) for name, value in more.items()]
        return RawBSONDocument(document_from_elements(fields), RAW)

    async def find_all(self, key: Any, *, at: Timestamp | None = None) -> list[RawBSONDocument]:
        """Return the rows of a document, the lowest number first."""
        query = {self.names.document: {"$eq": key}, self.names.number: {"$gte": 0}}
        sort = [(self.names.number, 1)]
        return await self.mongo.find(
            self.collection, query, FindOptions(sort=sort, at=at, raw=True)
        )

    async def last(self, key: Any) -> RawBSONDocument | None:
        query = {self.names.document: {"$eq": key}, self.names.number: {"$gte": 0}}
        sort = [(self.names.number, -1)]
        found = await self.mongo.find(
            self.collection, query, FindOptions(sort=sort, limit=1, raw=True)
        )
        return found[0] if found else None

    async def find_exact(self, wanted: Sequence[tuple[Any, int]]) -> list[RawBSONDocument]:
        """Return the rows with these ids and numbers, in no order."""
        numbers: dict[Any, tuple[Any, list[int]]] = {}
        for key, number in wanted:
            numbers.setdefault(identity(key), (key, []))[1].append(number)
        names = self.names
        queries = [
            {names.document: {"$eq": key}, names.number: {"$in": several}}
            for key, several in numbers.values()
        ]
        if not queries:
            return []
        return await self.mongo.find(self.collection, {"$or": queries}, FindOptions(raw=True))

    async def find_below(
        self,
        wanted: Sequence[tuple[Any, int]],
        *,
        match: Mapping[str, Any] | None = None,
        inclusive: bool = False,
    ) -> list[RawBSONDocument | None]:
        """Return for each (id, number) the row with the next lower number, None where there is
        none.

        Takes one round trip.

        Args:
            match: Additional condition.
            inclusive: Also accept the number itself.
        """
        if not wanted:
            return []
        rows = [{"n": n, "key": key, "v": number} for n, (key, number) in enumerate(wanted)]
        compared = "$lte" if inclusive else "$lt"
        pipeline: list[Document] = [
            # literal: an id such as "$name" is a value, not a field path
            {"$documents": {"$literal": rows}},
            {
                "$lookup": {
                    "from": self.collection,
                    "localField": "key",
                    "foreignField": self.names.document,
                    "let": {"v": "$v"},
                    "pipeline": [
                        {
                            "$match": {
                                **(match or {}),
                                "$expr": {compared: [f"${self.names.number}", "$$v"]},
                            }
                        },
                        {"$sort": {self.names.number: -1}},
                        {"$limit": 1},
                    ],
                    "as": "found",
                }
            },
            {"$unwind": "$found"},
            {"$project": {"n": 1, "found": 1}},
        ]
        found: list[RawBSONDocument | None] = [None] * len(rows)
        for each in await self.mongo.aggregate(None, pipeline, raw=True):
            found[each["n"]] = each["found"]
        return found

    async def before(self, wanted: Sequence[tuple[Any, int]]) -> list[StoredVersion | None]:
        """Return for each (id, number) the previous version."""
        found = await self.find_below(wanted)
        return [None if each is None else self.to_version(each) for each in found]

    async def read(
        self, after: tuple[Any] | None, *, size: int, at: Timestamp
    ) -> tuple[list[RawBSONDocument], bool]:
        """Return rows after an id in the order of id and number, and whether they are the last.

        They are about `size` rows, and all rows of each id.
        """
        field = self.names.document
        place = None if after is None else encode_element(field, after[0])
        while True:
            pipeline = [*self.in_order(place), {"$limit": size + 1}]
            found, end = await self.read_at(pipeline, size=size, at=at)
            if end or not found:
                return found, end
            if rows := trim_to_exact_id(found, field):
                break
            # No row here is a version.
            place = last_id_element(found, field)
        last = self.to_version(rows[-1]).key
        whole = [each for each in rows if identity(self.to_version(each).key) != identity(last)]
        return whole + await self.find_all(last, at=at), False

    def in_order(self, place: bytes | None) -> list[Document]:
        """Return stages that sort rows after an id by id and number.

        Lists are left out: they are in the index at their items, and are no ids.
        """
        names = self.names
        of_an_id = {"$expr": {"$not": [{"$isArray": f"${names.document}"}]}}
        return [
            *match_after(names.document, place),
            {"$match": {names.number: {"$gte": 0}, **of_an_id}},
            {"$sort": {names.document: 1, names.number: 1}},
        ]

    async def read_at(
        self, pipeline: Sequence[Document], *, size: int, at: Timestamp, collection: str = ""
    ) -> tuple[list[RawBSONDocument], bool]:
        """Return a pipeline's rows at a cluster time, and whether they are the last.

        Args:
            pipeline: Returns at most `size` + 1 rows.
        """
        command: Document = {
            "aggregate": collection or self.collection,
            "pipeline": list(pipeline),
            "cursor": {"batchSize": size + 1},
            "collation": COLLATION,
        }
        found, complete = await self.mongo.read_at(command, at, most_bytes=_CHUNK_BYTES)
        return found, complete and len(found) <= size


def trim_to_exact_id(rows: list[RawBSONDocument], field: str) -> list[RawBSONDocument]:
    """Return the rows up to the last one with an exact id, after which a caller can continue."""
    name = field.encode()
    end = len(rows)
    while end:
        element = find_element(bytes(rows[end - 1].raw), name)
        if element is None or is_exact_id(element):
            break
        end -= 1
    return rows[:end]


def last_id_element(rows: Sequence[RawBSONDocument], field: str) -> bytes:
    """Return the id element of the last row, exact or not, after which a scan continues."""
    return find_element(bytes(rows[-1].raw), field.encode()) or encode_element(field, None)


def match_after(field: str, place: bytes | None) -> list[Document]:
    """Return a stage that matches values after another one, of any type.

    In expressions all types are in one order, as in an index.

    Args:
        place: Element with that value.
    """
    if place is None:
        return []
    # As bytes: decoded, it might be another value.
    value = RawBSONDocument(document_from_elements([rename_element(place, "$literal")]), RAW)
    return [{"$match": {"$expr": {"$gt": [f"${field}", value]}}}]
