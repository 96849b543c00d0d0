"""One entry of the change stream, as the rest of revstream sees it.

Documents stay raw BSON until somebody needs a field: the recorder copies bytes, and an event that
nobody filters is never decoded.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from math import isnan
from typing import Any

import bson
from bson import Binary, Code, Decimal128, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import InexactKey
from revstream.streams.mongo.driver.codecs import DECODED, RAW, Document, decode, plain_value
from revstream.streams.raw_bson.fields import (
    document_from_elements,
    find_element,
    iterate_elements,
    split_objects,
)
from revstream.streams.raw_bson.post_image import repair_post_image

__all__ = [
    "INEXACT_KEY",
    "PLAIN_KEY_TYPES",
    "WRITES",
    "ChangeEvent",
    "EventBatch",
    "decode_event",
    "holds_exactly",
    "identities",
    "identity",
    "is_exact",
    "key_hash",
    "key_of",
    "possible_ids",
]

WRITES = frozenset({"insert", "update", "replace", "delete"})
_KEPT_RAW = frozenset({b"fullDocument", b"fullDocumentBeforeChange", b"updateDescription"})


@dataclass(frozen=True, kw_only=True)
class ChangeEvent:
    """A decoded change event.

    Attributes:
        token: where it stands; sorts as text in stream order.
        at: cluster time; the same for all events of one transaction.
        wall: the primary's clock at the write, UTC, to the millisecond.
        operation: MongoDB's operationType: insert, update, replace, delete, drop, rename,
            dropDatabase, invalidate, …
        collection: the name, or "" where the event has none.
        key: the document's `_id`; None where the event is not of a document.
        after: the whole document after the write, where the server has it.
        before: the whole document before the write, where the server has it and the stream asked
            for it.
        update: MongoDB's updateDescription, for updates.
        renamed_to: the collection's new name, for renames.
        session: of the transaction that it was written in, where it was in one; others of its
            writes, also to the same document, may have the same cluster time.
        kept: of a collection that keeps its versions itself, the number that this one has there;
            the event is then that of a document, whatever was written (`streams.layouts`).
        bare: read without its content, which exceeds what the server can send.
        deletion: where a version says that the document was deleted, the `_change` that it carries.
        fault, undecoded: where it could not be decoded, why, and its bytes; it then has no
            documents, and perhaps no key.
    """

    token: str
    at: Timestamp
    wall: datetime
    operation: str
    collection: str
    key: Any
    after: RawBSONDocument | None
    before: RawBSONDocument | None
    update: RawBSONDocument | None
    renamed_to: str | None = None
    session: Binary | None = None
    bare: bool = False
    kept: int | None = None
    deletion: Any = None
    fault: Exception | None = field(default=None, compare=False)
    undecoded: bytes | None = field(default=None, repr=False)

    @property
    def in_transaction(self) -> bool:
        return self.session is not None

    @property
    def is_write(self) -> bool:
        """True for a write to one document."""
        return self.operation in WRITES

    @property
    def has_version(self) -> bool:
        """False where the document's `_id` cannot be kept: no event of it becomes a version."""
        return not isinstance(self.fault, InexactKey)

    @cached_property
    def document(self) -> Document | None:
        """`after`, decoded once for all who look."""
        return None if self.after is None else decode(self.after.raw)

    @cached_property
    def document_before(self) -> Document | None:
        """`before`, decoded once for all who look."""
        return None if self.before is None else decode(self.before.raw)

    @cached_property
    def key_hash(self) -> int:
        """Of the document's `_id`."""
        return key_hash(self.key)

    @cached_property
    def size_bytes(self) -> int:
        """About what it holds in memory."""
        parts = (self.after, self.before, self.update)
        size = 500 + sum(len(each.raw) for each in parts if each is not None)
        return size if self.undecoded is None else size + len(self.undecoded)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """What one round trip brought: events in order, and the place up to which there are no
    others, but for those that could not be read (`passed_over`)."""

    events: tuple[ChangeEvent, ...]
    position: str
    passed_over: bool = False


