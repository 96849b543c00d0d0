"""Keyset pagination: total orders of documents, and cursors that mark a position in one.

A cursor holds the sort key of an item, so the next page is found by an index, without counting, and
does not shift when earlier items are written. The order is MongoDB's own across all BSON types
(null and missing values are equal and come first), the last key is unique, and the tie-breaker has
the direction of the key before it, so that an index can serve it.

Guarantees: walking the pages, forwards or backwards, visits each document once, whatever its
values.
Does not guarantee: documents that hold a list where the order expects one value. MongoDB sorts them
by their smallest or largest item; they are returned at that position and skipped by cursors.
Source: docs/decisions/0011-keyset.md.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import bson
from bson.binary import Binary
from bson.code import Code
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.errors import BSONError
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from revstream.resolvers.errors import BadUserInput
from revstream.streams.mongo.driver.codecs import DECODED, decode

__all__ = ["Keyset", "prefixes", "reversed_keys"]

Keys = tuple[tuple[str, int], ...]

# MongoDB's order of types, each by the aliases of `$type`; null stands for what is missing too.
# spec: "Comparison/Sort Order". A list is placed by one of its items; an empty one comes before
# null, and one whose item is a list in the place of lists.
_BRACKETS: tuple[tuple[str, ...], ...] = (
    ("minKey",),
    ("empty list",),
    ("null",),
    ("number",),
    ("string", "symbol"),
    ("object",),
    ("list of lists",),
    ("binData",),
    ("objectId",),
    ("bool",),
    ("date",),
    ("timestamp",),
    ("regex",),
    ("dbPointer",),
    ("javascript",),
    ("javascriptWithScope",),
    ("maxKey",),
)
_BRACKET_OF = {alias: place for place, aliases in enumerate(_BRACKETS) for alias in aliases}
# Types with a single value, or whose values are skipped: no comparison within the type is needed.
_SINGLE = frozenset({"minKey", "empty list", "null", "list of lists", "maxKey"})
_POINTS: tuple[tuple[int, Any], ...] = (
    (_BRACKET_OF["minKey"], MinKey()),
    (_BRACKET_OF["null"], None),
)
_NOT_BY_TYPE = frozenset({"minKey", "empty list", "null", "list of lists"})
# `$gt` refuses a regular expression, and compares no code.
_BY_EXPRESSION = frozenset({"regex", "javascript", "javascriptWithScope"})
_DIGEST_BYTES = 4
# MongoDB allows 180 levels, including those of the query around the value.
_MOST_LEVELS = 150


@dataclass(frozen=True, slots=True)
class Keyset:
    """Total order by stored paths, each with direction 1 or -1; the last path must be unique.

    Attributes:
        kind: name of the list, part of its cursors.
        keys: paths and directions.
        uniform: True for a single path whose values have one type.
    """

    kind: str
    keys: Keys
    uniform: bool = False

    @property
    def name(self) -> str | None:
        """Name of the only top-level field of the order; None if there are more, or nested ones."""
        path = self.keys[0][0]
        return path if len(self.keys) == 1 and "." not in path else None

    def cursor(
        self,
        document: Mapping[str, Any],
        placed: Sequence[Any] | None = None,
        *,
        backwards: bool = False,
    ) -> str:
        """Return the cursor of a document.

        Args:
            placed: the server's sort key, which says where a document with a list is sorted.
            backwards: True if the document was read in the opposite order.
        """
        return self.cursor_of(self.values(document, placed, backwards=backwards))

    def values(
        self,
        document: Mapping[str, Any],
        placed: Sequence[Any] | None = None,
        *,
        backwards: bool = False,
    ) -> Sequence[Any]:
        """Return the values that a document's cursor holds; arguments as for `cursor`."""
        values = [_value(document, path) for path, _ in self.keys]
        if placed is not None:
            keys = reversed_keys(self.keys) if backwards else self.keys
            values = [
                _place_of_list(document, path, direction, key) if isinstance(value, list) else value
                for value, key, (path, direction) in zip(values, placed, keys, strict=True)
            ]
        return values

    def cursor_of(self, values: Sequence[Any]) -> str:
        """Return the cursor that holds these values."""
        body = bson.encode({str(n): value for n, value in enumerate(values)}, codec_options=DECODED)
        return base64.urlsafe_b64encode(self._digest() + body).decode().rstrip("=")

    def query_after(self, cursor: str, name: str, *, backwards: bool = False) -> dict[str, Any]:
        """Return a query for the documents after a cursor, or before it with `backwards`.

        Args:
            cursor: a cursor of this order.
            name: the name of the argument, for the error message.

        Raises:
            BadUserInput: not a cursor of this order.
        """
        values = self.values_of(cursor, name)
        keys = reversed_keys(self.keys) if backwards else self.keys
        if self.uniform:
            ((path, direction),) = keys
            return {path: {"$gt" if direction > 0 else "$lt": values[0]}}
        alternatives: list[dict[str, Any]] = []
        equal: list[dict[str, Any]] = []
        for (path, direction), value in zip(keys, values, strict=True):
            alternatives += [
                _all([*equal, each]) for each in _beyond(path, value, ascending=direction > 0)
            ]
            equal.append({path: {"$eq": value}})
        if not alternatives:
            return {keys[-1][0]: {"$in": []}}
        singles = [
            {part: {"$not": {"$type": "array"}}} for path, _ in keys[:-1] for part in prefixes(path)
        ]
        return _all([{"$or": alternatives}, *singles])

    def values_of(self, cursor: str, name: str = "cursor") -> list[Any]:
        """Return the values that a cursor holds; arguments and errors as for `behind`."""
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            if raw[:_DIGEST_BYTES] != self._digest():
                raise ValueError("cursor of another list or order")
            values = list(decode(raw[_DIGEST_BYTES:]).values())
            if len(values) != len(self.keys) or not all(map(self._holds, values)):
                raise ValueError("values that `cursor` does not write")
        except (ValueError, binascii.Error, BSONError, RecursionError) as exc:
            shown = cursor if len(cursor) <= 60 else f"{cursor[:57]}..."
            raise BadUserInput(
                f"{name}: {shown!r}, expected a cursor of this list in this order; take one from "
                "a page of it",
                argument=name,
            ) from exc
        return values

    def _holds(self, value: Any) -> bool:
        """Return whether a value can be part of a query; clients may have built the cursor."""
        if self.uniform and _alias(value) in _BY_EXPRESSION:
            return False
        return not _deeper(value, _MOST_LEVELS)

    def _digest(self) -> bytes:
        return _digest(self.kind, self.keys)


