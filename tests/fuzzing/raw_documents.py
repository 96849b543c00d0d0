"""BSON documents drawn byte by byte, including documents that no driver creates: each type, also
the deprecated ones, repeated and empty names, text that is not UTF-8, names with a special meaning.

Source: bsonspec.org, version 1.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random

__all__ = [
    "ARRAY",
    "OBJECT",
    "RawDocuments",
    "array_of",
    "document_of",
    "elements_of",
    "has_twice",
    "int32",
    "text",
]

OBJECT, ARRAY = 3, 4
_FIXED = {
    0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16,
    0xFF: 0, 0x7F: 0,
}  # fmt: skip
_COUNTED = {0x02: 4, 0x03: 0, 0x04: 0, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}
Value = tuple[int, bytes]
"""The type of an element, and the bytes after its name."""

# Model fields (collections.py), names of revstream and of layouts, and unusual names.
_OWN_NAMES = (
    b"n", b"text", b"big", b"share", b"flag", b"price", b"at", b"oid", b"uuid", b"kind", b"tags",
    b"numbers", b"sub", b"subs", b"any", b"owner", b"plainId", b"name", b"code",
)  # fmt: skip
_RESERVED = (
    b"version", b"_change", b"_copies", b"prev", b"current", b"unset", b"whole", b"deleted",
    b"docId", b"v", b"full", b"patch", b"packed", b"gap", b"until",
)  # fmt: skip
_ODD_NAMES = (
    b"", b"0", b"1", b"00", b"-1", b"10", b"a.b", b"a.0", b".", b"$set", b"$ref", b"$id", b"$db",
    b"$$ROOT", b"$oid", b"x.$y", b"__proto__", b"constructor", b"\xc3\xa9", b"\xff\xfe",
    b"\xed\xa0\x80", b"_id", b"a", b"b", b"x" * 300, b"_", b"id",
)  # fmt: skip
_TEXTS = (
    b"", b"a", b"ann", b"1", b"$name", b"a\0b", b"\xff", b"\xc3(", b"\xf0\x9f\x98\x80", b"x" * 5000,
    b"\xed\xa0\x80", b"OPEN", b"in-progress", b"2024-05-01T12:00:00Z", b"\xe2\x80\xa8", b"-0",
    b"\x01\x1f", b"healthy",
)  # fmt: skip
_INT32 = (0, 1, -1, 7, 2**31 - 1, -(2**31))
_INT64 = (0, 1, -1, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, 2**63 - 1, -(2**63))
_DATES = (
    0, -1, 1_700_000_000_000, 253_402_300_799_999, 253_402_300_800_000, -62_135_596_800_000,
    -62_135_596_800_001, 8_640_000_000_000_001, 2**63 - 1, -(2**63),
)  # fmt: skip
_DOUBLES = (
    0.0, -0.0, 1.0, 0.5, -1.5, float("nan"), float("inf"), float("-inf"), 5e-324, 1.8e308 / 10,
    2.0**31, 2.0**53, 2.0**63, 1e300,
)  # fmt: skip
# NaN with a payload, signalling NaN.
_NANS = (b"\x01\x00\x00\x00\x00\x00\xf8\x7f", b"\x01\x00\x00\x00\x00\x00\xf0\x7f")
# 0, 1, 1.00, NaN, infinities, the largest, a coefficient that is not canonical.
_DECIMALS = tuple(
    struct.pack("<QQ", low, high)
    for low, high in (
        (0, 0x3040000000000000), (1, 0x3040000000000000), (100, 0x303C000000000000),
        (0, 0x7C00000000000000), (0, 0x7800000000000000), (0, 0xF800000000000000),
        (0x378D8E63FFFFFFFF, 0x5FFFED09BEAD87C0), (2**64 - 1, 0x6FFFFFFFFFFFFFFF),
        (0, 0xB040000000000000), (0, 0x7E00000000000001),
    )
)  # fmt: skip
_BINARIES = tuple(
    int.to_bytes(len(data), 4, "little") + bytes([subtype]) + data
    for subtype, data in (
        (0, b""), (0, b"\0\xff"), (2, b"\x01\0\0\0x"), (3, bytes(16)), (4, bytes(range(16))),
        (4, b"short"), (5, bytes(16)), (6, b"e"), (7, b"c"), (128, b"user"), (255, b""),
    )
)  # fmt: skip
_OID = bytes.fromhex("0123456789abcdef01234567")
_LONGEST_KEY = 2000
_REGEXES = (b"\0\0", b"a\0i\0", b"(\0\0", b"\xff\0\0", b"^x\0imsx\0")


def int32(number: int) -> bytes:
    return struct.pack("<i", number)


def text(raw: bytes) -> bytes:
    return int32(len(raw) + 1) + raw + b"\0"


def document_of(elements: Sequence[bytes]) -> bytes:
    body = b"".join(elements)
    return int32(len(body) + 5) + body + b"\0"


def elements_of(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the name, the value and the whole bytes of each field of a document.

    Independent of revstream's own implementation, which it checks.
    """
    start = 4
    while start < len(raw) - 1:
        value = raw.index(0, start + 1) + 1
        kind = raw[start]
        if kind in _FIXED:
            end = value + _FIXED[kind]
        elif kind in _COUNTED:
            end = value + _COUNTED[kind] + int.from_bytes(raw[value : value + 4], "little")
        else:
            end = raw.index(0, raw.index(0, value) + 1) + 1
        yield raw[start + 1 : value - 1], raw[value:end], raw[start:end]
        start = end


