"""EMBEDDED layout: a document `{_id, current: {v, …}, prev: [{v, …}, …]}` holds all its versions.

A write is one atomic operation, compared by the number of the current state, so there is nothing to
recover. All versions together must fit into the 16 MB of a document: a version that would not is
refused with the sizes (`VersionTooLarge`). A deletion is a current state of its own; removing the
stored document removes its history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.layouts.core.query_rewrite import rewrite_query
from revstream.streams.layouts.core.snapshot_scan import (
    position_after_key,
    position_after_last,
    read_documents,
)
from revstream.streams.layouts.core.stored_version import (
    ABOVE_ALL,
    ConcurrentWrite,
    LogicalWrite,
    StoredVersion,
    VersionTooLarge,
    decode_element,
    encode_element,
    logical_document,
    version_number,
    whole_number,
    written_time,
)
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout, Stages
from revstream.streams.mongo.driver.codecs import RAW, Document
from revstream.streams.mongo.find_options import NO_OPTIONS, FindOptions
from revstream.streams.mongo.transactions import WriteSession
from revstream.streams.raw_bson.fields import document_from_elements, iterate_elements
from revstream.streams.versioning.version import CHANGE_FIELD

__all__ = ["EmbeddedLayout"]

# BSON type of an object.
_OBJECT = 0x03
_MOST_BYTES = 16 * 1024 * 1024
# BSON around a state in the list: type, index, length.
_AROUND_BYTES = 64
# Maximum number of documents per read: each contains its whole history.
_READ_MOST = 200


class EmbeddedLayout(SelfVersionedLayout):
    """Layout with all versions of a document inside it."""

    def index_fields(self, fields: Sequence[str]) -> tuple[list[str], Document] | None:
        return [self._renamed(each) for each in fields], {}

    def document_path(self, path: str) -> str:
        return path.removeprefix(f"{self.names.current}.")

    def _renamed(self, path: str) -> str:
        return path if path.partition(".")[0] == "_id" else f"{self.names.current}.{path}"

    # the present

    def current_stages(
        self,
        query: Mapping[str, Any],
        options: FindOptions = NO_OPTIONS,
    ) -> Stages:
        early, exact = rewrite_query(query, self._renamed)
        stages: Stages = [{"$match": {"$and": [self._there, early]} if early else self._there}]
        if options.sort:
            stages.append({"$sort": {self._renamed(path): order for path, order in options.sort}})
        if options.limit and exact:
            stages.append({"$limit": options.limit})
        stages += self._documents()
        if not exact:
            stages.append({"$match": query})
            if options.limit:
                stages.append({"$limit": options.limit})
        return stages

    @property
    def _there(self) -> Document:
        return {f"{self.names.current}.{self.names.deleted}": {"$ne": True}}

    def _documents(self) -> Stages:
        return [
            {"$replaceWith": {"$mergeObjects": [f"${self.names.current}", {"_id": "$_id"}]}},
            {"$unset": self.names.deleted},
        ]

    def lookup_stages(self, field: str) -> tuple[Document, list[Document]]:
        lookup = {"from": self.collection, "localField": "key"}
        lookup["foreignField"] = self._renamed(field)
        return lookup, [{"$match": self._there}, *self._documents()]

    # the past

    def _all(self, document: RawBSONDocument) -> list[StoredVersion]:
        """Return all versions in a stored document, the oldest first."""
        fields = dict(iterate_elements(bytes(document.raw)))
        previous = document.get(self.names.previous)
        bodies = list(previous) if isinstance(previous, list) else []
        bodies.append(_embedded_document(fields.get(self.names.current.encode())))
        found = {
            kept.number: kept
            for body in bodies
            if isinstance(body, RawBSONDocument)
            if (kept := self._state(body, fields[b"_id"])).number is not None
        }
        return [found[number] for number in sorted(found, key=lambda each: each or 0)]

    def _state(self, body: RawBSONDocument, key: bytes) -> StoredVersion:
        names = self.names
        deleted = body.get(names.deleted) is True
        content = logical_document(body, key, names.number, frozenset({names.deleted.encode()}))
        return StoredVersion(
            key=decode_element(key),
            number=version_number(body.get(names.number), key),
            content=None if deleted else content,
            change=body.get(CHANGE_FIELD) if deleted else None,
            wall=written_time(body, names.at),
        )

    async def _read(
        self,
        wanted: Sequence[tuple[Any, Any]],
        previous: Mapping[str, Any],
        *,
        at: Timestamp | None = None,
    ) -> list[list[StoredVersion]]:
        """Return the versions for each (`_id`, asked): the current one, and chosen previous ones.

        Takes one round trip.

        Args:
            previous: Expression for the previous versions to return; `$$asked` is the second value.
        """
        names = self.names
        rows = [{"n": n, "key": key, "asked": asked} for n, (key, asked) in enumerate(wanted)]
        shown = {names.current: 1, names.previous: previous}
        pipeline: Stages = [
            {"$documents": {"$literal": rows}},
            {
                "$lookup": {
                    "from": self.collection,
                    "localField": "key",
                    "foreignField": "_id",
                    "let": {"asked": "$asked"},
                    "pipeline": [{"$project": shown}],
                    "as": "found",
                }
            },
            {"$unwind": "$found"},
            {"$project": {"n": 1, "found": 1}},
        ]
        found: list[list[StoredVersion]] = [[] for _ in rows]
        for each in await self.mongo.aggregate(None, pipeline, at=at, raw=True) if rows else ():
            found[each["n"]] = self._all(each["found"])
        return found

    def _where(self, condition: Mapping[str, Any]) -> Document:
        """Return an expression for the previous versions that meet a condition on `$$each`."""
        previous = f"${self.names.previous}"
        # An application may have stored another type.
        listed = {"$cond": [{"$isArray": previous}, previous, []]}
        return {"$filter": {"input": listed, "as": "each", "cond": condition}}

    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> dict[tuple[Any, int], StoredVersion]:
        numbers: dict[Any, tuple[Any, list[int]]] = {}
        for key, number in wanted:
            numbers.setdefault(identity(key), (key, []))[1].append(number)
        asked = self._where({"$in": [f"$$each.{self.names.number}", "$$asked"]})
        found = await self._read(list(numbers.values()), asked)
        return {
            (name, each.number): each
            for (name, (_, several)), versions in zip(numbers.items(), found, strict=True)
            for each in versions
            if each.number is not None and each.number in several
        }

    async def history(self, key: Any, *, at: Timestamp | None = None) -> list[StoredVersion]:
        return (await self._read([(key, None)], self._where({"$literal": True}), at=at))[0]

    async def before(self, wanted: Sequence[tuple[Any, int]]) -> list[StoredVersion | None]:
        number = self.names.number
        below = self._where({"$lt": [f"$$each.{number}", "$$asked"]})
        last = {"$slice": [{"$sortArray": {"input": below, "sortBy": {number: -1}}}, 1]}
        found = await self._read(wanted, last)
        return [
            _last_below(versions, number)
            for versions, (_, number) in zip(found, wanted, strict=True)
        ]

    async def read(
        self, after: tuple[Any] | None, *, size: int, at: Timestamp
    ) -> tuple[list[StoredVersion], bool]:
        place = None if after is None else position_after_key(after[0])
        while True:
            documents, end = await read_documents(
                self.mongo, self.collection, place, size=min(size, _READ_MOST), at=at
            )
            found = [each for document in documents for each in self._all(document)]
            # A stored document without a current state is no document.
            if found or end:
                return found, end
            place = position_after_last(documents)

    # the stream

    def interpret_event(self, event: ChangeEvent) -> LogicalWrite | None:
        earlier = None if event.before is None else self._current(event.before)
        if event.operation == "delete":
            gone = StoredVersion(key=event.key, number=None, content=None)
            return LogicalWrite(
                key=event.key,
                number=None,
                version=gone,
                before=earlier,
                # There is nothing left to look up.
                asks_before=False,
            )
        number = None if event.update is None else self._counted(event.update)
        if event.update is not None and number is None:
            return None
        if event.after is None:
            return LogicalWrite(key=event.key, number=number, version=None, before=earlier)
        made = self._current(event.after)
        if made is None or made.number is None:
            return None
        if earlier is not None and earlier.number == made.number:
            return None
        # Not read from its list, which may be long: it is looked up if needed.
        asks = earlier is None and event.operation != "insert"
        return LogicalWrite(
            key=event.key, number=made.number, version=made, before=earlier, asks_before=asks
        )

    def _current(self, document: RawBSONDocument) -> StoredVersion | None:
        fields = dict(iterate_elements(bytes(document.raw)))
        body = _embedded_document(fields.get(self.names.current.encode()))
        return None if body is None else self._state(body, fields[b"_id"])

    def _counted(self, update: Mapping[str, Any]) -> int | None:
        """Return the number that an update sets; None if it creates no version."""
        updated = update.get("updatedFields") or {}
        names = self.names
        whole = updated.get(names.current)
        found = whole.get(names.number) if isinstance(whole, Mapping) else None
        return whole_number(updated.get(f"{names.current}.{names.number}", found))

    # writing

    async def last(self, key: Any) -> StoredVersion | None:
        (found,) = await self._read([(key, None)], self._where({"$literal": False}))
        return _last_below(found, ABOVE_ALL)

    async def write(
        self, writing: WriteSession, last: StoredVersion | None, made: StoredVersion
    ) -> None:
        names = self.names
        body = self._body(made)
        if last is None:
            fields = [encode_element("_id", made.key), encode_element(names.current, body)]
            whole = RawBSONDocument(
                document_from_elements([*fields, encode_element(names.previous, [])]), RAW
            )
            if await writing.insert_unless(self.collection, whole, ["_id"]) is None:
                raise ConcurrentWrite
            return
        compared = {"_id": made.key, f"{names.current}.{names.number}": last.number}
        more = len(body.raw) + _AROUND_BYTES
        size = {"$add": [{"$bsonSize": "$$ROOT"}, more]}
        previous = {"$ifNull": [f"${names.previous}", []]}
        change = {
            names.previous: {"$concatArrays": [previous, [f"${names.current}"]]},
            names.current: {"$literal": body},
        }
        kind = {"$type": f"${names.previous}"}
        takes = {"$in": [kind, ["array", "null", "missing"]]}
        # update_each does not return the document with its whole history.
        query = {**compared, "$expr": {"$and": [takes, {"$lte": [size, _MOST_BYTES]}]}}
        if await writing.update_each(self.collection, [(query, [{"$set": change}])]):
            return
        shown = {"size": {"$bsonSize": "$$ROOT"}, "takes": takes, "kind": kind}
        found = await self.mongo.find(
            self.collection, compared, FindOptions(projection=shown, limit=1)
        )
        if found and not found[0]["takes"]:
            raise VersionTooLarge(
                f"cannot store its previous version: {names.previous} is of type "
                f"{found[0]['kind']}, expected a list; store its versions in a list"
            )
        if not found or found[0]["size"] + more <= _MOST_BYTES:
            raise ConcurrentWrite
        raise VersionTooLarge(
            f"would be larger than 16 MB: {found[0]['size']:,} bytes with all previous versions, "
            f"and {len(body.raw):,} of this one, maximum is {_MOST_BYTES:,}; remove previous "
            "versions, or move them to the archive (history: ARCHIVE)"
        )

    def _body(self, made: StoredVersion) -> RawBSONDocument:
        if made.content is None:
            names = self.names
            said = [(names.number, made.number), (names.deleted, True), (CHANGE_FIELD, made.change)]
            return RawBSONDocument(
                document_from_elements(encode_element(*each) for each in said), RAW
            )
        fields = (
            each for name, each in iterate_elements(bytes(made.content.raw)) if name != b"_id"
        )
        return RawBSONDocument(document_from_elements(fields), RAW)


def _embedded_document(field: bytes | None) -> RawBSONDocument | None:
    """Return the object in an element, without decoding other fields."""
    if field is None or field[0] != _OBJECT:
        return None
    return RawBSONDocument(field[field.index(0, 1) + 1 :], RAW)


def _last_below(versions: Sequence[StoredVersion], number: int) -> StoredVersion | None:
    below = [each for each in versions if each.number is not None and each.number < number]
    return below[-1] if below else None
