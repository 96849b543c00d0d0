"""Diff of two states in API names: modelled fields only, values as JSON.

The archive and the stream use stored names and may have fields that the model lacks. A list is one
value; JSON fields keep their own keys. The id, the version field and reserved fields are not part
of a diff.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from revstream.model.definition import Entity, EnumType, Field, Model, ObjectType, Scalar
from revstream.resolvers.values.field_path import ApiPath, api_path
from revstream.resolvers.values.json_value import REFUSED, json_value
from revstream.resolvers.values.output import TO_API, any_id
from revstream.resolvers.values.whole_points import value_at, whole_path, with_whole_points
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.raw_bson.diff import (
    OBJECTS,
    PLAIN,
    Difference,
    DifferenceKind,
    find_differences,
    is_same,
)
from revstream.streams.versioning.version import RESERVED

__all__ = [
    "FieldChange",
    "FieldDiff",
    "api_value",
    "changed_fields",
    "hidden_fields",
    "latest_values",
    "visible_fields",
]


# Not frozen: pages of diffs create many, and frozen dataclasses are slower to create.
@dataclass(slots=True)
class FieldChange:
    """Change of one field, with values as JSON.

    Attributes:
        path: dotted API names.
        kind: ADDED, REMOVED or CHANGED.
    """

    path: str
    kind: str
    before: Any
    after: Any


_Compared: TypeAlias = "tuple[str, str, Callable[[Any], Any]]"
"""A field: its stored name, its API name, and the conversion of its values to JSON."""

# More than the number of different writes of most programs.
_MOST_CHANGED = 200
# Longer lists of paths, up to a hundred thousand, hardly ever recur.
_MOST_PATHS = 50


class FieldDiff:
    """Diff of states of one entity; what depends on the entity alone is computed once."""

    __slots__ = ("_changed", "_fields", "_paths", "entity", "model")

    def __init__(self, entity: Entity, model: Model) -> None:
        self.entity = entity
        self.model = model
        self._fields: list[_Compared] = [
            (each.stored, each.name, _api_value_converter(each, model))
            for each in visible_fields(entity)
        ]
        self._changed: dict[tuple[str, ...], list[_Compared]] = {}
        self._paths: dict[tuple[str, ...], list[str]] = {}

    def changes(
        self,
        before: Document | None,
        after: Document | None,
        changed: tuple[str, ...] | None = None,
        make: Callable[[str, str, Any, Any], Any] = FieldChange,
    ) -> list[Any]:
        """Return the changes from one state to another, in the order of the model's fields.

        Inside embedded documents the order is that of the documents. An embedded document that is
        added or removed is one change.

        Args:
            before: the state before; None if there was no document.
            after: the state after; None if there is no document.
            changed: stored paths that differ, if already known.
            make: creates the item for each change.
        """
        if self.entity.discriminator is not None:
            return [make(*each) for each in self._changes_of_members(before, after)]
        old_fields = before if before.__class__ is dict else _plain(before)
        new_fields = after if after.__class__ is dict else _plain(after)
        fields = self._fields
        # A tombstone lists no changed paths.
        if changed is not None and before is not None and after is not None:
            fields = self._among(changed)
        found: list[Any] = []
        for stored, name, show in fields:
            old, new = old_fields.get(stored, _GONE), new_fields.get(stored, _GONE)
            kind = type(new)
            if kind is type(old) and kind is not list and kind is not dict:
                # The usual case. Not for lists and dicts, which compare 1 and true as equal.
                if new == old:
                    continue
                # Two NaN count as the same value, but compare as different.
                if kind in PLAIN and (new == new or old == old):  # noqa: PLR0124
                    found.append(make(name, _CHANGED, show(old), show(new)))
                    continue
            if isinstance(old, OBJECTS) and isinstance(new, OBJECTS):
                found += self._inside(stored, old, new, make)
            elif old is _GONE:
                found.append(make(name, _ADDED, show(None), show(new)))
            elif new is _GONE:
                found.append(make(name, _REMOVED, show(old), show(None)))
            elif not is_same(old, new):
                found.append(make(name, _CHANGED, show(old), show(new)))
        return found

    def _changes_of_members(
        self, before: Document | None, after: Document | None
    ) -> Iterator[tuple[str, str, Any, Any]]:
        """Yield the changes of a document whose fields depend on its type."""
        fields = (*self.entity.fields, *self.entity.member_fields)
        order: dict[str, int] = {}
        for field in fields:
            order.setdefault(field.stored, len(order))
        hidden = hidden_fields(self.entity)
        differences = find_differences(before, after)
        if before is not None and after is not None:
            differences = with_whole_points(self.entity, self.model, differences, before, after)
        found = [each for each in differences if each.path[0] not in hidden]
        for each in sorted(found, key=lambda one: order.get(one.path[0], len(order))):
            change = _in_api_names(self.entity, self.model, each, before, after)
            if change is not None:
                yield change.path, change.kind, change.before, change.after

    def _among(self, changed: tuple[str, ...]) -> list[_Compared]:
        """Return the fields that contain these stored paths, from a cache."""
        found = self._changed.get(changed)
        if found is None:
            among = {path.partition(".")[0] for path in changed}
            found = [each for each in self._fields if each[0] in among]
            if len(self._changed) < _MOST_CHANGED and len(changed) <= _MOST_PATHS:
                self._changed[changed] = found
        return found

    def paths(self, stored_paths: tuple[str, ...]) -> list[str]:
        """Return the result of `changed_fields`; cached, so callers must not change the list."""
        found = self._paths.get(stored_paths)
        if found is None:
            found = changed_fields(self.entity, self.model, stored_paths)
            if len(self._paths) < _MOST_CHANGED and len(stored_paths) <= _MOST_PATHS:
                self._paths[stored_paths] = found
        return found

    def latest(self, stored_paths: Iterable[str], after: Document | None) -> list[FieldChange]:
        """Return the result of `latest_values`."""
        return latest_values(self.entity, self.model, stored_paths, after)

    def _inside(
        self, stored: str, old: Any, new: Any, make: Callable[[str, str, Any, Any], Any]
    ) -> Iterator[Any]:
        before, after = {stored: old}, {stored: new}
        found = find_differences(before, after)
        for each in with_whole_points(self.entity, self.model, found, before, after):
            change = _in_api_names(self.entity, self.model, each, before, after)
            if change is not None:
                yield make(change.path, change.kind, change.before, change.after)


def _plain(state: Document | None) -> Mapping[str, Any]:
    # Each access to a raw document costs several Python calls.
    return state if isinstance(state, dict) else dict((state or {}).items())


def latest_values(
    entity: Entity, model: Model, stored_paths: Iterable[str], after: Document | None
) -> list[FieldChange]:
    """Return the changes of a version whose predecessor was truncated.

    The values before are unknown, so added fields count as CHANGED.
    """
    found = []
    paths = (whole_path(entity, model, tuple(stored.split(".")), after) for stored in stored_paths)
    for names in dict.fromkeys(paths):
        value = value_at(after, names, _GONE)
        kind = DifferenceKind.REMOVED if value is _GONE else DifferenceKind.CHANGED
        each = Difference(names, kind, None, None if value is _GONE else value)
        change = None
        if names[0] not in hidden_fields(entity):
            change = _in_api_names(entity, model, each, None if value is _GONE else after, after)
        if change is not None:
            found.append(change)
    return found


_GONE = object()
_ADDED, _REMOVED, _CHANGED = (
    DifferenceKind.ADDED.value,
    DifferenceKind.REMOVED.value,
    DifferenceKind.CHANGED.value,
)


def changed_fields(entity: Entity, model: Model, stored_paths: Iterable[str]) -> list[str]:
    """Convert stored dotted paths to distinct API paths of modelled fields, in order."""
    hidden = hidden_fields(entity)
    shown_paths: dict[str, None] = {}
    for path in stored_paths:
        names = path.split(".")
        place = None if names[0] in hidden else api_path(entity, model, names)
        if place is not None:
            shown_paths[place.path] = None
    return list(shown_paths)


def visible_fields(entity: Entity) -> Iterator[Field]:
    """Return the fields that can be part of a diff, in the model's order."""
    hidden = hidden_fields(entity)
    fields = (*entity.fields, *entity.member_fields)
    return (field for field in fields if field.stored not in hidden)


