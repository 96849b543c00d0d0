"""Checksums of version contents, and the hash chain through the versions of a document.

`sum` is the checksum of the content alone. `chain` is the checksum of the chain of the version
before, of `sum`, and of the record's metadata. A changed content, number, author or position of a
version changes the chains of all versions after it. So the last chains of all documents, kept
outside the database, prove the content of the archive.

The content is hashed as raw bytes. If the collection keeps its versions itself, programs copy them
between documents, and the order of fields may change: there, fields are hashed in the order of
their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import DECODED, Document
from revstream.streams.raw_bson.fields import iterate_elements

__all__ = ["ChecksumFlaw", "add_checksums", "checksum_flaws"]

_BYTES = 16
_CHAINED_FIELDS = ("_id", "v", "op", "at", "wall", "by", "why", "restoredFrom", "draft", "gap")

ChecksumFlaw = tuple[Mapping[str, Any], str]
"""A record and the description of its flaw."""


def add_checksums(
    record: Document, content: RawBSONDocument | None, chain: bytes | None, *, kept: bool
) -> bytes:
    """Add the checksums to a record; return its chain.

    Args:
        content: Content of the version; None for a deletion.
        chain: Chain of the version before; None where no such version or chain exists.
        kept: The collection keeps its versions itself.
    """
    record["sum"] = _content_checksum(content, kept=kept)
    record["chain"] = made = _chain_checksum(record, chain)
    return made


def checksum_flaws(versions: Sequence[Mapping[str, Any]], *, kept: bool) -> Iterator[ChecksumFlaw]:
    """Yield the disagreements between a document's versions and their checksums.

    Args:
        versions: Newest first, with their contents, raw.
    """
    for each in versions:
        if "sum" in each and each["sum"] != _content_checksum(each["full"], kept=kept):
            yield each, "checksum: of another content, expected that of the recorded content"
    for newer, older in pairwise(versions):
        if newer["prev"] == older["_id"] and not _follows(newer, older.get("chain")):
            yield newer, "chain: of another version, expected that of the previous version"
    oldest = versions[-1]
    # Truncation deletes the earlier chain with its version.
    if oldest.get("first") and "cut" not in oldest and not _follows(oldest, None):
        yield oldest, "chain: of another version, expected that of the first version"


def _follows(record: Mapping[str, Any], chain: bytes | None) -> bool:
    return "chain" not in record or record["chain"] == _chain_checksum(record, chain)


def _content_checksum(content: RawBSONDocument | None, *, kept: bool) -> bytes:
    if content is None:
        return b"\0" * _BYTES
    if not kept:
        return blake2b(content.raw, digest_size=_BYTES).digest()
    fields = sorted(element for _, element in iterate_elements(bytes(content.raw)))
    return blake2b(b"".join(fields), digest_size=_BYTES).digest()


def _chain_checksum(record: Mapping[str, Any], chain: bytes | None) -> bytes:
    facts = {name: record.get(name) for name in _CHAINED_FIELDS}
    if "traceparent" in record:
        # Only there: chains of versions without one stay as they were before versions had it.
        facts["traceparent"] = record["traceparent"]
    said = bson.encode(facts, codec_options=DECODED)
    return blake2b((chain or b"") + record["sum"] + said, digest_size=_BYTES).digest()
