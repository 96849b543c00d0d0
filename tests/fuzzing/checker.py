"""Comparison of revstream's results with the recorded writes, by pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import bson
from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion

from tests.fuzzing.raw_documents import ARRAY, OBJECT, document_of, elements_of
from tests.fuzzing.subscribers import Delivery
from tests.fuzzing.writer import Document

__all__ = [
    "Archived",
    "check_deliveries",
    "check_present",
    "check_states",
    "with_indexes",
    "without_own_fields",
]

_OWN = (b"_change", b"_copies")
_MOST_SHOWN = 2000
_TIMESTAMP = 0x11
_HELD = CodecOptions(
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)


@dataclass(frozen=True, slots=True)
class Archived:
    """A version in the archive; `content` is None for a deletion."""

    token: str
    number: int
    operation: str
    gap: bool
    content: bytes | None


def is_held(key: bytes) -> bool:
    """Return whether the driver decodes and encodes this `_id` without a change.

    Events with other ids are set aside.
    """
    raw = document_of([key])
    if key[0] == _TIMESTAMP and not any(key[-8:]):
        return False
    try:
        return bson.encode(bson.decode(raw, _HELD), codec_options=_HELD) == raw
    except (bson.errors.BSONError, ValueError, TypeError):
        return False


def check_states(
    document: Document, versions: Sequence[Archived], *, told: Callable[[bytes], bytes] = bytes
) -> list[str]:
    """Check that each written state is a version, in order and byte for byte.

    Only a gap may stand for missing states, and never for the last one.

    Args:
        told: returns the part of a state that MongoDB reports.
    """
    states = [None if each is None else told(without_own_fields(each)) for each in document.states]
    versions = [
        replace(each, content=None if each.content is None else told(each.content))
        for each in versions
    ]
    if not versions and not is_held(document.key):
        return []
    place, findings = 0, []
    for version in versions:
        rest = states[place:]
        if rest and rest[0] == version.content:
            place += 1
        elif place and states[place - 1] == version.content:
            # Some writes change nothing and are in the oplog all the same.
            continue
        elif version.gap:
            place += rest.index(version.content) + 1 if version.content in rest else bool(rest)
        else:
            right = _shown(rest[0]) if rest else "nothing more"
            said = f"version {version.number} {version.operation} is {_shown(version.content)}"
            findings.append(_about(document, f"{said}, and was {right}"))
            break
    else:
        if place < len(states):
            findings.append(_about(document, f"{len(versions)} versions of {len(states)} states"))
    numbers = [each.number for each in versions]
    if sorted(set(numbers)) != numbers:
        findings.append(_about(document, f"numbers are not in order: {numbers}"))
    return findings


def check_present(
    document: Document,
    versions: Sequence[Archived],
    present: bytes | None,
    *,
    told: Callable[[bytes], bytes] = bytes,
) -> list[str]:
    """Check that the last version equals the document."""
    if not versions and not is_held(document.key):
        return []
    last = versions[-1].content if versions else None
    right = None if present is None else without_own_fields(present)
    if last == right or (last is not None and right is not None and told(last) == told(right)):
        return []
    return [_about(document, f"the last version is {_shown(last)}, the document {_shown(right)}")]


def check_deliveries(
    name: str, deliveries: Sequence[Delivery], start: str, numbers: Mapping[str, int]
) -> list[str]:
    """Check that each version behind the start was delivered once, in order.

    Args:
        start: the token that the subscription started after.
        numbers: by token, in order, the number of each version of the archive.
    """
    told, tokens = [each.token for each in deliveries], [each for each in numbers if each > start]
    findings = []
    if told != tokens:
        missing = [each for each in tokens if each not in set(told)]
        more = [each for each in told if each not in set(tokens)]
        findings.append(
            f"{name}: was sent {len(told)} events of {len(tokens)}; missing {missing[:3]}, "
            f"not in the archive {more[:3]}"
        )
    findings += [
        f"{name}: {each} has the number {numbers.get(each.token)}"
        for each in deliveries
        if each.version is not None and numbers.get(each.token) != each.version
    ]
    return findings[:5]


def with_indexes(raw: bytes) -> bytes:
    """Return the document with the items of all arrays named 0, 1, 2.

    MongoDB describes updates in this form, whatever the stored names are; without post-images that
    is all that is known.
    """
    return _indexed(raw, is_array=False)


def _indexed(raw: bytes, *, is_array: bool) -> bytes:
    made = []
    for n, (name, value, whole) in enumerate(elements_of(raw)):
        name = str(n).encode() if is_array else name
        if whole[0] in (OBJECT, ARRAY):
            value = _indexed(value, is_array=whole[0] == ARRAY)
        made.append(whole[:1] + name + b"\0" + value)
    return document_of(made)


def without_own_fields(raw: bytes) -> bytes:
    """Return the document without the fields that revstream stores in it."""
    if not any(each in raw for each in _OWN):
        return raw
    return document_of([whole for name, _, whole in elements_of(raw) if name not in _OWN])


def _about(document: Document, said: str) -> str:
    writes = "\n    ".join(each[:_MOST_SHOWN] for each in document.writes)
    return f"{document.collection} {document.key!r}: {said}; its writes:\n    {writes}"


def _shown(raw: bytes | None) -> str:
    if raw is None:
        return "gone"
    return raw.hex() if len(raw) < _MOST_SHOWN else f"{len(raw)} bytes"
