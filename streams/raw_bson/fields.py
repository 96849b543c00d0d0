"""Split BSON documents into fields and join them, without decoding.

Python's values cannot hold every BSON type, nor text that is not UTF-8; stored content stays the
same byte for byte.

Source: bsonspec.org, version 1.1.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator

__all__ = [
    "Element",
    "document_from_elements",
    "find_changed_elements",
    "find_element",
    "iterate_elements",
    "remove_field",
    "rename_element",
    "split_objects",
]

Element = tuple[bytes, bytes]
"""A field: its name, and its complete BSON element with type and name."""

_FIXED = {
    0x01: 8,  # double
    0x06: 0,  # undefined
    0x07: 12,  # ObjectId
    0x08: 1,  # boolean
    0x09: 8,  # date
    0x0A: 0,  # null
    0x10: 4,  # int32
    0x11: 8,  # timestamp
    0x12: 8,  # int64
    0x13: 16,  # Decimal128
    0xFF: 0,  # minimum
    0x7F: 0,  # maximum
}
# Types that begin with a length, and the bytes that this length does not count.
_COUNTED = {
    0x02: 4,  # string
    0x03: 0,  # object
    0x04: 0,  # array
    0x05: 5,  # binary
    0x0C: 16,  # DBPointer
    0x0D: 4,  # code
    0x0E: 4,  # symbol
    0x0F: 0,  # code with scope
}
_REGEX = 0x0B
_OBJECT = 0x03
_length = struct.Struct("<i")


def iterate_elements(raw: bytes) -> Iterator[Element]:
    """Yield the top-level fields of a document in their order.

    Raises:
        ValueError: An element of an unknown BSON type.
    """
    start, end = 4, len(raw) - 1
    while start < end:
        value = raw.index(0, start + 1) + 1
        after = _end(raw, raw[start], value)
        yield raw[start + 1 : value - 1], raw[start:after]
        start = after


def split_objects(raw: bytes, names: Collection[bytes]) -> tuple[dict[bytes, bytes], bytes]:
    """Split a document into the named top-level objects and a document of everything else.

    Raises:
        ValueError: An element of an unknown BSON type.
    """
    found: dict[bytes, bytes] = {}
    others: list[bytes] = []
    start, end = 4, len(raw) - 1
    other = start
    # Like `iterate_elements`, at half the cost: it runs for each change event.
    while start < end:
        value = raw.index(0, start + 1) + 1
        kind = raw[start]
        after = value + _FIXED[kind] if kind in _FIXED else _end(raw, kind, value)
        if kind == _OBJECT:
            name = raw[start + 1 : value - 1]
            if name in names:
                found[name] = raw[value:after]
                others.append(raw[other:start])
                other = after
        start = after
    others.append(raw[other:end])
    return found, document_from_elements(others)


def find_changed_elements(before: bytes, after: bytes) -> list[tuple[Element, Element]] | None:
    """Return the elements that differ between two documents with the same fields in the same order.

    Returns:
        (element before, element after) of each field whose bytes differ; None if names or order
        differ.

    Raises:
        ValueError: An element of an unknown BSON type.
    """
    found: list[tuple[Element, Element]] = []
    start, end, there = 4, len(after) - 1, 4
    while start < end:
        value = after.index(0, start + 1) + 1
        kind = after[start]
        next_ = value + _FIXED[kind] if kind in _FIXED else _end(after, kind, value)
        element = after[start:next_]
        if before.startswith(element, there):
            there += next_ - start
        else:
            name = after[start + 1 : value]
            if not before.startswith(name, there + 1):
                return None
            next_there = _end(before, before[there], there + 1 + len(name))
            name = name[:-1]
            found.append(((name, before[there:next_there]), (name, element)))
            there = next_there
            if before[there:] == after[next_:]:
                # The usual case, long before the end.
                return found
        start = next_
    return found if there == len(before) - 1 else None


def document_from_elements(elements: Iterable[bytes]) -> bytes:
    """Return the document that consists of these elements."""
    body = b"".join(elements)
    return _length.pack(len(body) + 5) + body + b"\0"


def find_element(raw: bytes, name: bytes) -> bytes | None:
    """Return the first top-level element with a name; None if no field has it."""
    return next((element for found, element in iterate_elements(raw) if found == name), None)


def rename_element(element: bytes, name: str) -> bytes:
    """Return the element with another name and the same value."""
    return element[:1] + name.encode() + element[element.index(0, 1) :]


def remove_field(raw: bytes, name: str) -> bytes:
    """Return the document without its top-level fields of a name.

    Raises:
        ValueError: An element of an unknown BSON type.
    """
    wanted = name.encode()
    return document_from_elements(
        element for found, element in iterate_elements(raw) if found != wanted
    )


def _end(raw: bytes, kind: int, value: int) -> int:
    """Return the offset after a value."""
    if kind in _FIXED:
        return value + _FIXED[kind]
    if kind in _COUNTED:
        return value + _COUNTED[kind] + int(_length.unpack_from(raw, value)[0])
    if kind == _REGEX:
        return raw.index(0, raw.index(0, value) + 1) + 1
    raise ValueError(f"BSON type: 0x{kind:02X}, expected one of the specification")