def api_value(field: Field, model: Model, value: Any) -> Any:
    """Return a stored value of a field as JSON, with embedded documents in API names.

    Values that do not match the model are returned unconverted: their changes count too.
    """
    if field.type is Scalar.ID:
        return _id(value)
    if isinstance(field.type, EnumType):
        return _enum(field.type.by_stored, value)
    if not isinstance(field.type, str):
        return _typed(field.type, value) if field.type in _TYPED else json_value(value)
    kind = model.embedded(field.type)
    if isinstance(value, list):
        return [_embedded(kind, model, item) for item in value]
    return _embedded(kind, model, value)


def _api_value_converter(field: Field, model: Model) -> Callable[[Any], Any]:
    """Return `api_value` for many values of one field."""
    if field.type in _TYPED or isinstance(field.type, str | EnumType):
        return partial(api_value, field, model)
    return json_value


# Scalars with another text than values of their BSON type have in JSON.
_TYPED = frozenset({Scalar.ID, Scalar.DATE, Scalar.TIMESTAMP, Scalar.POINT})


def _typed(scalar: Scalar, value: Any) -> Any:
    if isinstance(value, list):
        return [_typed(scalar, item) for item in value]
    shown = REFUSED if value is None else TO_API[scalar](value)
    return json_value(value) if shown is REFUSED else shown


