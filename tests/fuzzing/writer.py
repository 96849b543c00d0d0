"""A plain program that writes raw documents and records the document after each write."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.fuzzing.collections import COLLECTIONS, FuzzedCollection
from tests.fuzzing.raw_documents import (
    RawDocuments,
    array_of,
    document_of,
    elements_of,
    has_twice,
    int32,
    text,
)
from tests.support.layouts import Program, program

__all__ = ["HEALTHY", "Document", "Writer"]

HEALTHY = ("healthy-0", "healthy-1", "healthy-2")
OWNER = "ann"
# The driver must not decode the documents that are recorded.
RAW = CodecOptions(document_class=RawBSONDocument, unicode_decode_error_handler="replace")
_OBJECT = 3
_UNDEFINED = 6
_CHANGES = (
    *("replace", "set", "set", "unset", "push", "inc", "rename", "pipeline", "pipeline", "delete"),
)
_OF_LAYOUTS = frozenset({b"docId", b"v", b"_id", b"current", b"prev", b"deleted"})
_NUMBERS = (0x01, 0x10, 0x12, 0x13)


@dataclass
class Document:
    """The recorded writes of one document.

    Attributes:
        key: the element that is its `_id`.
        states: the document after each write that changed it, None where it was deleted.
        writes: descriptions in order, including refused writes.
        embedded: its versions, where it keeps them in itself; for SEPARATE, its current fields.
    """

    collection: str
    key: bytes
    states: list[bytes | None] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    embedded: list[bytes] = field(default_factory=list)

    @property
    def there(self) -> bool:
        return bool(self.states) and self.states[-1] is not None


class Writer:
    """Writes random documents and records them.

    Args:
        random: draws the writes and their targets.
    """

    def __init__(self, client: MongoClient[Any], database: str, random: Random) -> None:
        self._client = client
        self._database = client[database]
        # Its unique index decides which ids are equal.
        self._ids = client[f"{database}_ids"]
        self._random = random
        self._raw = RawDocuments(random)
        self.documents: dict[tuple[str, bytes], Document] = {}
        self.healthy: dict[str, dict[str, dict[str, Any]]] = {}
        self.refused = 0
        self.written = 0
        self._programs: dict[str, Program] = {
            each.name: program(each.layout, self._database, each.name)
            for each in COLLECTIONS
            if each.layout != "ARCHIVE"
        }

    def begin(self) -> None:
        """Write the valid documents, whose values have the model's types."""
        for each in COLLECTIONS:
            for name in HEALTHY:
                self._write_healthy(each, name)

    def step(self) -> None:
        """Write once, or write one version of a classic layout."""
        each = self._random.choice(COLLECTIONS)
        if self._random.random() < 0.15:
            self._write_healthy(each, self._random.choice(HEALTHY))
        elif each.layout == "ARCHIVE":
            self._write_odd(each)
        else:
            self._write_version(each)
        self.written += 1

    def _write_healthy(self, place: FuzzedCollection, name: str) -> None:
        known = self.healthy.setdefault(place.name, {})
        n = known[name]["n"] + 1 if name in known else HEALTHY.index(name)
        body: dict[str, Any] = {
            "n": n, "text": f"{name} {n}", "owner": OWNER, "flag": n % 2 == 0, "tags": ["t", name],
            "share": n / 4, "sub": {"n": n, "text": "s"}, "any": {"x": [n]}, "kind": "OPEN",
        }  # fmt: skip
        if place.layout != "ARCHIVE":
            self._programs[place.name].write(name, body)
        else:
            if place.name == "plain":
                body["code"] = name
            if place.name == "targets":
                body["plainId"] = name
            document = self._document(place.name, b"\x02_id\0" + text(name.encode()))
            query = {"_id": name}
            if name not in known:
                self._database[place.name].insert_one({**query, **body})
            else:
                self._database[place.name].update_one(query, {"$set": body})
            document.writes.append(f"healthy: $set n: {n}")
            self._note(document)
        known[name] = body

    def _write_odd(self, place: FuzzedCollection) -> None:
        known = [
            each
            for each in self.documents.values()
            if each.collection == place.name and b"healthy-" not in each.key
        ]
        if not known or self._random.random() < 0.3:
            document = self._document(place.name, self._raw.key())
        else:
            document = self._random.choice(known)
        if not document.there:
            raw = document_of(self._shuffled([document.key, *self._body(place)]))
            self._run(document, "insert", {"documents": [RawBSONDocument(raw, RAW)]}, raw)
            return
        kind = self._random.choice(_CHANGES)
        query = _query(document.key)
        if kind == "delete":
            change = {"deletes": [{"q": query, "limit": 1}]}
            self._run(document, "delete", change, b"")
            return
        update, raw = self._update(place, kind)
        if kind == "pipeline" and (has_twice(document.states[-1] or raw) or has_twice(raw)):
            # MongoDB 6.0 crashes: document_diff_serialization.cpp, Invariant: result.second.
            return
        change = {"updates": [{"q": query, "u": update}]}
        self._run(document, "update", change, raw, kind)

    def _update(self, place: FuzzedCollection, kind: str) -> tuple[Any, bytes]:
        """Return the `u` of an update command, and its bytes."""
        if kind == "replace":
            raw = document_of(self._body(place))
        elif kind == "pipeline":
            stages = [self._stage() for _ in range(self._random.choice((1, 1, 2)))]
            raw = document_of([_element(_OBJECT, b"%d" % n, each) for n, each in enumerate(stages)])
            return [RawBSONDocument(each, RAW) for each in stages], raw
        elif kind == "rename":
            paths = [_element(2, self._path(), text(self._path()))]
            raw = document_of([_element(_OBJECT, b"$rename", document_of(paths))])
        elif kind == "inc":
            number = self._random.choice(((0x10, int32(1)), (0x12, struct.pack("<q", 2**62))))
            paths = [_element(number[0], self._path(), number[1])]
            raw = document_of([_element(_OBJECT, b"$inc", document_of(paths))])
        else:
            several = {self._path() for _ in range(self._random.choice((1, 1, 2)))}
            changes = [_element(*self._with_name(path)) for path in sorted(several)]
            raw = document_of([_element(_OBJECT, b"$" + kind.encode(), document_of(changes))])
        return RawBSONDocument(raw, RAW), raw

    def _with_name(self, name: bytes) -> tuple[int, bytes, bytes]:
        kind, payload = self._raw.value(2)
        return kind, name, payload

    def _path(self) -> bytes:
        names = [self._raw.name() for _ in range(self._random.choice((1, 1, 2, 3)))]
        return b".".join(each for each in names if each and b"." not in each) or b"any"

    def _stage(self) -> bytes:
        """Draw a pipeline stage with values that are literal, moved, merged, or removed."""
        literal = document_of([_element(*self._with_name(b"$literal"))])
        moved = _element(2, b"in", text(b"$any"))
        choice = self._random.randrange(5)
        if choice == 0:
            inner = document_of([_element(_OBJECT, self._path(), literal)])
            return document_of([_element(_OBJECT, b"$set", inner)])
        if choice == 1:
            inner = document_of(
                [
                    _element(_OBJECT, b"sub", document_of([moved])),
                    _element(2, b"any", text(b"$$REMOVE")),
                ]
            )
            return document_of([_element(_OBJECT, b"$set", inner)])
        if choice == 2:
            inner = document_of([_element(2, b"any", text(b"$sub"))])
            return document_of([_element(_OBJECT, b"$set", inner)])
        if choice == 3:
            return document_of([_element(2, b"$unset", text(self._path()))])
        body = document_of([_element(_OBJECT, b"$literal", document_of(self._raw.elements(2)))])
        several = [_element(2, b"0", text(b"$$ROOT")), _element(_OBJECT, b"1", body)]
        merged = document_of([_element(4, b"$mergeObjects", document_of(several))])
        return document_of([_element(_OBJECT, b"$replaceWith", merged)])

    def _body(self, place: FuzzedCollection) -> list[bytes]:
        found = self._raw.elements()
        if place.name == "targets":
            # Mostly of an existing document.
            names = [*HEALTHY, "nobody"]
            found.append(b"\x02plainId\0" + text(self._random.choice(names).encode()))
        if place.name == "ruled" and self._random.random() < 0.5:
            found.append(b"\x02owner\0" + text(OWNER.encode()))
        return found

    def _shuffled(self, elements: list[bytes]) -> list[bytes]:
        """Shuffle the fields, mostly with `_id` first, where MongoDB puts it anyway."""
        if self._random.random() < 0.2:
            self._random.shuffle(elements)
        return elements

    def _write_version(self, place: FuzzedCollection) -> None:
        """Write a version of an unusual document in a classic layout, whose fields may be
        unusual, too.
        """
        body = [each for each in self._raw.elements() if _name_of(each) not in _OF_LAYOUTS]
        if self._random.random() < 0.15:
            self._write_odd_id(place, body)
            return
        name = f"odd-{self._random.randrange(6)}"
        document = self._document(place.name, b"\x02_id\0" + text(name.encode()))
        # Counts versions; the checks of other layouts do not use it.
        document.states.append(b"")
        number = len(document.states)
        v = b"\x10v\0" + int32(number)
        if self._random.random() < 0.1:
            v = self._raw.named(b"v", 1)
            if v[0] in _NUMBERS:
                # A number that was used before replaces its version, and one lower than the
                # last is only sent live: see docs/explanation/limitations.md.
                v = b"\x0av\0"
        if place.layout == "EMBEDDED":
            self._write_embedded(document, v, body)
        elif place.layout == "SEPARATE":
            self._write_apart(document, v, body)
        else:
            row = [_named(b"docId", document.key), v, *body]
            if place.layout == "CURRENT_FLAG":
                row.append(b"\x08current\0\1")
            elif place.layout == "DELTAS" and self._random.random() < 0.4:
                row.append(self._raw.named(b"unset", 1))
            taken = self._attempt(document, place.name, *_inserting(document_of(row)))
            if taken and place.layout == "CURRENT_FLAG":
                older = {"docId": name, "v": {"$lt": number}, "current": True}
                self._database[place.name].update_many(older, {"$unset": {"current": ""}})

    def _write_odd_id(self, place: FuzzedCollection, body: list[bytes]) -> None:
        """Write the only version of a document with an id of any type."""
        key = self._raw.key()
        document = self._document(place.name, key)
        v = b"\x10v\0" + int32(1)
        if place.layout == "EMBEDDED":
            row = document_of([key, _element(_OBJECT, b"current", document_of([v, *body]))])
        elif place.layout == "SEPARATE":
            row = document_of([key, v, *body])
        else:
            more = [b"\x08current\0\1"] if place.layout == "CURRENT_FLAG" else []
            row = document_of([_named(b"docId", key), v, *body, *more])
        self._attempt(document, place.name, *_inserting(row))

    def _write_embedded(self, document: Document, v: bytes, body: list[bytes]) -> None:
        """Replace the document: MongoDB 6.0 crashes on the difference of a pipeline with a name
        twice.
        """
        current = document_of([v, *body])
        earlier = document.embedded
        prev = _element(4, b"prev", array_of([(_OBJECT, each) for each in earlier]))
        if not earlier and self._random.random() < 0.3:
            prev = self._raw.named(b"prev", 2)
        raw = document_of([_element(_OBJECT, b"current", current), prev])
        if self._attempt(document, document.collection, *_replacing(document.key, raw)):
            earlier.append(current)

    def _write_apart(self, document: Document, v: bytes, body: list[bytes]) -> None:
        """Store the previous version among the old ones, then the current one."""
        if document.embedded:
            row = document_of([_named(b"docId", document.key), *document.embedded])
            self._attempt(document, f"{document.collection}.previous", *_inserting(row))
        raw = document_of([v, *body])
        if self._attempt(document, document.collection, *_replacing(document.key, raw)):
            # The server replaces a timestamp of zeros by its own time.
            stored = self._stored(document)
            document.embedded[:] = [
                whole for name, _, whole in elements_of(stored or b"") if name != b"_id"
            ]

    def _document(self, collection: str, key: bytes) -> Document:
        """Return the record of the document with an id equal to this one."""
        known = self.documents.get((collection, key))
        if known is not None:
            return known
        if key[0] == _UNDEFINED:
            # MongoDB refuses it, also in queries.
            return self.documents.setdefault((collection, key), Document(collection, key))
        raw = RawBSONDocument(document_of([key]), RAW)
        reply = self._ids.command("insert", collection, documents=[raw], codec_options=RAW)
        if reply.get("writeErrors"):
            query = _query(key)
            found = self._ids.get_collection(collection, RAW).find_one(query)
            if found is not None:
                # The same document with its id encoded in another way, or this one.
                key = bytes(found.raw)[4:-1]
        return self.documents.setdefault((collection, key), Document(collection, key))

    def _run(
        self, document: Document, command: str, more: Mapping[str, Any], raw: bytes, kind: str = ""
    ) -> None:
        if self._attempt(document, document.collection, command, more, raw, kind):
            self._note(document)

    def _attempt(
        self,
        document: Document,
        collection: str,
        command: str,
        more: Mapping[str, Any],
        raw: bytes,
        kind: str = "",
    ) -> bool:
        """Send a write; returns whether MongoDB accepted it."""
        said = f"{command} {kind} {raw.hex() if len(raw) < 4000 else f'{len(raw)} bytes'}"
        refused = ""
        try:
            reply = self._database.command(command, collection, **more, codec_options=RAW)
            if reply.get("writeErrors"):
                refused = str(reply["writeErrors"][0].get("code"))
        except PyMongoError as exc:
            refused = str(getattr(exc, "code", exc))
        self.refused += bool(refused)
        document.writes.append(f"{said}{f' REFUSED {refused}' if refused else ''}")
        return not refused

    def _note(self, document: Document) -> None:
        state = self._stored(document)
        if (document.states[-1] if document.states else None) != state:
            document.states.append(state)

    def _stored(self, document: Document) -> bytes | None:
        query = _query(document.key)
        found = self._database.get_collection(document.collection, RAW).find_one(query)
        return None if found is None else bytes(found.raw)


def _name_of(element: bytes) -> bytes:
    return element[1 : element.index(0, 1)]


def _inserting(raw: bytes) -> tuple[str, dict[str, Any], bytes]:
    return "insert", {"documents": [RawBSONDocument(raw, RAW)]}, raw


def _replacing(key: bytes, raw: bytes) -> tuple[str, dict[str, Any], bytes]:
    change = {"q": _query(key), "u": RawBSONDocument(raw, RAW), "upsert": True}
    return "update", {"updates": [change]}, raw


def _query(key: bytes) -> RawBSONDocument:
    """Return a filter for the document with this `_id`, of any type."""
    equals = document_of([_named(b"$eq", key)])
    return RawBSONDocument(document_of([_element(_OBJECT, b"_id", equals)]), RAW)


def _element(kind: int, name: bytes, payload: bytes) -> bytes:
    return bytes([kind]) + name + b"\0" + payload


def _named(name: bytes, element: bytes) -> bytes:
    """Return the value of an element under another name."""
    return element[:1] + name + element[element.index(0, 1) :]
