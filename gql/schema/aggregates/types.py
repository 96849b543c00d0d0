"""Object types of aggregates: totals, groups, keys of groups, results of measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from revstream.gql.engine.definitions.field import Read
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.schema.aggregates.inputs import (
    define_group_by,
    define_group_inputs,
    define_result_inputs,
)
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import Discriminator, EmbeddedType, Entity, Field, Model
from revstream.resolvers.aggregates.measure import (
    KEY,
    Measure,
    group_type_name,
    key_type_name,
    measure_type_name,
)
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.history.version_filter import VERSION_RECORD
from revstream.resolvers.values.output import ValueLocation, converter, describe_value

__all__ = ["aggregate_name", "define_aggregates"]

_DESCRIPTIONS: Mapping[str, str] = {
    KEY: "The values that the group has in common.",
    Measure.SUM.value: "The sums; null without values.",
    Measure.AVERAGE.value: "The averages; null without values.",
    Measure.MIN.value: "The smallest values; null without values.",
    Measure.MAX.value: "The largest values; null without values.",
    Measure.DISTINCT.value: "The numbers of different values.",
}
_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class _ResultLocation(ValueLocation):
    """Location of a result, for an error message."""

    def misfit(
        self,
        name: str,
        value: object,
        expected: str,
        discriminator: Discriminator | None = None,
    ) -> DocumentMisfit:
        return DocumentMisfit(
            collection=self.collection,
            document_id=self.document_id,
            field=self.path + name,
            found=describe_value(value),
            expected=expected,
            mend=f"filter with `where`, so that the result is {expected}",
        )


def aggregate_name(type_name: str) -> str:
    return f"{type_name}Aggregate"


def define_aggregates(types: Types, results: Model, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define the types and inputs of the aggregates of all entities.

    Args:
        results: see `resolvers.aggregates.measure.result_model`.
    """
    known = {each.name: each for each in results.embeddeds}
    for shape in shapes.values():
        collection = shape.entity.collection if shape.is_entity else ""
        for measure in Measure:
            result = known.get(measure_type_name(shape.name, measure))
            if result is not None and result.name not in types:
                _define_results(types, result, collection, f"Results of {shape.name}.")
                define_result_inputs(types, results, result, of_key=False)
        key = known.get(key_type_name(shape.name))
        if key is not None:
            _define_results(types, key, collection, f"Values that group {shape.name}.")
            define_result_inputs(types, results, key, of_key=True)
            define_group_by(types, shape, key)
    for shape in shapes.values():
        if shape.is_entity:
            _define_entity(types, results, shape.entity)


def _define_entity(types: Types, results: Model, entity: Entity) -> None:
    group = results.embedded(group_type_name(entity.name))
    counted = "versions" if entity is VERSION_RECORD else "documents"
    described = "Versions" if entity is VERSION_RECORD else f"Documents of {entity.name}"
    types.add_object(
        group.name,
        [_measure_field(each, _identity, counted) for each in group.fields],
        f"{described} with the same key.",
    )
    totals = [_measure_field(each, _totals, counted) for each in group.fields if each.name != KEY]
    types.add_object(
        aggregate_name(entity.name),
        [
            *totals,
            Read(
                "groups",
                f"[{group.name}!]!",
                "The groups, in the order of `orderBy`, then of the key.",
                attrgetter("groups"),
                counted=True,
            ),
            Read(
                "totalGroups",
                "Int!",
                "The number of groups that match `having`, also beyond `first`.",
                attrgetter("group_count"),
            ),
            Read(
                "hasMoreGroups",
                "Boolean!",
                "True if there are more groups than `first`.",
                attrgetter("has_more"),
            ),
        ],
        f"Results over {described[0].lower()}{described[1:]}: over all that match `where`, and in "
        "groups.",
    )
    define_group_inputs(types, results, entity)


def _measure_field(field: Field, values: Callable[[Any], Mapping[str, Any]], counted: str) -> Read:
    name = field.name
    if isinstance(field.type, str):
        return Read(
            name,
            f"{field.type}!",
            _DESCRIPTIONS[name],
            lambda source: values(source).get(name, _NOTHING),
        )
    return Read(
        name, "Int!", f"The number of {counted}.", lambda source: int(values(source).get(name, 0))
    )


def _define_results(types: Types, result: EmbeddedType, collection: str, description: str) -> None:
    place = _ResultLocation(collection or "embedded", "aggregate")
    types.add_object(
        result.name, [_result_field(each, place) for each in result.fields], description
    )


def _result_field(field: Field, place: ValueLocation) -> Read:
    name = field.name
    if isinstance(field.type, str):
        return Read(
            name,
            f"{field.type}!",
            f"Results of fields of `{name}`.",
            lambda source: source.get(name, _NOTHING),
        )
    description = field.description or f"The result of `{name}`."
    if field.required:
        return Read(
            name, f"{field.type_name}!", description, lambda source: int(source.get(name, 0))
        )
    convert = converter(field)
    return Read(name, field.type_name, description, lambda source: convert(source.get(name), place))


def _identity(source: Any) -> Any:
    return source


def _totals(source: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = source.totals
    return found
