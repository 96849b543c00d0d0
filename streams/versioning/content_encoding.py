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

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import DECODED, Document
from revstream.streams.raw_bson.patch import apply_patch, create_patch
from revstream.streams.versioning.version import LastVersion

__all__ = [
    "KEYFRAME_EVERY",
    "PACKED",
    "encode_as_patch",
    "encode_as_reference",
    "part_ids",
    "split_into_parts",
]

KEYFRAME_EVERY = 20
"""A version costs as many patches at most, less one."""

PACKED = ("packed", "keyframe", "parts", "kept")
"""What a projection of records must have, for `streams.versioning.content_reader` to find what
lies elsewhere."""

# A patch is kept where it has less than half of the bytes.
_WORTH_IT = 2
# MongoDB's 16 MB, less what a record says besides; `why` stands in it twice.
_ROOM_BYTES = 16 * 1024 * 1024 - 64 * 1024
_PART_BYTES = 8 * 1024 * 1024


def encode_as_patch(record: Document, last: LastVersion | None, made: LastVersion) -> LastVersion:
    """Turn a record that has its content into one that has a patch, where that is worth it.

    Args:
        last: the version before. `made`: what the next one needs of this one; returned, with where
            it lies.
    """
    if last is None or last.full is None or last.damaged or made.full is None:
        return made
    if last.depth + 1 >= KEYFRAME_EVERY:
        return made
    patch = create_patch(last.full, made.full)
    size = len(bson.encode(patch, codec_options=DECODED))
    # Types that Python has no class for come out of a patch as others, text that is not UTF-8 too.
    if size * _WORTH_IT > len(made.full.raw) or apply_patch(last.full, patch).raw != made.full.raw:
        return made
    del record["full"]
    start = last.number if last.keyframe is None else last.keyframe
    record |= {"patch": patch, "packed": True, "keyframe": start, "depth": last.depth + 1}
    return replace(made, keyframe=start, depth=last.depth + 1)


def encode_as_reference(record: Document, made: LastVersion, number: int | None) -> LastVersion:
    """Turn a record that has its content into one that says where a layout keeps it.

    Args:
        number: the version's there; None where nothing is kept of a deletion.
    """
    if record["full"] is not None:
        del record["full"]
        record["packed"] = True
    record["kept"] = number
    return replace(made, kept=number)


def split_into_parts(record: Document) -> list[Document]:
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
