"""Change event: one decoded entry of the change stream, and the identity of document keys.

Documents stay raw BSON until a field is needed: the recorder copies bytes, and an event that no
filter looks at is never decoded.
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
from bson.errors import BSONError
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
        token: Resume token; sorts as text in stream order.
        at: Cluster time; the same for all events of one transaction.
        wall: The primary's clock at the write, UTC, in milliseconds.
        operation: MongoDB's operationType: insert, update, replace, delete, drop, rename,
            dropDatabase, invalidate, …
        collection: The collection's name, or "" where the event has none.
        key: The document's `_id`; None where the event is not of a document.
        after: Post-image, where the server has it.
        before: Pre-image, where the server has it and the stream requested it.
        update: MongoDB's updateDescription, for updates.
        renamed_to: The collection's new name, for renames.
        session: Session of the transaction, for a write in a transaction. Other writes of the
            transaction, also to the same document, may have the same cluster time.
        kept: For a collection that keeps its versions itself, the version's number there; the event
            is then that of a document, whatever was written (`streams.layouts`).
        bare: Read without its content, which exceeds what the server can send.
        deletion: The `_change` of a version that records a deletion.
        fault, undecoded: Error and bytes of an event that could not be decoded; it has no
            documents,
            and possibly no key.
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
        """False where the document's `_id` cannot be stored: its events become no versions."""
        return not isinstance(self.fault, InexactKey)

    @cached_property
    def document(self) -> Document | None:
        """The post-image, decoded once for all readers."""
        return None if self.after is None else decode(self.after.raw)

    @cached_property
    def document_before(self) -> Document | None:
        """The pre-image, decoded once for all readers."""
        return None if self.before is None else decode(self.before.raw)

    @cached_property
    def key_hash(self) -> int:
        """Hash of the document's `_id`; see `key_hash`."""
        return key_hash(self.key)

    @cached_property
    def size_bytes(self) -> int:
        """Approximate size in memory."""
        parts = (self.after, self.before, self.update)
        size = 500 + sum(len(each.raw) for each in parts if each is not None)
        return size if self.undecoded is None else size + len(self.undecoded)


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Events of one round trip, in stream order.

    Attributes:
        position: Resume token up to which no other events exist, except unreadable ones.
        passed_over: Some events could not be read.
    """

    events: tuple[ChangeEvent, ...]
    position: str
    passed_over: bool = False


def decode_event(raw: RawBSONDocument) -> ChangeEvent:
    """Decode the server's change event; the `documentKey` of a sharded collection keeps only `_id`.

    An event that cannot be decoded gets a `ChangeEvent.fault`: it does not end the stream.

    Raises:
        Exception: Not even its resume token can be decoded.
    """
    try:
        return _decode(raw)
    except Exception as exc:
        return _with_fault(bytes(raw.raw), exc)


def _decode(raw: RawBSONDocument) -> ChangeEvent:
    # The raw parts are cut out and the rest is decoded at once: each field access on a raw document
    # costs several Python calls.
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
    """Return whether a key is surely the stored one: U+FFFD may stand for other bytes."""
    return key.__class__ in PLAIN_KEY_TYPES and (key.__class__ is not str or "\ufffd" not in key)


def is_exact(document: RawBSONDocument) -> bool:
    """Return whether the document's `_id`, decoded, is the same one to MongoDB.

    False where names or texts are not UTF-8, where a name occurs twice, and for an undefined, a
    DBPointer, or a symbol within a document, which Python cannot represent.
    """
    key = document["_id"]
    if _is_surely_exact(key):
        return True
    element = find_element(bytes(document.raw), b"_id")
    return element is not None and holds_exactly(element, plain_value(key))


def holds_exactly(element: bytes, key: Any) -> bool:
    """Return whether a decoded id is the same to MongoDB as the element it was decoded from."""
    if _is_surely_exact(key):
        return True
    if element[0] == _SYMBOL:
        # MongoDB calls a symbol equal to the text.
        element = bytes([_TEXT]) + element[1:]
    elif element[0] == _DECIMAL:
        # Decimal128 keeps each bit.
        return True
    elif element[0] == _TIMESTAMP and not any(element[-8:]):
        # MongoDB replaces the empty timestamp in a stored document by the time of the write.
        return False
    name = element[1 : element.index(0, 1)].decode(errors="replace")
    return document_from_elements([element]) == bson.encode({name: key}, codec_options=DECODED)


def _check_key(event: bytes, key: Any) -> None:
    """Check that a decoded key is the stored one.

    Raises:
        InexactKey: It is not.
    """
    objects, _ = split_objects(event, {b"documentKey"})
    element = find_element(objects[b"documentKey"], b"_id")
    if element is not None and not holds_exactly(element, key):
        raise InexactKey(INEXACT_KEY)


def _with_fault(raw: bytes, fault: Exception) -> ChangeEvent:
    """Decode the fields of an event that can be decoded."""
    fields: Document = {}
    for _, element in iterate_elements(raw):
        # The remaining fields are not needed to continue the stream after it.
        with contextlib.suppress(BSONError):
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
    """Return the `_id` of the document of a raw change event; None if it has none."""
    document_key = raw.get("documentKey")
    return None if document_key is None else decode(document_key.raw)["_id"]


def _raw(document: bytes | None) -> RawBSONDocument | None:
    return None if document is None else RawBSONDocument(document, RAW)


_TEXT, _SYMBOL, _TIMESTAMP, _DECIMAL = 0x02, 0x0E, 0x11, 0x13
INEXACT_KEY = (
    "its _id has bytes that drivers change (text that is not UTF-8, a name twice, a deprecated "
    "type, the empty timestamp), expected one that stays equal when it is read and written; store "
    "it under another _id"
)

PLAIN_KEY_TYPES = frozenset({str, int, ObjectId})
"""Types of nearly all ids; such an id is its own `identity`."""


def identity(key: Any) -> Any:
    """Return a hashable stand-in for an `_id`, equal where MongoDB's unique index calls ids equal.

    Python calls True and 1 equal, MongoDB does not. MongoDB calls 1, 1.0 and Decimal128("1") equal,
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
    # math.isnan raises on a signaling NaN.
    if key.is_nan() if isinstance(key, Decimal) else isinstance(key, float) and isnan(key):
        return ("nan",)
    # Code and regular expressions are not hashable.
    return key if isinstance(key, Hashable) else bson.encode({"": key})


