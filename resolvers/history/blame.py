"""Blame: for each field that a document has now, the version that last changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Entity, Field, Model
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.pagination.projection import Fields
from revstream.resolvers.values.field_diff import api_value, hidden_fields, visible_fields
from revstream.streams.core.errors import HistoryLost
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["FieldBlame", "blame_documents"]

_FIRST_READ = 32
_MOST_PER_READ = 2048
"""Versions read per document and round trip: doubled twice each time, up to this."""

_WHOLE = frozenset({"INSERT", "BASELINE"})
"""Operations that brought every field there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldBlame:
    """`path`: dotted API names. `value`: as JSON. `version`: the one that last changed it."""

    path: str
    value: Any
    version: Version


@dataclass(frozen=True, slots=True)
class _Leaf:
    path: str
    stored: str
    value: Any


async def blame_documents(
    history: VersionHistory, model: Model, entity: Entity, ids: Sequence[Any], fields: Fields | None
) -> list[list[FieldBlame]]:
    """N ids -> for each document the fields that its last archived version has, in the model's
    order.

    Embedded documents are followed down to their fields; a list or a JSON field is one. Nothing for
    documents that are deleted or unknown, and for fields of which the version that last changed
    them was dropped. The number of round trips grows with the logarithm of the versions that have
    to be looked through, not with the number of documents; of those versions only the changed paths
    are read.

    Args:
        fields: of the versions' states; as `VersionHistory` has it.
    """
    present = await history.newest(
        entity, ids, frozenset(each.stored for each in visible_fields(entity))
    )
    searches = [_BlameSearch(model, entity, version) for version in present]
    limit = _FIRST_READ
    while pending := [each for each in searches if each.missing]:
        older = await history.changes_before(
            entity, [(each.document, each.number) for each in pending], limit=limit
        )
        for search, versions in zip(pending, older, strict=True):
            search.look_through(versions, end=len(versions) < limit)
        limit = min(4 * limit, _MOST_PER_READ)
    wanted = [(each.document, number) for each in searches for number in each.found.values()]
    changed_by = iter(_all_there(await history.by_number(entity, wanted, fields)))
    return [each.blames(changed_by) for each in searches]


def _all_there(found: Sequence[Version | HistoryLost | None]) -> Iterator[Version | None]:
    """Check that no version is missing.

    Raises:
        HistoryLost: One of them was dropped since its number was read.
    """
    for each in found:
        if isinstance(each, HistoryLost):
            raise each
        yield each


class _BlameSearch:
    """Search for the last change of each leaf of one document."""

    def __init__(self, model: Model, entity: Entity, present: Version | None) -> None:
        self.found: dict[str, int] = {}
        self._leaves: list[_Leaf] = []
        self.document: Any = None
        self.number = 0
        if present is not None and present.full is not None and present.operation != "DELETE":
            self.document = present.document
            fields = visible_fields(entity)
            if entity.discriminator is not None:
                known = model.variant(entity, present.full)
                fields = (each for each in known.fields if each.stored not in hidden_fields(entity))
            self._leaves = list(_leaves(model, fields, present.full))
            self.number = present.number
        self.missing = {leaf.stored for leaf in self._leaves}
        self._whole = present is not None and present.previous is None and present.cut is None
        if self.missing and present is not None:
            self._take(present.number, present.operation, present.changed)

    def look_through(self, versions: Sequence[Document], *, end: bool) -> None:
        """Look at versions, newest first, all older than those before.

        A version that is hidden from the caller ends the search.

        Args:
            end: There are no others; a leaf without a change came with the oldest version, or with
            a dropped one.
        """
        for each in versions:
            if "hidden" in each:
                # As if the version after it were the first, so that the changed fields stay hidden.
                self._take(self.number, "INSERT", ())
            elif self.missing:
                self._take(each["v"], each["op"], each["changed"])
                self._whole = each.get("prev") is None and each.get("cut") is None
        if end and self._whole:
            self._take(self.number, "INSERT", ())
        elif end:
            self.missing.clear()

    def blames(self, versions: Iterator[Version | None]) -> list[FieldBlame]:
        """Return the blames.

        Args:
            versions: Those of `found`, in its order, and then those of others.
        """
        by_leaf = {stored: next(versions) for stored in self.found}
        return [
            FieldBlame(path=leaf.path, value=leaf.value, version=version)
            for leaf in self._leaves
            if (version := by_leaf.get(leaf.stored)) is not None
        ]

    def _take(self, number: int, operation: str, changed: Sequence[str]) -> None:
        self.number = number
        for stored in list(self.missing):
            if operation in _WHOLE or any(_touches(path, stored) for path in changed):
                self.found[stored] = number
                self.missing.remove(stored)


def _touches(changed: str, leaf: str) -> bool:
    """Return whether a change at one path changes a leaf: at it, around it, or inside of it."""
    return changed == leaf or leaf.startswith(f"{changed}.") or changed.startswith(f"{leaf}.")


def _leaves(
    model: Model,
    fields: Iterator[Field] | Sequence[Field],
    document: Mapping[str, Any],
    path: str = "",
    stored: str = "",
) -> Iterator[_Leaf]:
    for field in fields:
        if field.stored not in document:
            continue
        value = document[field.stored]
        name, place = path + field.name, stored + field.stored
        inner: list[_Leaf] = []
        if isinstance(field.type, str) and isinstance(value, Mapping) and not field.is_list:
            kind = model.variant(model.embedded(field.type), value)
            inner = list(_leaves(model, kind.fields, value, f"{name}.", f"{place}."))
        # An embedded document with nothing in it is there all the same.
        yield from inner or [_Leaf(name, place, api_value(field, model, value))]
