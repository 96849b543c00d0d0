"""Encodings of a version's content: whole, as a patch, in parts, or as a reference to the layout.

The content is in the record (`full`), in a patch on the version before (`patch`), or, for a
document that leaves no room for a record around it, in parts outside the archive (`parts`).

With `storage: DELTA` a version stores the patch from the version before. At regular distances, and
where a patch would save too little, it stores the whole content: a keyframe. So any version costs
one read of a bounded number of records. `keyframe` is the number of the keyframe, `depth` the
number of patches after it, and `packed` says that the content is not in the record.

If the collection keeps its versions itself, a record has no content, but `kept`: the number under
which the layout stores the version (`streams.layouts`).

Guarantees: the reconstructed content equals the original byte for byte; a patch that does not
reproduce it is not stored. Source: docs/decisions/0017-delta.md.
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
"""A version costs at most this many patches, less one."""

PACKED = ("packed", "keyframe", "parts", "kept")
"""Fields that a projection needs for `streams.versioning.content_reader` to read packed contents.
"""

# A patch is stored if it has less than half of the bytes.
_WORTH_IT = 2
# MongoDB's 16 MB, less the rest of a record, which contains `why` twice.
_ROOM_BYTES = 16 * 1024 * 1024 - 64 * 1024
_PART_BYTES = 8 * 1024 * 1024


def encode_as_patch(record: Document, last: LastVersion | None, made: LastVersion) -> LastVersion:
    """Replace a record's content by a patch, if that saves enough.

    Args:
        last: The version before.
        made: The facts that the next version needs of this one.

    Returns: `made`, with the place of the content.
    """
    if last is None or last.full is None or last.damaged or made.full is None:
        return made
    if last.depth + 1 >= KEYFRAME_EVERY:
        return made
    patch = create_patch(last.full, made.full)
    size = len(bson.encode(patch, codec_options=DECODED))
    # Types without a Python class come out of a patch as other types; so does text that is not
    # UTF-8.
    if size * _WORTH_IT > len(made.full.raw) or apply_patch(last.full, patch).raw != made.full.raw:
        return made
    del record["full"]
    start = last.number if last.keyframe is None else last.keyframe
    record |= {"patch": patch, "packed": True, "keyframe": start, "depth": last.depth + 1}
    return replace(made, keyframe=start, depth=last.depth + 1)


def encode_as_reference(record: Document, made: LastVersion, number: int | None) -> LastVersion:
    """Replace a record's content by the number under which the layout stores it.

    Args:
        number: The version's number there; None for a deletion that leaves no version.
    """
    if record["full"] is not None:
        del record["full"]
        record["packed"] = True
    record["kept"] = number
    return replace(made, kept=number)


def split_into_parts(record: Document) -> list[Document]:
    """Move a content that is too large out of the record; return its parts, none if it fits."""
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
    """Return the `_id`s of the record's parts; none if the content is in the record."""
    return [{"of": record["_id"], "n": n} for n in range(record.get("parts") or 0)]