def identities(keys: Sequence[Any]) -> Sequence[Any]:
    """Return the `identity` of each key, in order."""
    return (
        keys if PLAIN_KEY_TYPES.issuperset(map(type, keys)) else [identity(each) for each in keys]
    )


def possible_ids(keys: Sequence[Any]) -> Sequence[Any]:
    """Return the keys that a document may have as its `_id`.

    MongoDB refuses lists, regular expressions, and documents that begin like an operator, except
    one in the form of a DBRef. `$in` refuses the last kind, or scans all documents.
    """
    return keys if PLAIN_KEY_TYPES.issuperset(map(type, keys)) else list(filter(_is_possible, keys))


def _is_possible(key: Any) -> bool:
    if isinstance(key, Mapping):
        if not next(iter(key), "").startswith("$"):
            return True
        # A document in the form of a DBRef may be an `_id`.
        return [*key][:2] == ["$ref", "$id"] and isinstance(key["$ref"], str)
    return not isinstance(key, list | Regex)


def key_hash(key: Any) -> int:
    """Return 32 bits, equal where MongoDB's unique index calls two ids equal.

    The hash is the same in every process and must never change.
    """
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
        # Equal numbers have equal hashes in Python, whatever their types, and without a seed:
        # Python's reference, "Hashing of numeric types".
        return b"%d" % hash(known)
    if isinstance(known, tuple):
        return repr(known).encode()
    return bson.encode({"": known}, codec_options=DECODED)
