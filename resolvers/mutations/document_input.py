"""Parsing of mutation input into stored names and BSON values.

Raises `InvalidDocument`, which names the field by its API path. Conditions that depend on the
stored document (whether it has the rest of a partly patched embedded document, whether a number can
be incremented) become a `WritePrecondition`, which is checked in the write itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import bson
from bson import Decimal128, Int64
from bson.errors import InvalidDocument as NotBSON

from revstream.model.definition import Entity, Field, Model, ObjectType, Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.mutations.merge_patch import REMOVED, Merge, field_expression
from revstream.resolvers.mutations.result import InvalidDocument
from revstream.resolvers.mutations.write_precondition import WritePrecondition
from revstream.resolvers.values.input import field_from_api, id_from_api
from revstream.resolvers.values.output import INT_LIMIT, LONG_LIMIT
from revstream.streams.mongo.driver.codecs import DECODED, Document

__all__ = [
    "DocumentChange",
    "incrementable_fields",
    "new_id",
    "parse_change",
    "parse_document",
    "replacement_merge",
    "writable_fields",
]

MOST_NESTED = 15
"""Maximum depth of a patch of a JSON field: each level takes nine of MongoDB's 200."""

MOST_LEVELS = 180
"""Maximum depth of a merge expression; the command and revstream's own fields need the rest of 200.
"""

MOST_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DocumentChange:
    """Patch and increments of a document, with the preconditions of both."""

    merge: Merge
    increments: Mapping[str, Any]
    demands: tuple[WritePrecondition, ...] = ()

    @property
    def added(self) -> dict[str, Any]:
        """Incremented numbers, as expressions for `Merge.expression`."""
        return {
            name: {"$add": [{"$ifNull": [field_expression("$$old", name), 0]}, {"$literal": value}]}
            for name, value in self.increments.items()
        }


def writable_fields(type_: ObjectType) -> Iterator[Field]:
    """Return the fields that clients may write: not the id, copies, and discriminators."""
    return (
        each
        for each in type_.fields
        if each.stored != "_id" and each.copy is None and each.constant is None
    )


def incrementable_fields(entity: Entity) -> Iterator[Field]:
    """Return the fields that clients may increment."""
    numbers = (Scalar.INT, Scalar.LONG, Scalar.FLOAT, Scalar.DECIMAL)
    return (
        each
        for each in writable_fields(entity)
        if each.type in numbers and not each.is_list and not each.fence
    )


def new_id(entity: Entity, text: str | None) -> Any:
    """Return the `_id` of a new document: the requested one, or a generated one.

    Raises:
        InvalidDocument: the id is not valid, or missing where none can be generated.
    """
    scalar = entity.id.stored_scalar
    assert scalar is not None
    if text is not None:
        try:
            return id_from_api(scalar, text, f"{entity.name}.id")
        except BadUserInput as exc:
            raise InvalidDocument(exc.message, path="id") from exc
    match scalar:
        case Scalar.OBJECTID:
            return bson.ObjectId()
        case Scalar.UUID:
            return bson.Binary.from_uuid(uuid4())
        case Scalar.ID | Scalar.STRING:
            return str(bson.ObjectId())
    raise InvalidDocument(
        f"{entity.name}.id: missing, expected a value, since ids of this type are not generated; "
        "pass one",
        path="id",
    )


def parse_document(model: Model, entity: Entity, document: Mapping[str, Any]) -> Document:
    """Convert a whole document, without its id; null fields are left out.

    Raises:
        InvalidDocument: a value that does not match the model.
    """
    kind, given, place = _member(model, entity, document, "")
    found = _object(model, kind, given, f"{place}." if place else "")
    _check_size(entity, found)
    return found


def replacement_merge(entity: Entity, document: Document) -> Merge:
    """Return the merge that replaces a stored document.

    Fields that the model lacks, and copies, stay as they are: clients may not remove them.
    """
    fields = (*writable_fields(entity), *entity.member_fields)
    return Merge({**{each.stored: REMOVED for each in fields}, **document})


