"""Inputs of aggregates: groups, conditions on groups, and their order."""

from __future__ import annotations

from collections.abc import Container

from revstream.gql.engine.definitions.field import InputField
from revstream.gql.schema.common.filter_inputs import combinators, define_filter, field_filter
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import EmbeddedType, Entity, Field, Model, Scalar
from revstream.resolvers.aggregates.measure import KEY, group_type_name, key_type_name

__all__ = ["define_group_inputs", "define_result_inputs", "define_time_buckets", "group_by_name"]

_UNITS = ("MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


def group_by_name(type_name: str) -> str:
    return f"{type_name}AggregateGroupBy"


def define_time_buckets(types: Types) -> None:
    """Define the inputs of groups by time."""
    described = {each: f"A {each.lower()}." for each in _UNITS} | {
        "HOUR": "An hour.",
        "WEEK": "A week; it begins on Monday.",
    }
    types.add_enum("TimeUnit", described, "The length of a time bucket.")
    types.add_input(
        "TimeBucket",
        [
            InputField("by", "TimeUnit!", "The length of the buckets."),
            InputField(
                "timeZone",
                "String",
                "The time zone in which buckets begin: an Olson name, such as `Europe/Berlin`, or "
                "an offset, such as `+02:00`. Default: UTC.",
            ),
        ],
        "Groups by time: the value of a group is the start of its bucket.",
    )


def define_result_inputs(types: Types, results: Model, result: EmbeddedType, of_key: bool) -> None:
    """Define the order by results of a measure or by keys, and the filter of results."""
    types.add_input(
        f"{result.name}Order",
        [
            InputField(
                each.name,
                f"{each.type}Order" if isinstance(each.type, str) else "SortDirection",
                f"Direction of the order by `{each.name}`.",
            )
            for each in result.fields
        ],
        "One field that orders groups.",
        one_of=True,
    )
    if not of_key:
        _define_where(types, result, [])


def define_group_inputs(types: Types, results: Model, entity: Entity) -> None:
    """Define the inputs of the groups of an entity: `having` and `orderBy`."""
    group = results.embedded(group_type_name(entity.name))
    filtered = [each for each in group.fields if each.name != KEY]
    where = f"{group.name}Where"
    _define_where(
        types,
        EmbeddedType(name=group.name, fields=tuple(filtered)),
        combinators(where),
    )
    types.add_input(
        f"{group.name}Order",
        [
            InputField(
                each.name,
                f"{each.type}Order" if isinstance(each.type, str) else "SortDirection",
                f"Direction of the order by `{each.name}`.",
            )
            for each in group.fields
        ],
        f"One field that orders groups of {entity.name}. "
        "Pass several in a list, the most important first.",
        one_of=True,
    )


def define_group_by(
    types: Types, type_name: str, key: EmbeddedType, references: Container[str]
) -> None:
    """Define the input of `groupBy` for a type's fields.

    Args:
        references: the names of the fields that lead to another document.
    """
    types.add_input(
        group_by_name(type_name),
        [_group_by_field(each, key, references) for each in key.fields],
        f"Fields of {type_name} that make groups.",
    )


def _group_by_field(field: Field, key: EmbeddedType, references: Container[str]) -> InputField:
    if isinstance(field.type, str):
        inner = field.type.removesuffix(key_type_name(""))
        follows = field.name in references
        described = f"Group by fields of `{field.name}`."
        if follows:
            described += " A document that is missing, or that the caller may not read, has nulls."
        return InputField(field.name, group_by_name(inner), described, follows)
    if field.type is Scalar.DATETIME:
        return InputField(field.name, "TimeBucket", f"Group by the time in `{field.name}`.")
    return InputField(field.name, "Boolean", f"True: group by `{field.name}`.")


def _define_where(types: Types, result: EmbeddedType, more: list[InputField]) -> None:
    for each in result.fields:
        define_filter(types, each)
    types.add_input(
        f"{result.name}Where",
        [*more, *map(field_filter, result.fields)],
        "Conditions for results. All of them must match.",
    )