def decode_event(raw: RawBSONDocument) -> ChangeEvent:
    """From the server's change event; `documentKey` of a sharded collection keeps only its `_id`.

    One that cannot be decoded says so (`ChangeEvent.fault`): it ends no stream.

    Raises:
        Exception: not even its place in the stream can be decoded.
    """
    try:
        return _decode(raw)
    except Exception as exc:
        return _with_fault(bytes(raw.raw), exc)


def _decode(raw: RawBSONDocument) -> ChangeEvent:
    # What stays raw is cut out, and all else decoded at once: as a raw document each object that
    # is looked into is several Python calls.
    objects, rest = split_objects(bytes(raw.raw), _KEPT_RAW)
    fields = decode(rest)
    at = fields["clusterTime"]
    # Older servers send no wallTime; the cluster time's seconds come from the same clock.
    wall = fields.get("wallTime") or datetime.fromtimestamp(at.time, UTC)
    namespace, to, document_key = fields.get("ns"), fields.get("to"), fields.get("documentKey")
    update = _raw(objects.get(b"updateDescription"))
    if document_key is not None and not _is_surely_exact(document_key["_id"]):
        _check_key(rest, document_key["_id"])
    return ChangeEvent(
        token=resume_tokens.token_from_stream(fields["_id"]["_data"]),
        at=at,
        wall=wall,
        operation=fields["operationType"],
        collection="" if namespace is None else str(namespace.get("coll") or ""),
        key=None if document_key is None else document_key["_id"],
        after=repair_post_image(_raw(objects.get(b"fullDocument")), update),
        before=_raw(objects.get(b"fullDocumentBeforeChange")),
        update=update,
        renamed_to=None if to is None else to.get("coll"),
        session=fields["lsid"]["id"] if "txnNumber" in fields else None,
    )


def _is_surely_exact(key: Any) -> bool:
    """Whether it is surely what is stored: replacement characters may stand for other bytes."""
    return key.__class__ in PLAIN_KEY_TYPES and (key.__class__ is not str or "\ufffd" not in key)


def is_exact(document: RawBSONDocument) -> bool:
    """Return whether the document's `_id`, decoded, is the same one to MongoDB.

    Not where names or texts are not UTF-8, where a name stands twice, nor for an undefined, a
    DBPointer, or a symbol within a document, for which there are no values.
    """
    key = document["_id"]
    if _is_surely_exact(key):
        return True
    element = find_element(bytes(document.raw), b"_id")
    return element is not None and holds_exactly(element, plain_value(key))


def holds_exactly(element: bytes, key: Any) -> bool:
    """The same of an id, decoded, and the element that it was decoded of."""
    if _is_surely_exact(key):
        return True
    if element[0] == _SYMBOL:
        # Equal to the text.
        element = bytes([_TEXT]) + element[1:]
    elif element[0] == _DECIMAL:
        # Each is held bit by bit.
        return True
    elif element[0] == _TIMESTAMP and not any(element[-8:]):
        # Where it stands in a record, MongoDB puts the time of the write in its place.
        return False
    name = element[1 : element.index(0, 1)].decode(errors="replace")
    return document_from_elements([element]) == bson.encode({name: key}, codec_options=DECODED)


def _check_key(event: bytes, key: Any) -> None:
    """Raises:
    InexactKey: the key is not what is stored.
    """
    objects, _ = split_objects(event, {b"documentKey"})
    element = find_element(objects[b"documentKey"], b"_id")
    if element is not None and not holds_exactly(element, key):
        raise InexactKey(INEXACT_KEY)


def _with_fault(raw: bytes, fault: Exception) -> ChangeEvent:
    """Of an event that cannot be decoded, the fields that can."""
    fields: Document = {}
    for _, element in iterate_elements(raw):
        # The rest of it is not needed to go on behind it.
        with contextlib.suppress(Exception):
            fields |= decode(document_from_elements([element]))
    at = fields["clusterTime"]
    return ChangeEvent(
        token=resume_tokens.token_from_stream(fields["_id"]["_data"]),
        at=at,
        wall=datetime.fromtimestamp(at.time, UTC),
        operation=fields["operationType"],
        collection=fields["ns"].get("coll", ""),
        key=fields.get("documentKey", {}).get("_id"),
        after=None,
        before=None,
        update=None,
        fault=fault,
        undecoded=raw,
    )


