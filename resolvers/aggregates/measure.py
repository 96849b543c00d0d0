"""Measures of an aggregate, and the types of the model that hold their results.

The results of `sum` of a type `Product` are an object type `ProductAggregateSum`, with the fields
of `Product` that have a sum. These types are part of a model of their own, so that the filter
language and the conversions of values apply to results as they do to documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from revstream.model.definition import (
    EmbeddedType,
    Entity,
    EnumType,
    Field,
    Model,
    ObjectType,
    Scalar,
)

__all__ = [
    "KEY",
    "Measure",
    "Measured",
    "group_type_name",
    "key_type_name",
    "measure_type_name",
    "result_model",
]

KEY = "key"
"""Field of a group that holds the values by which documents are grouped."""


class Measure(Enum):
    """Measure; the value is the name of its field in the API."""

    SUM = "sum"
    AVERAGE = "avg"
    MIN = "min"
    MAX = "max"
    DISTINCT = "distinctCount"


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure of one field.

    Attributes:
        names: API names of the path from the entity to the field.
    """

    measure: Measure
    names: tuple[str, ...]


_SUFFIXES = {
    Measure.SUM: "AggregateSum",
    Measure.AVERAGE: "AggregateAverage",
    Measure.MIN: "AggregateExtremes",
    Measure.MAX: "AggregateExtremes",
    Measure.DISTINCT: "AggregateDistinct",
}

_SUMS = {
    # A sum of integers of 64 bits may need more than 64 bits.
    Scalar.INT: Scalar.LONG,
    Scalar.LONG: Scalar.DECIMAL,
    Scalar.FLOAT: Scalar.FLOAT,
    Scalar.DECIMAL: Scalar.DECIMAL,
}
_TIMES = frozenset({Scalar.DATETIME, Scalar.DATE, Scalar.TIMESTAMP})


def measure_type_name(type_name: str, measure: Measure) -> str:
    """Return the type of the results of a measure; `min` and `max` share one."""
    return f"{type_name}{_SUFFIXES[measure]}"


def key_type_name(type_name: str) -> str:
    return f"{type_name}AggregateKey"


def group_type_name(type_name: str) -> str:
    return f"{type_name}AggregateGroup"


def result_model(model: Model) -> Model:
    """Return the types of the results of a model's types; a type without fields is left out.

    The name of a stored field is its name in the API. A field of type `<Entity>AggregateGroup` is
    `key`, `count` or a measure.
    """
    made: dict[str, EmbeddedType] = {}
    for kind in _types_with_results(model):
        for each in [None, *Measure]:
            type_ = _result_type(model, kind, each)
            if type_ is not None:
                made[type_.name] = type_
    for entity in model.entities:
        group = EmbeddedType(
            name=group_type_name(entity.name), fields=tuple(_group_fields(entity, made))
        )
        made[group.name] = group
    return Model(entities=(), embeddeds=tuple(made.values()), enums=model.enums)


def _group_fields(entity: Entity, made: Iterable[str]) -> Iterator[Field]:
    key = key_type_name(entity.name)
    if key in made:
        yield Field(name=KEY, stored=KEY, type=key)
    yield Field(name="count", stored="count", type=Scalar.INT)
    for measure in Measure:
        name = measure_type_name(entity.name, measure)
        if name in made:
            yield Field(name=measure.value, stored=measure.value, type=name)


def _result_type(model: Model, kind: ObjectType, measure: Measure | None) -> EmbeddedType | None:
    """Return the type of a measure's results, or of keys if it is None; None without fields."""
    if not _has_results(model, kind, measure, frozenset()):
        return None
    fields = []
    for field in _own_fields(kind):
        inner = None if not isinstance(field.type, str) else model.embedded(field.type)
        if inner is None:
            result = _result_field(field, measure)
            if result is not None:
                fields.append(result)
        elif _has_results(model, inner, measure, frozenset()):
            fields.append(_inner_field(field.name, inner, measure))
    for name, target in _referenced_types(model, kind, measure):
        if _has_results(model, target, measure, frozenset()):
            fields.append(_inner_field(name, target, measure))
    return EmbeddedType(name=_type_name(kind, measure), fields=tuple(fields))


def _inner_field(name: str, kind: ObjectType, measure: Measure | None) -> Field:
    return Field(name=name, stored=name, type=_type_name(kind, measure))


def _referenced_types(
    model: Model, kind: ObjectType, measure: Measure | None
) -> Iterator[tuple[str, ObjectType]]:
    """Yield the references to one document; they lead to keys, and to no other results."""
    if measure is None:
        for each in kind.references:
            if not each.is_list:
                yield each.name, model.entity(each.target)


def _type_name(kind: ObjectType, measure: Measure | None) -> str:
    return key_type_name(kind.name) if measure is None else measure_type_name(kind.name, measure)


def _types_with_results(model: Model) -> Sequence[ObjectType]:
    """Return the entities, and the types that are embedded in them."""
    found: dict[str, ObjectType] = {}
    waiting: list[ObjectType] = list(model.entities)
    while waiting:
        kind = waiting.pop()
        if kind.name not in found:
            found[kind.name] = kind
            inner = [each.type for each in _own_fields(kind) if isinstance(each.type, str)]
            waiting += map(model.embedded, inner)
    return list(found.values())


def _has_results(
    model: Model, kind: ObjectType, measure: Measure | None, seen: frozenset[str]
) -> bool:
    """Return whether a type or one inside it has a field with results; types may be recursive."""
    if kind.name in seen:
        return False
    fields = list(_own_fields(kind))
    if any(
        not isinstance(each.type, str) and _result_field(each, measure) is not None
        for each in fields
    ):
        return True
    embedded = [model.embedded(each.type) for each in fields if isinstance(each.type, str)]
    referenced = [target for _, target in _referenced_types(model, kind, measure)]
    return any(
        _has_results(model, each, measure, seen | {kind.name}) for each in (*embedded, *referenced)
    )


def _own_fields(kind: ObjectType) -> Iterator[Field]:
    """Yield the fields that may have results: all but the id, which is unique."""
    for each in kind.fields:
        if not (isinstance(kind, Entity) and each is kind.id):
            yield each


def _result_field(field: Field, measure: Measure | None) -> Field | None:
    """Return the field of a result; None if the field's type has none."""
    type_ = field.type
    assert isinstance(type_, Scalar | EnumType)
    result = replace(
        field,
        stored=field.name,
        required=False,
        is_list=False,
        unique=False,
        copy=None,
        access=None,
    )
    if type_ in (Scalar.JSON, Scalar.BINARY, Scalar.POINT):
        return None
    if measure is None:
        return result
    match measure:
        case Measure.DISTINCT:
            return Field(name=field.name, stored=field.name, type=Scalar.INT, required=True)
        case Measure.MIN | Measure.MAX:
            return result if type_ in _SUMS or type_ in _TIMES else None
        case _ if type_ not in _SUMS:
            return None
        case Measure.SUM:
            return replace(result, type=_SUMS[type_])
        case _:
            exact = type_ is Scalar.DECIMAL
            return replace(result, type=Scalar.DECIMAL if exact else Scalar.FLOAT)
