"""Programs that know nothing of revstream and keep versions in a classic layout, and a shop model
with its products in that layout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from pymongo.database import Database

from revstream.model.compiler.loader import read_model
from revstream.model.definition import HistoryKind, Model

__all__ = ["CLASSIC", "LAYOUTS", "Program", "layout_model", "layout_text", "program"]

Row = dict[str, Any]
Step = Callable[[], object]

# Read from the model language, so that a new layout is tested, too.
CLASSIC = tuple(each.value for each in HistoryKind if each is not HistoryKind.ARCHIVE)
LAYOUTS = (*CLASSIC, HistoryKind.ARCHIVE.value)

_MODEL = """
type Product @collection(name: "NAME", plural: "products", history: HISTORY, version: "v") {
  id: ID!
  sku: String
  name: String!
  price: Decimal
  stock: Int!
  sold: Long
  tags: [String!]
  dimensions: Dimensions
  attributes: JSON
  addedAt: DateTime @stored(as: "added_at")
  supplierId: ID
  supplier: Supplier @reference(by: "supplierId")
}
type Dimensions { width: Float! height: Float! note: String }
type Supplier @collection(name: "suppliers") {
  id: ID!
  name: String!
  products: [Product!]! @referencedBy(field: "supplierId")
}
"""


def layout_text(history: str, name: str = "products") -> str:
    """Return a shop's model with its products in that layout, in the collection of that name."""
    return _MODEL.replace("HISTORY", history).replace("NAME", name)


def layout_model(history: str, name: str = "products") -> Model:
    """Return the same model, compiled."""
    return read_model(layout_text(history, name))


class Program(ABC):
    """Writer of versions, numbered from 1; a deletion takes a number, too.

    `bodies`: the body of each document, None where it was deleted. `in_rows`: the collections in
    which each version is a document.
    """

    in_rows: tuple[str, ...] = ()

    def __init__(self, database: Database[Row], collection: str = "products") -> None:
        self.database = database
        self.collection = database[collection]
        self.previous = database[f"{collection}.previous"]
        self.bodies: dict[Any, Row | None] = {}
        self.numbers: dict[Any, int] = {}
        for each in self.in_rows:
            database[each.format(collection)].create_index([("docId", 1), ("v", 1)], unique=True)

    def write(self, key: Any, body: Mapping[str, Any] | None) -> int:
        """Write the next version of a document (None deletes) and return its number."""
        for step in self.steps(key, body):
            step()
        return self.numbers[key]

    def steps(self, key: Any, body: Mapping[str, Any] | None) -> list[Step]:
        """Return the writes of the next version, to be executed one after the other."""
        number = self.numbers.get(key, 0) + 1
        before = self.bodies.get(key)
        steps = self.writes(key, number, body, before)
        self.bodies[key] = None if body is None else dict(body)
        self.numbers[key] = number
        return steps

    @abstractmethod
    def writes(
        self, key: Any, number: int, body: Mapping[str, Any] | None, before: Row | None
    ) -> list[Step]:
        """Return the writes of the program for a version, from the one before."""


class _Archive(Program):
    def writes(
        self, key: Any, number: int, body: Mapping[str, Any] | None, before: Row | None
    ) -> list[Step]:
        if body is None:
            return [lambda: self.collection.delete_one({"_id": key})]
        whole = {"_id": key, "v": number, **body}
        if before is None:
            return [lambda: self.collection.insert_one(whole)]
        compared = {"_id": key, "v": number - 1}
        change = {name: value for name, value in body.items() if name not in before}
        change |= {n: v for n, v in body.items() if n in before and before[n] != v}
        gone = dict.fromkeys(set(before) - set(body), "")
        if any("." in name for name in {*before, *body}):
            return [lambda: self.collection.replace_one(compared, whole)]
        update = {"$set": {**change, "v": number}, **({"$unset": gone} if gone else {})}
        return [lambda: self.collection.update_one(compared, update)]


class _DocumentPerVersion(Program):
    in_rows = ("{}",)

    def writes(
        self, key: Any, number: int, body: Mapping[str, Any] | None, before: Row | None
    ) -> list[Step]:
        said = {"deleted": True} if body is None else body
        return [lambda: self.collection.insert_one({"docId": key, "v": number, **said})]


class _CurrentFlag(Program):
    in_rows = ("{}",)

    def writes(
        self, key: Any, number: int, body: Mapping[str, Any] | None, before: Row | None
    ) -> list[Step]:
        said = {"deleted": True} if body is None else body
        row = {"docId": key, "v": number, **said, "current": True}
        older = {"docId": key, "v": {"$lt": number}, "current": True}
        insert: Step = lambda: self.collection.insert_one(row)  # noqa: E731
        if number == 1:
            return [insert]
        return [insert, lambda: self.collection.update_many(older, {"$unset": {"current": ""}})]


class _Embedded(Program):
    def writes(
        self, key: Any, number: int, body: Mapping[str, Any] | None, before: Row | None
    ) -> list[Step]:
        state = {"v": number, **({"deleted": True} if body is None else body)}
        if number == 1:
            return [lambda: self.collection.insert_one({"_id": key, "current": state, "prev": []})]
        old = {"v": number - 1, **({"deleted": True} if before is None else before)}
        compared = {"_id": key, "current.v": number - 1}
        update = {"$set": {"current": state}, "$push": {"prev": old}}
        return [lambda: self.collection.update_one(compared, update)]


class _Separate(Program):
    in_rows = ("{}.previous",)

    def writes(
        self, key: Any, number: int, body: Mapping[str, Any] | None, before: Row | None
    ) -> list[Step]:
        whole = None if body is None else {"_id": key, "v": number, **body}
        if before is None:
            return [lambda: self.collection.insert_one(whole or {})]
        old = {"docId": key, "v": number - 1, **before}
        put: Step = lambda: self.previous.insert_one(old)  # noqa: E731
        compared = {"_id": key, "v": number - 1}
        if whole is None:
            gone = {"docId": key, "v": number, "deleted": True}
            say: Step = lambda: self.previous.insert_one(gone)  # noqa: E731
            return [put, say, lambda: self.collection.delete_one(compared)]
        return [put, lambda: self.collection.replace_one(compared, whole)]


class _Deltas(Program):
    in_rows = ("{}",)

    def writes(
        self, key: Any, number: int, body: Mapping[str, Any] | None, before: Row | None
    ) -> list[Step]:
        row: Row = {"docId": key, "v": number}
        if body is None:
            row["deleted"] = True
        elif before is None:
            row |= body
        else:
            row |= {
                name: value
                for name, value in body.items()
                if name not in before or _differ(before[name], value)
            }
            gone = [name for name in before if name not in body]
            row |= {"unset": gone} if gone else {}
        return [lambda: self.collection.insert_one(row)]


def _differ(one: Any, other: Any) -> bool:
    """Compare values so that 1, 1.0 and True differ."""
    return repr(one) != repr(other)


_PROGRAMS: dict[str, type[Program]] = {
    "ARCHIVE": _Archive,
    "DOCUMENT_PER_VERSION": _DocumentPerVersion,
    "CURRENT_FLAG": _CurrentFlag,
    "EMBEDDED": _Embedded,
    "SEPARATE": _Separate,
    "DELTAS": _Deltas,
}


def program(history: str, database: Database[Row], collection: str = "products") -> Program:
    """Return a program that keeps versions in that layout."""
    return _PROGRAMS[history](database, collection)