def key_of(raw: RawBSONDocument) -> Any:
    """The `_id` of the document that the server's change event is of; None where it is of none."""
    document_key = raw.get("documentKey")
    return None if document_key is None else decode(document_key.raw)["_id"]


def _raw(document: bytes | None) -> RawBSONDocument | None:
    return None if document is None else RawBSONDocument(document, RAW)


_TEXT, _SYMBOL, _TIMESTAMP, _DECIMAL = 0x02, 0x0E, 0x11, 0x13
INEXACT_KEY = (
    "its _id has bytes that no driver keeps (text that is not UTF-8, a name twice, a deprecated "
    "type, the empty timestamp): expected one that reads and writes alike; store it under another "
    "_id"
)

PLAIN_KEY_TYPES = frozenset({str, int, ObjectId})
"""What nearly all ids are, and their own `identity`."""


def identity(key: Any) -> Any:
    """A hashable stand-in for an `_id`, equal where MongoDB's unique index calls two ids equal.

    Python calls True and 1 equal, MongoDB does not; MongoDB calls 1, 1.0 and Decimal128("1") equal,
    and NaN equal to itself.
    """
    if key.__class__ in PLAIN_KEY_TYPES:
        return key
    if isinstance(key, bool):
        return "bool", key
    if isinstance(key, Mapping):
        return "object", tuple((name, identity(value)) for name, value in key.items())
    if isinstance(key, list):
        return "array", tuple(map(identity, key))
    if isinstance(key, Code) and key.scope is not None:
        return "code", str(key), identity(key.scope)
    if isinstance(key, Decimal128):
        key = key.to_decimal()
    # math.isnan raises on a signaling one.
    if key.is_nan() if isinstance(key, Decimal) else isinstance(key, float) and isnan(key):
        return ("nan",)
    # Code and regular expressions cannot be hashed.
    return key if isinstance(key, Hashable) else bson.encode({"": key})


def identities(keys: Sequence[Any]) -> Sequence[Any]:
    """Of each key its `identity`."""
    return (
        keys if PLAIN_KEY_TYPES.issuperset(map(type, keys)) else [identity(each) for each in keys]
    )


def possible_ids(keys: Sequence[Any]) -> Sequence[Any]:
    """Return those that a document may have as its `_id`.

    MongoDB takes no list, no regular expression and no document that begins like an operator, but
    for one that is shaped like a DBRef; and `$in` refuses the last, or looks through all documents.
    """
    return keys if PLAIN_KEY_TYPES.issuperset(map(type, keys)) else list(filter(_is_possible, keys))


def _is_possible(key: Any) -> bool:
    if isinstance(key, Mapping):
        if not next(iter(key), "").startswith("$"):
            return True
        # The shape of a reference is the one that may.
        return [*key][:2] == ["$ref", "$id"] and isinstance(key["$ref"], str)
    return not isinstance(key, list | Regex)


def key_hash(key: Any) -> int:
    """32 bits, equal where MongoDB's unique index calls two ids equal; the same in every process,
    today and tomorrow."""
    return zlib.crc32(_canonical(key))


def _canonical(key: Any) -> bytes:
    if isinstance(key, Mapping):
        fields = (name.encode() + b"\0" + _canonical(value) for name, value in key.items())
        return b"{" + b",".join(fields)
    if isinstance(key, list):
        return b"[" + b",".join(map(_canonical, key))
    if isinstance(key, Code) and key.scope is not None:
        return b"code" + str(key).encode() + b"\0" + _canonical(key.scope)
    known = identity(key)
    if isinstance(known, int | float | Decimal):
        # Numbers that are equal have equal hashes, whatever their types, and no seed is in them:
        # Python's reference, "Hashing of numeric types".
        return b"%d" % hash(known)
    if isinstance(known, tuple):
        return repr(known).encode()
    return bson.encode({"": known}, codec_options=DECODED)
