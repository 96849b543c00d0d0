"""Plain model of documents and their history, in Python over dicts.

Independent of the code under test. Contents are stored documents without `_id`; versions are
counted as the archive counts them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

import bson
from bson import Decimal128, Int64

__all__ = [
    "DIMENSIONS",
    "PlainDocument",
    "PlainDraft",
    "PlainVersion",
    "api_changes",
    "api_content",
    "canonical",
    "changes",
    "merge_patch",
    "overlap",
    "published_content",
]

Content = dict[str, Any]
Path = tuple[str, ...]
ABSENT: Any = object()

STORED = {"addedAt": "added_at"}
FIELDS = ["sku", "name", "price", "stock", "sold", "tags", "dimensions", "attributes", "addedAt"]
DIMENSIONS = ("width", "height", "note")


@dataclass(frozen=True)
class PlainVersion:
    """One version; `content` is None for a deletion."""

    number: int
    operation: str
    content: Content | None
    author: str | None = None
    comment: str | None = None
    restored_from: int | None = None
    draft: int | None = None


@dataclass
class PlainDraft:
    number: int
    based_on: int
    based_on_draft: int | None
    base: Content
    full: Content
    status: str = "PROPOSED"
    published_as: int | None = None


@dataclass
class PlainDocument:
    """One document and its history. `counted`: whether its entity has a version field."""

    id: str
    counted: bool
    versions: list[PlainVersion] = field(default_factory=list)
    drafts: list[PlainDraft] = field(default_factory=list)

    @property
    def content(self) -> Content | None:
        """Return the current content."""
        return self.versions[-1].content if self.versions else None

    @property
    def number(self) -> int:
        """Return the number of the last version."""
        return self.versions[-1].number if self.versions else 0

    def write(self, operation: str, content: Content | None, **more: Any) -> int:
        """Add a write, by a program that counts versions or not; returns the new version number."""
        number = self.number + 1
        if self.counted and content is not None and content.get("version", 0) > self.number:
            number = content["version"]
        self.versions.append(PlainVersion(number, operation, copy.deepcopy(content), **more))
        return number

    def write_counted(
        self, operation: str, content: Content, expected: int | None, **more: Any
    ) -> int:
        """Add a write by the gateway."""
        content = dict(content)
        if self.counted:
            before = (self.content or {}).get("version", 0)
            content["version"] = before + 1 if expected is None else expected + 1
        return self.write(operation, content, **more)

    def numbered(self, number: int) -> PlainVersion | None:
        return next((each for each in self.versions if each.number == number), None)

    def chain(self, draft: PlainDraft) -> list[PlainDraft] | None:
        """Return the drafts that are published with this one, itself last; None if any was
        rejected.
        """
        found = [draft]
        while found[0].based_on_draft is not None:
            earlier = self.drafts[found[0].based_on_draft - 1]
            if earlier.status == "REJECTED":
                return None
            if earlier.status == "PUBLISHED":
                break
            found.insert(0, earlier)
        return found

    def joint(self, first: PlainDraft) -> int:
        """Return the number of the version on which a chain is based."""
        earlier = None if first.based_on_draft is None else self.drafts[first.based_on_draft - 1]
        return (earlier and earlier.published_as) or first.based_on

    def blame(self) -> dict[str, int]:
        """Return the number of the version that last changed each path of the API."""
        found: dict[str, int] = {}
        before: Content | None = None
        for version in self.versions:
            now = _leaves(version.content)
            earlier = _leaves(before)
            # A removed path has no entry; a path that is added again is blamed on that version.
            found = {
                path: found[path]
                if path in found and _same(value, earlier.get(path, ABSENT))
                else version.number
                for path, value in now.items()
            }
            before = version.content
        return found


def _leaves(content: Content | None) -> dict[str, Any]:
    found = {}
    for name in FIELDS:
        value = (content or {}).get(STORED.get(name, name), ABSENT)
        inner = {}
        if name == "dimensions" and isinstance(value, dict):
            inner = {f"dimensions.{each}": value[each] for each in DIMENSIONS if each in value}
        if value is not ABSENT:
            found.update(inner or {name: value})
    return found


def merge_patch(target: Any, patch: Mapping[str, Any]) -> Content:
    """Apply a JSON merge patch (RFC 7396, section 2); the patch must be an object."""
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merge_patch(result.get(name), value)
        else:
            result[name] = value
    return result


def changes(before: Any, after: Any, path: Path = ()) -> Iterator[tuple[Path, Any, Any]]:
    """Yield (path, before, after) of each difference; ABSENT where a value is missing."""
    for name in {**before, **after}:
        old, new = before.get(name, ABSENT), after.get(name, ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changes(old, new, (*path, name))
        elif not _same(old, new):
            yield (*path, name), old, new


def overlap(one: Content, then: Content, other: Content, now: Content) -> bool:
    """Return whether two changes have a field in common, or one contains the other."""
    return any(
        a[: len(b)] == b or b[: len(a)] == a
        for a, _, _ in _content_changes(one, then)
        for b, _, _ in _content_changes(other, now)
    )


def published_content(chain: list[PlainDraft], content: Content) -> Content:
    """Return the current content with the changes of the chain."""
    result = copy.deepcopy(content)
    for path, _, value in _content_changes(chain[0].base, chain[-1].full):
        place = result
        for name in path[:-1]:
            place = place.setdefault(name, {})
        if value is ABSENT:
            place.pop(path[-1], None)
        else:
            place[path[-1]] = copy.deepcopy(value)
    return result


def _content_changes(before: Content, after: Content) -> Iterator[tuple[Path, Any, Any]]:
    return (each for each in changes(before, after) if each[0][0] != "version")


def api_content(content: Content | None) -> Content | None:
    """Return the content as the API returns it, without the id."""
    if content is None:
        return None
    found = {name: _json(content.get(STORED.get(name, name))) for name in FIELDS}
    if found["dimensions"] is not None:
        found["dimensions"] = {each: found["dimensions"].get(each) for each in DIMENSIONS}
    return found


def api_changes(before: Content | None, after: Content | None) -> list[tuple[Any, ...]]:
    """Return (path, kind, before, after) as the API returns a diff, sorted by path.

    A field that is added or removed is one change.
    """
    names = {STORED.get(name, name): name for name in FIELDS}
    found = []
    for path, old, new in changes(before or {}, after or {}):
        if path[0] not in names:
            continue
        kind = "ADDED" if old is ABSENT else "REMOVED" if new is ABSENT else "CHANGED"
        place = ".".join((names[path[0]], *path[1:]))
        values = [None if each is ABSENT else _json(each) for each in (old, new)]
        found.append((place, kind, *values))
    return sorted(found, key=lambda each: each[0])


def canonical(value: Any) -> bytes:
    """Return bytes that are equal for documents with the same fields and types in any order."""
    return bson.encode(_sorted({"": value}))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value


def _same(one: Any, other: Any) -> bool:
    if one is ABSENT or other is ABSENT:
        return one is other
    return canonical(_narrow(one)) == canonical(_narrow(other))


def _narrow(value: Any) -> Any:
    # 32-bit and 64-bit integers are equal.
    if isinstance(value, dict):
        return {name: _narrow(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_narrow(each) for each in value]
    return int(value) if isinstance(value, Int64) else value


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _json(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_json(each) for each in value]
    if isinstance(value, Decimal128 | Decimal):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return int(value) if isinstance(value, Int64) else value