def parse_change(
    model: Model,
    entity: Entity,
    patch: Mapping[str, Any] | None,
    increment: Mapping[str, Any] | None = None,
) -> DocumentChange:
    """Convert a patch and increments.

    Raises:
        InvalidDocument: a value that does not match the model, or a field in both.
    """
    demands: list[WritePrecondition] = []
    kind: ObjectType = entity
    given, place = patch or {}, ""
    if given and entity.discriminator is not None:
        kind, given, place = _member(model, entity, given, "")
        kind_field = entity.discriminator.name
        for stored, value in _constants(kind).items():
            problem = (
                f"{place}: the document's {kind_field} is {{found}}, expected {value!r}; "
                "pass the key of its type, or replace it"
            )
            demands.append(WritePrecondition(place, problem, {stored: value}, (stored,), value))
    merge = _patch(model, kind, given, f"{place}." if place else "", _Place((), {}), demands)
    increments = {}
    for field in incrementable_fields(entity):
        value = (increment or {}).get(field.name)
        if value is None:
            continue
        if field.stored in merge.entries:
            raise InvalidDocument(
                f"{entity.name}.{field.name}: in both patch and increment, expected in one of "
                "them; remove the other",
                path=field.name,
            )
        increments[field.stored] = _one(field, value, field.name)
        demands.append(_addable(entity, field, increments[field.stored]))
    _check_size(entity, {"": [v for v in merge.entries.values() if v is not REMOVED]})
    return DocumentChange(merge, increments, tuple(demands))


def _object(model: Model, type_: ObjectType, given: Mapping[str, Any], path: str) -> Document:
    made: Document = _constants(type_)
    for field in writable_fields(type_):
        value = given.get(field.name)
        place = f"{path}{field.name}"
        if value is None:
            if field.required:
                raise InvalidDocument(
                    f"{type_.name}.{field.name}: missing, expected a value; pass one", path=place
                )
            continue
        made[field.stored] = _value(model, field, value, place)
    return made


def _constants(type_: ObjectType) -> Document:
    """Return the discriminator of a member of a union, which its documents always have."""
    return {each.stored: each.constant for each in type_.fields if each.constant is not None}


def _member(
    model: Model, kind: ObjectType, given: Mapping[str, Any], place: str
) -> tuple[ObjectType, Mapping[str, Any], str]:
    """Return the type, the content and the path of the document that is given for a type."""
    if kind.discriminator is None:
        return kind, given, place
    # The input type has exactly one field; a member without fields has a Boolean.
    ((key, value),) = given.items()
    member = next(each for each in kind.discriminator.members if each.key == key)
    path = f"{place}.{key}" if place else key
    if value is False:
        raise InvalidDocument(
            f"{path}: false, expected true; pass another key for another type", path=path
        )
    return model.member(member.type), {} if value is True else value, path


def _value(model: Model, field: Field, value: Any, place: str) -> Any:
    if not field.is_list:
        return _item(model, field, value, place)
    return [
        None if each is None else _item(model, field, each, f"{place}.{index}")
        for index, each in enumerate(value)
    ]


def _item(model: Model, field: Field, value: Any, place: str) -> Any:
    if isinstance(field.type, str):
        kind, value, place = _member(model, model.embedded(field.type), value, place)
        return _object(model, kind, value, f"{place}.")
    return _one(field, value, place)


def _one(field: Field, value: Any, place: str) -> Any:
    try:
        return field_from_api(field, value, field.name)
    except BadUserInput as exc:
        raise InvalidDocument(exc.message, path=place) from exc


@dataclass(frozen=True, slots=True)
class _Place:
    """Location of an embedded document.

    Attributes:
        members: what the discriminators on the path are, if it is stored there already.
    """

    stored: tuple[str, ...]
    members: Mapping[str, str]

    def inside(self, name: str, constants: Mapping[str, str]) -> _Place:
        stored = (*self.stored, name)
        path = ".".join(stored)
        return _Place(
            stored, {**self.members, **{f"{path}.{n}": each for n, each in constants.items()}}
        )


