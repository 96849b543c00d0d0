"""Where the content of a version lies: in its record (`full`), in a patch on the version before
(`patch`), or, where a document leaves no room for a record around it, in parts beside the archive
(`parts`).

With `storage: DELTA` a version keeps the patch that makes it of the one before; every so often, and
where a patch would save too little, it is kept whole: a keyframe. So any version costs one read of
a bounded number of records. `keyframe` is the number of the version that it starts from, `depth`
how many patches behind it is, and `packed` says that the content is not in the record.

Where the collection keeps its versions itself, a record has no content at all, but `kept`: the
number under which the version is kept there (`streams.layouts`).

Guarantees: what is made again is what there was, byte for byte: a patch that does not do that is
not kept.
Source: docs/decisions/0017-delta.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from streams.documents import DECODED, RAW, Document
from streams.errors import DamagedArchive, HistoryLost
from streams.events import identity
from streams.mongo import Mongo
from streams.patches import patch_between, patched
from streams.versions import Last

__all__ = ["KEYFRAME_EVERY", "PACKED", "Contents", "as_kept", "as_patch", "in_parts", "part_ids"]

KEYFRAME_EVERY = 20
"""A version costs as many patches at most, less one."""

PACKED = ("packed", "keyframe", "parts", "kept")
"""What a projection of records must have, for `Contents` to find what lies elsewhere."""

# A patch is kept where it has less than half of the bytes.
_WORTH_IT = 2
# MongoDB's 16 MB, less what a record says besides; `why` stands in it twice.
_ROOM_BYTES = 16 * 1024 * 1024 - 64 * 1024
_PART_BYTES = 8 * 1024 * 1024
_CHAIN = dict.fromkeys(("doc", "v", "prev", "full", "patch", *PACKED), 1)


def as_patch(record: Document, last: Last | None, made: Last) -> Last:
    """Turn a record that has its content into one that has a patch, where that is worth it.

    Args:
        last: the version before. `made`: what the next one needs of this one; returned, with where
            it lies.
    """
    if last is None or last.full is None or made.full is None:
        return made
    if last.depth + 1 >= KEYFRAME_EVERY:
        return made
    patch = patch_between(last.full, made.full)
    size = len(bson.encode(patch, codec_options=DECODED))
    # Types that Python has no class for come out of a patch as others, text that is not UTF-8 too.
    if size * _WORTH_IT > len(made.full.raw) or patched(last.full, patch).raw != made.full.raw:
        return made
    del record["full"]
    start = last.number if last.keyframe is None else last.keyframe
    record |= {"patch": patch, "packed": True, "keyframe": start, "depth": last.depth + 1}
    return replace(made, keyframe=start, depth=last.depth + 1)


def as_kept(record: Document, made: Last, number: int | None) -> Last:
    """Turn a record that has its content into one that says where a layout keeps it.

    Args:
        number: the version's there; None where nothing is kept of a deletion.
    """
    if record["full"] is not None:
        del record["full"]
        record["packed"] = True
    record["kept"] = number
    return replace(made, kept=number)


def in_parts(record: Document) -> list[Document]:
    """The parts of a record that would be too large, which then has no content of its own; none of
    one that fits."""
    full = record.get("full")
    if not isinstance(full, RawBSONDocument):
        return []
    change, copies = (
        len(each.raw) if isinstance(each, RawBSONDocument) else 0
        for each in (record.get("change"), record.get("copies"))
    )
    if len(full.raw) + 2 * change + copies <= _ROOM_BYTES:
        return []
    del record["full"]
    data = bytes(full.raw)
    parts = [data[n : n + _PART_BYTES] for n in range(0, len(data), _PART_BYTES)]
    record |= {"packed": True, "parts": len(parts)}
    return [{"_id": name, "data": part} for name, part in zip(part_ids(record), parts, strict=True)]


def part_ids(record: Mapping[str, Any]) -> list[Document]:
    """The `_id`s of its parts; none of one that has its content."""
    return [{"of": record["_id"], "n": n} for n in range(record.get("parts") or 0)]


class Contents:
    """Of the records of one archive.

    Args:
        archive: the collection of the records. `parts`: that of parts.
    """

    def __init__(self, mongo: Mongo, archive: str, parts: str) -> None:
        self._mongo = mongo
        self._archive = archive
        self._parts = parts

    async def filled(
        self, records: Sequence[Any], *, whole: bool = False, raw: bool = False
    ) -> list[Any]:
        """The records, each with its content in `full`. One read more where some of them are
        packed, however many; another one where parts are.

        Args:
            whole: nothing was left out of these records: they may follow from one another.
            raw: the content of those that were packed is not decoded.

        Raises:
            DamagedArchive: a version that another one follows from is not there.
            HistoryLost: one of the records was dropped since it was read.
        """
        packed = [each for each in records if each.get("packed")]
        if not packed:
            return list(records)
        chain = {each["_id"]: each for each in records} if whole else {}
        broken = [each for each in packed if not _reaches_down(each, chain)]
        if broken:
            found = await self._mongo.find(
                self._archive, {"$or": list(_ranges(broken))}, projection=_CHAIN, raw=True
            )
            chain = {**chain, **{each["_id"]: each for each in found}}
        made = await self._parted(chain.values())
        return [
            {**_opened(each), "full": _shown(_content(each, chain, made), raw=raw)}
            if each.get("packed")
            else each
            for each in records
        ]

    async def _parted(self, records: Any) -> dict[str, RawBSONDocument | None]:
        """The contents that lie in parts, by token."""
        wanted = {each["_id"]: part_ids(each) for each in records if each.get("parts")}
        ids = [name for names in wanted.values() for name in names]
        found = await self._mongo.find(self._parts, {"_id": {"$in": ids}}) if ids else []
        data = {(each["_id"]["of"], each["_id"]["n"]): each["data"] for each in found}
        if len(data) < len(ids):
            raise DamagedArchive(
                f"{self._parts} has {len(data)} of {len(ids)} parts that it should"
            )
        return {
            token: RawBSONDocument(b"".join(data[token, name["n"]] for name in names), RAW)
            for token, names in wanted.items()
        }


def _opened(record: Any) -> Document:
    return {name: value for name, value in record.items() if name != "packed"}


def _reaches_down(record: Any, chain: Mapping[str, Any]) -> bool:
    """Whether all that a version follows from is at hand."""
    place: Any = chain.get(record["_id"])
    while place is not None and "patch" in place:
        place = chain.get(place["prev"])
    return place is not None and ("full" in place or bool(place.get("parts")))


def _ranges(records: Sequence[Any]) -> Iterator[Document]:
    """Queries for the records that these follow from, and for themselves."""
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
    """From the keyframe on, patch by patch; each state is made once."""
    patches: list[Any] = []
    token = record["_id"]
    while token not in made:
        place = chain.get(token)
        if place is not None and "full" in place:
            made[token] = _raw(place["full"])
            break
        if place is None and token == record["_id"]:
            raise HistoryLost(f"version {record['v']} was dropped a moment ago")
        if place is None or "patch" not in place:
            raise DamagedArchive(
                f"version {record['v']} of {record['doc']!r} cannot be read: it follows from "
                f"{token!r}, which is not there; see `revstream verify`"
            )
        patches.append(place)
        token = place["prev"]
    content = made[token]
    for place in reversed(patches):
        try:
            if content is None:
                raise KeyError(place["prev"])
            content = patched(content, place["patch"])
        except (KeyError, TypeError, ValueError) as exc:
            raise DamagedArchive(
                f"version {place['v']} of {place['doc']!r} cannot be read: it does not fit what it "
                "follows from; see `revstream verify`"
            ) from exc
        made[place["_id"]] = content
    return content


def _raw(document: Any) -> RawBSONDocument | None:
    if document is None or isinstance(document, RawBSONDocument):
        return document
    return RawBSONDocument(bson.encode(document, codec_options=DECODED), RAW)


def _shown(content: RawBSONDocument | None, *, raw: bool) -> Any:
    return content if raw or content is None else bson.decode(content.raw, DECODED)