@lru_cache(maxsize=1024)
def _digest(kind: str, keys: Keys) -> bytes:
    text = "\n".join([kind, *(f"{path} {direction}" for path, direction in keys)])
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def prefixes(path: str) -> list[str]:
    """Return the paths of the values that a path leads through, and the path itself."""
    names = path.split(".")
    return [".".join(names[: n + 1]) for n in range(len(names))]


def reversed_keys(keys: Keys) -> Keys:
    """Return the keys with opposite directions."""
    return tuple((path, -direction) for path, direction in keys)


def _beyond(path: str, value: Any, *, ascending: bool) -> Iterator[dict[str, Any]]:
    """Return queries that together match all strictly greater, or smaller, values at a path.

    Values of other types are included: `$gt` and `$lt` stay within the type of their operand. The
    planner turns an `$or` of simple bounds into a sorted merge of index scans; it does not do so
    for `$expr`.
    """
    bracket = _bracket(value)
    aliases = _BRACKETS[bracket]
    operator = "$gt" if ascending else "$lt"
    if aliases[0] in _BY_EXPRESSION:
        compared = {"$expr": {operator: [f"${path}", {"$literal": value}]}}
        yield _all([{path: {"$type": list(aliases)}}, compared])
    elif aliases[0] == "number" and _is_nan(value):
        # The order sorts NaN as the smallest number; `$lt` and `$gt` never match it.
        if ascending:
            yield {path: {"$gte": float("-inf")}}
    elif aliases[0] not in _SINGLE:
        yield {path: {operator: value}}
    # Few branches: the planner gives up merging index scans where there are many (8 on 6.0.5).
    points = [
        each for place, each in _POINTS if (place > bracket) == ascending and place != bracket
    ]
    if aliases[0] == "number" and not ascending and not _is_nan(value):
        points.append(float("nan"))
    if points:
        yield {path: {"$in": points}}
    others = _BRACKETS[bracket + 1 :] if ascending else _BRACKETS[:bracket]
    types = [alias for each in others if each[0] not in _NOT_BY_TYPE for alias in each]
    if types:
        yield {path: {"$type": types}}


def _bracket(value: Any) -> int:
    return _BRACKET_OF[_alias(value)]


def _alias(value: Any) -> str:
    match value:
        case []:
            return "empty list"
        case list():
            return "list of lists"
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float() | Decimal128():
            return "number"
        # before str, of which it is a subclass
        case Code():
            return "javascript" if value.scope is None else "javascriptWithScope"
        case str():
            return "string"
        case bytes() | Binary() | UUID():
            return "binData"
        case ObjectId():
            return "objectId"
        case datetime() | DatetimeMS():
            return "date"
        case Timestamp():
            return "timestamp"
        case Regex():
            return "regex"
        case MinKey():
            return "minKey"
        case MaxKey():
            return "maxKey"
        case _:
            return "object"


def _deeper(value: Any, levels: int) -> bool:
    """Return whether a value has more than this many levels."""
    parts = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list):
        return isinstance(value, Code) and value.scope is not None and _deeper(value.scope, levels)
    return not levels or any(_deeper(each, levels - 1) for each in parts)


def _is_nan(value: Any) -> bool:
    if isinstance(value, Decimal128):
        return bool(value.to_decimal().is_nan())
    return bool(value != value)  # noqa: PLR0124 — NaN


def _place_of_list(document: Mapping[str, Any], path: str, direction: int, key: Any) -> Any:
    """Return the sort position of a list: its smallest or largest item, or a marker value.

    Args:
        path: leads to the list, or through it.
        key: the server's sort key. For an empty list it is None, as for null.
    """
    if isinstance(key, list):
        return [[]]
    found = list(_reached(document, path.split(".")))
    if key is None and [] in found and (direction > 0 or not any(map(_holds_null, found))):
        return []
    return key


def _holds_null(value: Any) -> bool:
    return value is None or (isinstance(value, list) and None in value)


def _reached(value: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield the values at the end of a path, through lists; None where one is missing."""
    if not names:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _reached(item, names)
    else:
        yield from _reached(value.get(names[0]) if isinstance(value, Mapping) else None, names[1:])


def _value(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for name in path.split("."):
        if isinstance(value, list):
            return value
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _all(queries: list[dict[str, Any]]) -> dict[str, Any]:
    return queries[0] if len(queries) == 1 else {"$and": queries}
