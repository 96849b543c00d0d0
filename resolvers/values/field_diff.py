"""What changed between two states, in the API's names: modelled fields only, values as JSON.

The archive and the stream speak of stored names, and of fields that no model knows. Lists are one
value, JSON fields keep their own keys; the id, the version field and reserved ones are no changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from revstream.model.definition import Entity, EnumType, Field, Model, ObjectType, Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.json_value import json_value
from revstream.resolvers.values.output import any_id
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
    "stored_path",
    "visible_fields",
]


# Not frozen, as it might be: pages of diffs make many.
@dataclass(slots=True)
class FieldChange:
    """`path`: dotted API names. `kind`: ADDED, REMOVED or CHANGED. Values as JSON."""

    path: str
    kind: str
    before: Any
    after: Any


_Compared: TypeAlias = "tuple[str, str, Callable[[Any], Any]]"
"""A field: its stored name, the API's, and how its values are shown."""

# As many kinds of writes as most programs make.
_MOST_CHANGED = 200
# A write may change a hundred thousand, of which nobody makes the same again.
_MOST_PATHS = 50


class FieldDiff:
    """Of states of an entity's documents, many times: what there is to know of the entity is known
    once."""

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
        """Return what leads from one state to another; None is a document that is not there.

        In the order of the model's fields, below them in that of the documents. An embedded
        document that appears or goes is one change.

        Args:
            changed: stored paths, where it is known already which ones differ.
            make: what is made of each change.
        """
        old_fields = before if before.__class__ is dict else _plain(before)
        new_fields = after if after.__class__ is dict else _plain(after)
        fields = self._fields
        # A version that deletes says that it has changed nothing.
        if changed is not None and before is not None and after is not None:
            fields = self._among(changed)
        found: list[Any] = []
        for stored, name, show in fields:
            old, new = old_fields.get(stored, _GONE), new_fields.get(stored, _GONE)
            kind = type(new)
            if kind is type(old) and kind is not list and kind is not dict:
                # Nearly all fields, nearly always; lists and dicts call 1 and true equal.
                if new == old:
                    continue
                # NaN, which is the same as NaN, differs from itself.
                if kind in PLAIN and (new == new or old == old):
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

    def _among(self, changed: tuple[str, ...]) -> list[_Compared]:
        """Those that stored paths lie in. Versions of a document have mostly changed the same."""
        found = self._changed.get(changed)
        if found is None:
            among = {path.partition(".")[0] for path in changed}
            found = [each for each in self._fields if each[0] in among]
            if len(self._changed) < _MOST_CHANGED and len(changed) <= _MOST_PATHS:
                self._changed[changed] = found
        return found

    def paths(self, stored_paths: tuple[str, ...]) -> list[str]:
        """See `changed_fields`; others may have the same list."""
        found = self._paths.get(stored_paths)
        if found is None:
            found = changed_fields(self.entity, self.model, stored_paths)
            if len(self._paths) < _MOST_CHANGED and len(stored_paths) <= _MOST_PATHS:
                self._paths[stored_paths] = found
        return found

    def latest(self, stored_paths: Iterable[str], after: Document | None) -> list[FieldChange]:
        """See `latest_values`."""
        return latest_values(self.entity, self.model, stored_paths, after)

    def _inside(
        self, stored: str, old: Any, new: Any, make: Callable[[str, str, Any, Any], Any]
    ) -> Iterator[Any]:
        for each in find_differences({stored: old}, {stored: new}):
            change = _in_api_names(self.entity, self.model, each)
            if change is not None:
                yield make(change.path, change.kind, change.before, change.after)


def _plain(state: Document | None) -> Mapping[str, Any]:
    # Each look into a raw document costs several Python calls.
    return state if isinstance(state, dict) else dict((state or {}).items())


def latest_values(
    entity: Entity, model: Model, stored_paths: Iterable[str], after: Document | None
) -> list[FieldChange]:
    """What a version has changed of which the one before was dropped: the values before are not
    known, and neither is what it added; that counts as changed."""
    found = []
    for stored in stored_paths:
        value: Any = after
        names = tuple(stored.split("."))
        for name in names:
            value = value.get(name, _GONE) if isinstance(value, Mapping) else _GONE
        kind = DifferenceKind.REMOVED if value is _GONE else DifferenceKind.CHANGED
        each = Difference(names, kind, None, None if value is _GONE else value)
        change = None if names[0] in hidden_fields(entity) else _in_api_names(entity, model, each)
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
    """Stored dotted paths -> API dotted paths of the model's fields, in order, each once."""
    hidden = hidden_fields(entity)
    shown_paths: dict[str, None] = {}
    for path in stored_paths:
        names = path.split(".")
        place = None if names[0] in hidden else _api_path(entity, model, names)
        if place is not None:
            shown_paths[place.path] = None
    return list(shown_paths)