def has_twice(raw: bytes) -> bool:
    """Return whether a document, or a nested one, contains a name twice."""
    found = list(elements_of(raw))
    if len({name for name, _, _ in found}) < len(found):
        return True
    return any(has_twice(value) for _, value, whole in found if whole[0] in (OBJECT, ARRAY))


def array_of(values: Sequence[Value]) -> bytes:
    return document_of([_named(str(n).encode(), each) for n, each in enumerate(values)])


def _named(name: bytes, value: Value) -> bytes:
    return bytes([value[0]]) + name + b"\0" + value[1]


class RawDocuments:
    """Documents drawn from `random`."""

    def __init__(self, random: Random) -> None:
        self._random = random
        draw = random.choice
        self._scalars: tuple[Callable[[], Value], ...] = (
            lambda: (0x01, struct.pack("<d", draw(_DOUBLES))),
            lambda: (0x01, draw(_NANS)),
            lambda: (0x02, text(draw(_TEXTS))),
            lambda: (0x02, text(draw(_TEXTS))),
            lambda: (0x05, draw(_BINARIES)),
            lambda: (0x06, b""),
            lambda: (0x07, _OID),
            lambda: (0x08, bytes([random.randrange(2)])),
            lambda: (0x09, struct.pack("<q", draw(_DATES))),
            lambda: (0x0A, b""),
            lambda: (0x0B, draw(_REGEXES)),
            lambda: (0x0C, text(draw(_TEXTS).replace(b"\0", b"")) + _OID),
            lambda: (0x0D, text(draw(_TEXTS))),
            lambda: (0x0E, text(draw(_TEXTS))),
            lambda: (0x0F, self._code_with_scope()),
            lambda: (0x10, int32(draw(_INT32))),
            lambda: (0x11, struct.pack("<II", draw((0, 1, 2**32 - 1)), draw((0, 1, 2**32 - 1)))),
            lambda: (0x12, struct.pack("<q", draw(_INT64))),
            lambda: (0x13, draw(_DECIMALS)),
            lambda: (0x7F, b""),
            lambda: (0xFF, b""),
        )

    def name(self) -> bytes:
        kinds = (_OWN_NAMES, _OWN_NAMES, _ODD_NAMES, _RESERVED)
        return self._random.choice(self._random.choice(kinds))

    def value(self, depth: int = 3) -> Value:
        """Draw any value of a limited depth, except for few that are very deep or long."""
        kind = self._random.random()
        if depth <= 0 or kind < 0.6:
            return self._random.choice(self._scalars)()
        if kind < 0.75:
            return OBJECT, document_of(self.elements(depth - 1))
        if kind < 0.9:
            few = self._random.choice((0, 1, 2, 4))
            return ARRAY, array_of([self.value(depth - 1) for _ in range(few)])
        return self._random.choice(
            (self._reference, self._deep, self._long, self._odd_array, self._twice)
        )()

    def element(self, depth: int = 3) -> bytes:
        return _named(self.name(), self.value(depth))

    def elements(self, depth: int = 3) -> list[bytes]:
        found = [self.element(depth) for _ in range(self._random.choice((0, 1, 2, 2, 3, 6)))]
        if found and self._random.random() < 0.15:
            found.append(self._random.choice(found))
        return found

    def named(self, name: bytes, depth: int = 3) -> bytes:
        return _named(name, self.value(depth))

    def key(self) -> bytes:
        """Draw an `_id` of any type, including those that MongoDB refuses."""
        if self._random.random() < 0.6:
            return _named(b"_id", (0x02, text(b"d%d" % self._random.randrange(10**9))))
        while len(key := self.named(b"_id", 2)) > _LONGEST_KEY:
            pass
        return key

    def _code_with_scope(self) -> bytes:
        body = text(self._random.choice(_TEXTS)) + document_of(self.elements(0))
        return int32(len(body) + 4) + body

    def _reference(self) -> Value:
        """Draw a value with the form of a DBRef."""
        shape = [
            _named(b"$ref", (0x02, text(b"plain"))),
            self.named(b"$id", 0),
            *([_named(b"$db", (0x02, text(b"other")))] if self._random.random() < 0.5 else []),
            *([self.element(0)] if self._random.random() < 0.5 else []),
        ]
        return OBJECT, document_of(shape)

    def _deep(self) -> Value:
        value: Value = self._random.choice(self._scalars)()
        for _ in range(self._random.choice((20, 60, 90, 140))):
            if self._random.random() < 0.5:
                value = ARRAY, array_of([value])
            else:
                value = OBJECT, document_of([_named(self.name(), value)])
        return value

    def _long(self) -> Value:
        if self._random.random() < 0.5:
            value = self._random.choice(self._scalars)()
            return ARRAY, array_of([value] * self._random.choice((100, 3000)))
        return 0x02, text(self._random.choice((b"l", b"\xff")) * 200_000)

    def _odd_array(self) -> Value:
        """Draw an array whose indexes do not count up from 0."""
        return ARRAY, document_of([self.element(1) for _ in range(3)])

    def _twice(self) -> Value:
        """Draw a document with two values for one name."""
        name = self.name()
        return OBJECT, document_of([self.named(name, 1), self.element(1), self.named(name, 1)])
