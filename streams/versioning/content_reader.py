"""Reader of version contents: from records, patches, parts, or the collection's own layout.

The encodings are those of `streams.versioning.content_encoding`. Source:
docs/decisions/0017-delta.md, docs/decisions/0019-layouts.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import bson
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import identity
from revstream.streams.core.errors import DamagedArchive, HistoryLost
from revstream.streams.core.operation import count_computed
from revstream.streams.core.read_memory import count_values
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document, decode
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.raw_bson.patch import apply_patch
from revstream.streams.versioning.content_encoding import PACKED, part_ids
from revstream.streams.versioning.version import without_reserved

__all__ = ["ContentReader", "empty_content"]

_CHAIN = dict.fromkeys(("doc", "v", "prev", "full", "patch", *PACKED), 1)


class StoredContent(Protocol):
    """A version as its own collection stores it."""

    @property
    def content(self) -> RawBSONDocument | None: ...


class VersionSource(Protocol):
    """Layout of a collection that keeps its versions itself."""

    async def versions(
        self, wanted: Sequence[tuple[Any, int]]
    ) -> Mapping[tuple[Any, int], StoredContent]:
        """Read versions by document id and number; missing versions are left out."""
        ...


class ContentReader:
    """Reader of the contents of one collection's archive.

    Args:
        layout: Layout of a collection that keeps versions itself; None otherwise.
    """

    def __init__(self, mongo: Mongo, collection: str, layout: VersionSource | None = None) -> None:
        self._mongo = mongo
        self._collection = collection
        self._layout = layout
        self._archive = f"{collection}.versions"
        self._parts = f"{collection}.overflow"

    async def fill(
        self,
        records: Sequence[Any],
        *,
        whole: bool = False,
        raw: bool = False,
        lenient: bool = False,
    ) -> list[Any]:
        """Return the records with their contents in `full`; they were read with the fields
        `PACKED`.

        One more read if some of them are packed, however many; another one if parts are, or if the
        collection keeps them.

        Args:
            whole: No version was left out of these records: they may build on one another.
            raw: Do not decode the packed contents.
            lenient: Return an empty content, and no error, for one that the collection no longer
                has.

        Raises:
            DamagedArchive: A version on which another one builds is missing.
            HistoryLost: One of the records was deleted since it was read.
        """
        packed = [each for each in records if each.get("packed")]
        if self._layout is not None and any("kept" in each for each in packed):
            records = await self._fill_from_layout(self._layout, records, raw=raw, lenient=lenient)
            packed = [each for each in records if each.get("packed")]
        if not packed:
            return list(records)
        chain = {each["_id"]: each for each in records} if whole else {}
        broken = [each for each in packed if not _reaches_down(each, chain)]
        if broken:
            found = await self._mongo.find(
                self._archive,
                {"$or": list(_ranges(broken))},
                FindOptions(projection=_CHAIN, raw=True),
            )
            chain = {**chain, **{each["_id"]: each for each in found}}
        made = await self._read_parts(chain.values())
        shown: list[Any] = []
        for each in records:
            if each.get("packed"):
                before = len(made)
                content = _content(each, chain, made)
                states = max(1, len(made) - before)
                shown.append(
                    {
                        **_without_packed(each),
                        "full": await _decode_and_count(content, states, raw=raw),
                    }
                )
            else:
                shown.append(each)
        return shown

    async def _fill_from_layout(
        self, layout: VersionSource, records: Sequence[Any], *, raw: bool, lenient: bool
    ) -> list[Any]:
        """Return the records with the contents that the collection itself stores."""
        wanted = {
            (identity(each["doc"]), each["kept"]): (each["doc"], each["kept"])
            for each in records
            if _is_kept(each)
        }
        found = await layout.versions(list(wanted.values()))
        made: list[Any] = []
        for record in records:
            if not _is_kept(record):
                made.append(record)
                continue
            kept = found.get((identity(record["doc"]), record["kept"]))
            content = None if kept is None else kept.content
            if content is None and not lenient:
                raise HistoryLost(
                    f"{self._collection}/{record['doc']!r}: version {record['v']} is no longer in "
                    f"the collection, where it had the number {record['kept']}"
                )
            content = empty_content(record["doc"]) if content is None else without_reserved(content)
            made.append(
                {**_without_packed(record), "full": await _decode_and_count(content, 1, raw=raw)}
            )
        return made

    async def _read_parts(self, records: Any) -> dict[str, RawBSONDocument | None]:
        """Return the contents that are stored in parts, by token."""
        wanted = {each["_id"]: part_ids(each) for each in records if each.get("parts")}
        ids = [name for names in wanted.values() for name in names]
        found = await self._mongo.find(self._parts, {"_id": {"$in": ids}}) if ids else []
        data = {(each["_id"]["of"], each["_id"]["n"]): each["data"] for each in found}
        if len(data) < len(ids):
            raise DamagedArchive(
                f"{self._parts}: {len(data)} parts of a version, expected {len(ids)}"
            )
        return {
            token: RawBSONDocument(b"".join(data[token, name["n"]] for name in names), RAW)
            for token, names in wanted.items()
        }


def _is_kept(record: Mapping[str, Any]) -> bool:
    return bool(record.get("packed")) and "kept" in record


def empty_content(key: Any) -> RawBSONDocument:
    """Return the content that stands for one that cannot be read any more."""
    return RawBSONDocument(bson.encode({"_id": key}, codec_options=DECODED), RAW)


def _without_packed(record: Any) -> Document:
    return {name: value for name, value in record.items() if name != "packed"}


def _reaches_down(record: Any, chain: Mapping[str, Any]) -> bool:
    """Return whether all records that a version builds on are at hand."""
    place: Any = chain.get(record["_id"])
    while place is not None and "patch" in place:
        place = chain.get(place["prev"])
    return place is not None and ("full" in place or bool(place.get("parts")))


def _ranges(records: Sequence[Any]) -> Iterator[Document]:
    """Yield queries for these records and the records that they build on."""
    most: dict[tuple[Any, int], tuple[Any, int]] = {}
    for each in records:
        start = each["v"] if each.get("keyframe") is None else each["keyframe"]
        place = (identity(each["doc"]), start)
        most[place] = (each["doc"], max(each["v"], most.get(place, (None, 0))[1]))
    for (_, start), (key, end) in most.items():
        yield {"doc": {"$eq": key}, "v": {"$gte": start, "$lte": end}}


def _content(
    record: Any, chain: Mapping[str, Any], made: dict[str, RawBSONDocument | None]
) -> RawBSONDocument | None:
    """Apply the patches after the keyframe; each state is computed once."""
    patches: list[Any] = []
    token = record["_id"]
    while token not in made:
        place = chain.get(token)
        if place is not None and "full" in place:
            made[token] = _raw(place["full"])
            break
        if place is None and token == record["_id"]:
            raise HistoryLost(f"version {record['v']}: deleted during the read; try again")
        if place is None or "patch" not in place:
            raise DamagedArchive(
                f"version {record['v']} of {record['doc']!r}: its base version {token!r} is "
                "missing; run `revstream verify`"
            )
        patches.append(place)
        token = place["prev"]
    content = made[token]
    for place in reversed(patches):
        try:
            if content is None:
                raise KeyError(place["prev"])
            content = apply_patch(content, place["patch"])
        except (KeyError, TypeError, ValueError) as exc:
            raise DamagedArchive(
                f"version {place['v']} of {place['doc']!r}: its patch does not fit its base "
                "version; run `revstream verify`"
            ) from exc
        made[place["_id"]] = content
    return content


def _raw(document: Any) -> RawBSONDocument | None:
    if document is None or isinstance(document, RawBSONDocument):
        return document
    return RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)


async def _decode_and_count(content: RawBSONDocument | None, states: int, *, raw: bool) -> Any:
    """Decode a content and count its memory for the running operation.

    A version of some bytes may build on one of megabytes.

    Args:
        states: Number of states of about this size that stay in memory until all records are
            filled.
    """
    if content is None:
        return None
    size = len(content.raw)
    shown = content if raw else decode(content.raw)
    await count_computed(size * states, 0 if raw else count_values(shown, size))
    return shown