def stored_path(entity: Entity, model: Model, path: str, argument: str) -> str:
    """An API dotted path -> the stored dotted path, as the archive's `changed` lists it.

    Raises:
        BadUserInput: no such field, or one inside of a list, whose changes are recorded as a whole.
    """
    kind: ObjectType = entity
    names = path.split(".")
    stored: list[str] = []
    for place, name in enumerate(names):
        field = kind.field(name)
        if field is None or field.stored == "_id":
            raise BadUserInput(
                f"{argument}: {kind.name} has no field {name!r} that changes (in {path!r})",
                argument=argument,
            )
        stored.append(field.stored)
        rest = names[place + 1 :]
        if not rest:
            break
        if field.is_list:
            raise BadUserInput(
                f"{argument}: {path!r} lies inside of a list, and lists are recorded as a whole; "
                f"say {'.'.join(names[: place + 1])!r}",
                argument=argument,
            )
        if field.type is Scalar.JSON:
            stored += rest
            break
        if not isinstance(field.type, str):
            raise BadUserInput(
                f"{argument}: {'.'.join(names[: place + 1])!r} has no fields (in {path!r})",
                argument=argument,
            )
        kind = model.embedded(field.type)
    return ".".join(stored)


def visible_fields(entity: Entity) -> Iterator[Field]:
    """The fields whose changes are shown, in the model's order."""
    hidden = hidden_fields(entity)
    return (field for field in entity.fields if field.stored not in hidden)


def api_value(field: Field, model: Model, value: Any) -> Any:
    """A stored value of a field as JSON, embedded documents in API names, modelled fields only.

    What does not fit the model is shown as it is: a change to it is a change all the same.
    """
    if field.type is Scalar.ID:
        return _id(value)
    if isinstance(field.type, EnumType):
        return _enum(field.type.by_stored, value)
    if not isinstance(field.type, str):
        return json_value(value)
    kind = model.embedded(field.type)
    if isinstance(value, list):
        return [_embedded(kind, model, item) for item in value]
    return _embedded(kind, model, value)


def _api_value_converter(field: Field, model: Model) -> Callable[[Any], Any]:
    """`api_value`, for many values of one field."""
    if field.type is Scalar.ID or isinstance(field.type, str | EnumType):
        return partial(api_value, field, model)
    return json_value


def _enum(by_stored: Mapping[str, str], value: Any) -> Any:
    if isinstance(value, list):
        return [_enum(by_stored, item) for item in value]
    # Code is a str, too, and no key.
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
        for field in kind.fields
        if field.stored in value
    }


@dataclass(frozen=True, slots=True)
class _ApiPath:
    """Where a stored path leads: an API path, and the field there; None for what lies in a JSON
    field.

    `cut`: the path leads further than the model does, into a value that should have no fields.
    """

    path: str
    field: Field | None
    cut: int = 0


def _api_path(entity: Entity, model: Model, names: Sequence[str]) -> _ApiPath | None:
    kind: ObjectType = entity
    path: list[str] = []
    for depth, name in enumerate(names):
        field = kind.stored_field(name)
        if field is None:
            return None
        path.append(field.name)
        rest = names[depth + 1 :]
        if not rest:
            return _ApiPath(".".join(path), field)
        if field.type is Scalar.JSON and not field.is_list:
            return _ApiPath(".".join([*path, *rest]), None)
        if not isinstance(field.type, str) or field.is_list:
            return _ApiPath(".".join(path), field, cut=len(rest))
        kind = model.embedded(field.type)
    return None


def _in_api_names(entity: Entity, model: Model, each: Difference) -> FieldChange | None:
    place = _api_path(entity, model, each.path)
    if place is None:
        return None
    path, field = place.path, place.field
    if place.cut:
        # A document where a single value should be: what differs inside is named by its own keys.
        path, field = ".".join([path, *each.path[-place.cut :]]), None
    return FieldChange(
        path=path,
        kind=each.kind.value,
        before=_json(field, model, each.before),
        after=_json(field, model, each.after),
    )


def _json(field: Field | None, model: Model, value: Any) -> Any:
    return json_value(value) if field is None else api_value(field, model, value)


def hidden_fields(entity: Entity) -> frozenset[str | None]:
    """Stored names whose changes are none to the API."""
    return frozenset({"_id", entity.version, *RESERVED})