def _enum(by_stored: Mapping[str, str], value: Any) -> Any:
    if isinstance(value, list):
        return [_enum(by_stored, item) for item in value]
    # bson.Code is a subclass of str, but never an enum value.
    return by_stored.get(value, value) if value.__class__ is str else json_value(value)


def _id(value: Any) -> Any:
    if isinstance(value, list):
        return [_id(item) for item in value]
    return None if value is None else any_id(value)


def _embedded(kind: ObjectType, model: Model, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return json_value(value)
    return {
        field.name: api_value(field, model, value[field.stored])
        for field in model.variant(kind, value).fields
        if field.stored in value
    }


def _in_api_names(
    entity: Entity, model: Model, each: Difference, old: Any, new: Any
) -> FieldChange | None:
    """Return a difference in API names; None for a field that neither state has in the model.

    Args:
        old, new: the states that differ.
    """
    before = None if each.kind is DifferenceKind.ADDED else api_path(entity, model, each.path, old)
    after = None if each.kind is DifferenceKind.REMOVED else api_path(entity, model, each.path, new)
    place = after or before
    if place is None:
        return None
    path = place.path
    if place.cut:
        # A document in place of a single value: changes inside are named by its own keys.
        path = ".".join([path, *each.path[-place.cut :]])
    # What the other member of a union does not have, counts as missing there.
    kind = (
        DifferenceKind.ADDED
        if before is None
        else DifferenceKind.REMOVED
        if after is None
        else DifferenceKind.CHANGED
    )
    return FieldChange(
        path=path,
        kind=kind.value,
        before=_side(before, model, each.before),
        after=_side(after, model, each.after),
    )


def _side(place: ApiPath | None, model: Model, value: Any) -> Any:
    if place is None:
        return None
    if place.field is None or place.cut:
        return json_value(value)
    return api_value(place.field, model, value)


def hidden_fields(entity: Entity) -> frozenset[str | None]:
    """Return the stored names whose changes are not part of the API."""
    return frozenset({"_id", entity.version, *RESERVED})
