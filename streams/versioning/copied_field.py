"""Copied fields of `@copy`, and the source version stored with each copy.

A document that has copies contains `_copies: {<path of the copy>: [{of, v}, …]}`: the source and
the version that each copy is of, one entry per source (several if the copy is in a list of embedded
documents). It is set in the same write as the copy. Version numbers of a source only grow, so of
two writes the one with the lower number is late, whichever process makes it, and whenever. Source:
docs/decisions/0020-copies.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from revstream.model.definition import Model, ObjectType
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.raw_bson.diff import is_same
from revstream.streams.versioning.version import Version

__all__ = ["CopiedField", "SourceState", "copied_fields"]

_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A state of a source: the copied field has `value` from version `since` to version `number`.

    A source without versions has None in version 0.
    """

    source: Any
    number: int
    value: Any
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedField:
    """One `@copy`, with all names as stored.

    Attributes:
        source: Collection of the source.
        of: The copied field of the source.
        target: Collection of the target.
        steps: Path through embedded documents and their lists to the object that holds the copy; ()
            for the document itself.
        by: Field of the reference in that object.
        field: Field of the copy in that object.
        counts: Version field of the target.
    """

    source: str
    of: str
    target: str
    steps: tuple[str, ...]
    by: str
    field: str
    counts: str | None

    @property
    def name(self) -> str:
        """Name that contains all that the copy depends on: a changed copy starts anew."""
        return f"{self.source}.{self.of}>{self.target}.{self.path}({self.by})"

    @property
    def path(self) -> str:
        return ".".join((*self.steps, self.field))

    @property
    def reference_path(self) -> str:
        return ".".join((*self.steps, self.by))

    @property
    def key(self) -> str:
        """Key in `_copies`, where a name with a dot would be a path."""
        return self.path.replace("%", "%25").replace(".", "%2E")

    def may_change(self, version: Version) -> bool:
        """Return whether a version of the source may have another value than the version before."""
        if version.operation in _ANEW or version.gap or version.cut is not None:
            return True
        return any(p == self.of or p.startswith(f"{self.of}.") for p in version.changed)

    def source_ids(self, document: Document) -> Iterator[Any]:
        """Yield the ids that a target refers to; an id may occur more than once."""
        for holder in _holders(document, self.steps):
            if holder.get(self.by) is not None:
                yield holder[self.by]

    def is_up_to_date(self, version: Version, known: Mapping[Any, SourceState]) -> bool:
        """Return whether all copies in a version of a target have their sources' values.

        Args:
            known: States of the sources by `identity`.
        """
        entries = {identity(each.get("of")): each for each in self._entries(version)}
        for holder in _holders(version.full or {}, self.steps):
            if holder.get(self.by) is None:
                if self.field in holder:
                    return False
                continue
            source = identity(holder[self.by])
            state, number = known[source], entries.get(source, {}).get("v")
            if not isinstance(number, int | float) or not number >= state.since:
                return False
            if not is_same(holder.get(self.field, _MISSING), state.value):
                return False
        return True

    def _entries(self, version: Version) -> list[Mapping[str, Any]]:
        found = (version.copies or {}).get(self.key) if _is_object(version.copies) else None
        return [each for each in found if _is_object(each)] if isinstance(found, list) else []


_ANEW = frozenset({"INSERT", "BASELINE", "DELETE"})


def copied_fields(model: Model) -> list[CopiedField]:
    """Return all copied fields of a model, in its order."""
    return [
        CopiedField(
            source=source,
            of=of,
            target=entity.collection,
            steps=steps,
            by=by,
            field=field,
            counts=entity.version,
        )
        for entity in model.entities
        for source, of, steps, by, field in _find_copies(model, entity, (), (entity.name,))
    ]


def _find_copies(
    model: Model, kind: ObjectType, steps: tuple[str, ...], types: tuple[str, ...]
) -> Iterator[tuple[str, str, tuple[str, ...], str, str]]:
    for field in kind.fields:
        if field.copy is not None:
            reference = next(r for r in kind.references if r.name == field.copy.reference)
            source = model.entity(reference.target)
            of, by = source.field(field.copy.source), kind.field(reference.by)
            # The model was validated.
            assert of is not None
            assert by is not None
            yield source.collection, of.stored, steps, by.stored, field.stored
        # The model refuses copies within themselves.
        if isinstance(field.type, str) and field.type not in types:
            inner = model.embedded(field.type)
            yield from _find_copies(model, inner, (*steps, field.stored), (*types, field.type))


def _holders(value: Any, steps: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        for item in value:
            if not isinstance(item, list):
                yield from _holders(item, steps)
    elif _is_object(value):
        if not steps:
            yield value
        elif steps[0] in value:
            yield from _holders(value[steps[0]], steps[1:])


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)