def _patch(
    model: Model,
    type_: ObjectType,
    patch: Mapping[str, Any],
    path: str,
    here: _Place,
    demands: list[WritePrecondition],
) -> Merge:
    entries: dict[str, Any] = {}
    for field in writable_fields(type_):
        if field.name not in patch:
            continue
        value = patch[field.name]
        place = f"{path}{field.name}"
        if value is None:
            if field.required:
                raise InvalidDocument(
                    f"{type_.name}.{field.name}: null, expected a value; pass one, or leave the "
                    "field out",
                    path=place,
                )
            entries[field.stored] = REMOVED
        elif isinstance(field.type, str) and not field.is_list:
            kind, value, place = _member(model, model.embedded(field.type), value, place)
            constants = _constants(kind)
            below = here.inside(field.stored, constants)
            merge = _patch(model, kind, value, f"{place}.", below, demands)
            demands += _rest(kind, value, place, below)
            # A document of another member is replaced.
            entries[field.stored] = Merge(
                {**constants, **merge.entries}, next(iter(constants.items()), None)
            )
        elif field.type is Scalar.JSON and not field.is_list and isinstance(value, Mapping):
            _one(field, value, place)
            entries[field.stored] = _json(value, place)
        else:
            entries[field.stored] = _value(model, field, value, place)
        if not here.stored:
            _check_depth(Merge({field.stored: entries[field.stored]}), place)
    return Merge(entries)


def _rest(
    kind: ObjectType, patch: Mapping[str, Any], place: str, here: _Place
) -> Iterator[WritePrecondition]:
    """Return preconditions for a partly patched embedded document: required fields must exist."""
    for field in writable_fields(kind):
        if field.required and field.name not in patch:
            yield WritePrecondition(
                path=f"{place}.{field.name}",
                problem=f"{place}.{field.name}: missing, expected a value for "
                f"{kind.name}.{field.name}; pass one",
                query={**here.members, ".".join((*here.stored, field.stored)): {"$ne": None}},
                stored=(*here.stored, field.stored),
            )


def _json(value: Mapping[str, Any], place: str, depth: int = 1) -> Merge:
    if depth > MOST_NESTED:
        raise InvalidDocument(
            f"{place}: a patch of more than {MOST_NESTED} levels, which is the maximum; set the "
            "field to null, then to its whole value",
            path=place,
        )
    return Merge(
        {
            name: REMOVED
            if each is None
            else _json(each, place, depth + 1)
            if isinstance(each, Mapping)
            else each
            for name, each in value.items()
        }
    )


_LIMITS = {Scalar.INT: INT_LIMIT, Scalar.LONG: LONG_LIMIT}


def _addable(entity: Entity, field: Field, value: Any) -> WritePrecondition:
    """Return the precondition that the stored value is a number or missing and the sum within
    limits.
    """
    stored = {"$ifNull": [f"${field.stored}", 0]}
    parts: list[Any] = [{"$isNumber": stored}]
    limit = _LIMITS.get(field.type) if isinstance(field.type, Scalar) else None
    expected = "a number"
    if limit is not None:
        lowest, highest = max(-limit, -limit - value), min(limit - 1, limit - 1 - value)
        parts += [{"$gte": [stored, Int64(lowest)]}, {"$lte": [stored, Int64(highest)]}]
        expected += f" that stays within {-limit} and {limit - 1}"
    else:
        # A sum beyond the largest number would be stored as infinity.
        finite = {"$lt": [{"$abs": {"$add": [stored, value]}}, math.inf]}
        parts = [{"$cond": [{"$isNumber": stored}, finite, False]}]
        expected += " that stays finite"
    added = value.to_decimal() if isinstance(value, Decimal128) else value
    return WritePrecondition(
        path=field.name,
        problem=f"increment of {entity.name}.{field.name}: {added}, expected the stored value to "
        f"be {expected}; set the field instead",
        query={"$expr": {"$and": parts}},
    )


def _check_depth(merge: Merge, place: str) -> None:
    if _depth(merge.expression()) > MOST_LEVELS:
        raise InvalidDocument(
            f"{place}: an update of more than {MOST_LEVELS} levels, which is the maximum; replace "
            "the document instead",
            path=place,
        )


def _depth(value: Any) -> int:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list):
        return 0
    return 1 + max(map(_depth, value), default=0)


def _check_size(entity: Entity, document: Document) -> None:
    try:
        size = len(bson.encode(_plain(document), codec_options=DECODED))
    except (NotBSON, OverflowError) as exc:
        raise InvalidDocument(
            f"{entity.name}: a value that MongoDB cannot store: {exc}", path=""
        ) from exc
    if size > MOST_BYTES:
        raise InvalidDocument(
            f"bytes of the {entity.name}: {size:,}, maximum is {MOST_BYTES:,}; shorten it", path=""
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Merge):
        return {n: _plain(each) for n, each in value.entries.items() if each is not REMOVED}
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value
