"""Fields of documents that are measured or make groups: their stored paths, and references."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from revstream.model.definition import Entity, EnumType, Field, Model, ObjectType, Scalar
from revstream.resolvers.aggregates.expressions import Bucket, unknown_time_zone
from revstream.resolvers.aggregates.references import Hop, Join
from revstream.resolvers.errors import BadUserInput, LimitExceeded
from revstream.resolvers.filters.parser import Check
from revstream.resolvers.filters.reference_filters import MOST_REFERENCES

__all__ = ["GroupKey", "StoredField", "joins_of_keys", "parse_group_by", "stored_field"]


_OFFSET = re.compile(r"[+-](0\d|1[0-4])(:?[0-5]\d)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoredField:
    """Field of a document, or of one embedded in it.

    Attributes:
        names: API names of its path.
        path: stored path; of a field of a list's items, the path in an item, "" for the item.
        items: stored path of the list.
    """

    names: tuple[str, ...]
    path: str
    field: Field
    items: str | None = None


@dataclass(frozen=True, slots=True)
class GroupKey:
    """Part of the key of a group: a field, or the bucket of a date.

    Attributes:
        of: the field; its path begins in the last document of `through`.
        through: the references that lead to the document with the field; none for its own fields.
    """

    of: StoredField
    bucket: Bucket | None
    through: tuple[Hop, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredPath:
    """Stored path to a type, up to the last dot; see `StoredField`."""

    prefix: str = ""
    items: str | None = None

    def field(self, names: tuple[str, ...], field: Field) -> StoredField:
        """Return a field of the type.

        Raises:
            BadUserInput: a list in a list.
        """
        path = self.prefix + field.stored
        if not field.is_list:
            return StoredField(names, path, field, self.items)
        if self.items is not None:
            raise BadUserInput(
                f"{'.'.join(names)}: a list in a list, expected at most one list on the path; "
                "remove it"
            )
        return StoredField(names, "", field, path)

    def inside(self, names: tuple[str, ...], field: Field) -> StoredPath:
        """Return the path to the type of a field.

        Raises:
            BadUserInput: a list in a list.
        """
        found = self.field(names, field)
        return StoredPath(f"{found.path}." if found.path else "", found.items)


def parse_group_by(
    model: Model, entity: Entity, given: Mapping[str, Any], check: Check
) -> list[GroupKey]:
    """Parse `groupBy`.

    Args:
        check: called with each field and reference; raises if the caller may not read it.

    Raises:
        BadUserInput: fields that cannot make groups together.
        LimitExceeded: too many references.
    """
    keys = list(_keys(model, entity, given, (), StoredPath(), (), check))
    _check_references(keys)
    _check_lists(keys)
    return keys


def joins_of_keys(keys: Sequence[GroupKey]) -> list[Join]:
    """Return the references of keys; their values have the names `k<n>`, of the n-th key."""
    return _joins([(f"k{n}", key, key.through) for n, key in enumerate(keys)])


def _keys(
    model: Model,
    kind: ObjectType,
    given: Mapping[str, Any],
    names: tuple[str, ...],
    place: StoredPath,
    through: tuple[Hop, ...],
    check: Check,
) -> Iterator[GroupKey]:
    for name, value in given.items():
        if value is None or value is False:
            continue
        path = (*names, name)
        reference = next((each for each in kind.references if each.name == name), None)
        if reference is not None:
            check(kind, reference)
            by, target = _field(kind, reference.by), model.entity(reference.target)
            if place.items is not None:
                raise BadUserInput(
                    f"groupBy: {'.'.join(path)}, a reference of an item of a list, expected a "
                    f"field of the item; group by {'.'.join((*names, by.name))}",
                    argument="groupBy",
                )
            hops = (*through, Hop(place.prefix + by.stored, name, by, target))
            yield from _keys(model, target, value, path, StoredPath(), hops, check)
            continue
        field = _field(kind, name)
        check(kind, field)
        if field.is_list and through:
            raise BadUserInput(
                f"groupBy: {'.'.join(path)}, a list of another document, expected a field with "
                "one value; remove it",
                argument="groupBy",
            )
        if isinstance(field.type, str):
            inner, below = model.embedded(field.type), place.inside(path, field)
            yield from _keys(model, inner, value, path, below, through, check)
            continue
        bucket = None
        if field.type is Scalar.DATETIME:
            zone = value.get("timeZone")
            bucket = Bucket(value["by"].lower(), "UTC" if zone is None else _checked(zone))
        elif field.type is Scalar.DATE:
            # A date is stored as its midnight in UTC.
            bucket = Bucket(value["by"].lower(), "UTC")
        yield GroupKey(place.field(path, field), bucket, through)


def _checked(time_zone: str) -> str:
    """Return a time zone; MongoDB knows the names, but takes offsets of any size.

    Raises:
        BadUserInput: an offset that no place on earth has.
    """
    if time_zone[:1] in ("+", "-") and not _OFFSET.fullmatch(time_zone):
        raise unknown_time_zone([time_zone])
    return time_zone


def _check_lists(keys: Sequence[GroupKey]) -> None:
    """Check the number of lists that make groups.

    Raises:
        BadUserInput: more than one: the groups would be all pairs of items.
    """
    lists = sorted({each.of.items for each in keys if each.of.items is not None})
    if len(lists) > 1:
        raise BadUserInput(
            f"lists in groupBy: {len(lists)}, maximum is 1; group by one of them",
            argument="groupBy",
        )


def _joins(keys: Sequence[tuple[str, GroupKey, tuple[Hop, ...]]]) -> list[Join]:
    """Return the references of keys as trees.

    Args:
        keys: the name and the references that are left of each; a key without any is passed over.
    """
    by_hop: dict[Hop, list[tuple[str, GroupKey, tuple[Hop, ...]]]] = {}
    for name, key, through in keys:
        if through:
            by_hop.setdefault(through[0], []).append((name, key, through[1:]))
    return [
        Join(hop, {name: key.of.path for name, key, rest in own if not rest}, _joins(own))
        for hop, own in by_hop.items()
    ]


def _check_references(keys: Sequence[GroupKey]) -> None:
    """Check the number of references.

    Raises:
        LimitExceeded: there are too many.
    """
    count = len({each.through[:n] for each in keys for n in range(1, len(each.through) + 1)})
    if count > MOST_REFERENCES:
        raise LimitExceeded(
            f"references in groupBy: {count}, maximum is {MOST_REFERENCES}; use fewer",
            limit="references in groupBy",
            asked=count,
            bound=MOST_REFERENCES,
        )


def stored_field(model: Model, entity: Entity, names: tuple[str, ...], check: Check) -> StoredField:
    kind: ObjectType = entity
    place = StoredPath()
    for n, name in enumerate(names):
        field = _field(kind, name)
        check(kind, field)
        if isinstance(field.type, str):
            place, kind = place.inside(names[: n + 1], field), model.embedded(field.type)
    return place.field(names, field)


def _field(kind: ObjectType, name: str) -> Field:
    field = kind.field(name)
    assert field is not None  # the schema has no others
    union = kind.discriminator
    if union is not None and union.name == name:
        # A text of no member does not fit, as that of no value of an enum.
        values = EnumType(name=kind.name, values=tuple(each.value for each in union.members))
        return replace(field, type=values)
    return field
