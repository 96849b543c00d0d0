"""Inputs of aggregates: groups, conditions on groups, and their order."""

from __future__ import annotations

from revstream.gql.engine.definitions.field import InputField
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.schema.common.filter_inputs import combinators, define_filter, field_filter
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import EmbeddedType, Entity, Field, Model, Scalar
from revstream.resolvers.aggregates.measure import KEY, group_type_name, key_type_name

__all__ = ["define_group_inputs", "define_result_inputs", "define_time_buckets", "group_by_name"]

_DATE_UNITS = {
    "DAY": "A day.",
    "WEEK": "A week; it begins on Monday.",
    "MONTH": "A month.",
    "QUARTER": "A quarter.",
    "YEAR": "A year.",
}
_TIME_UNITS = {"MINUTE": "A minute.", "HOUR": "An hour.", **_DATE_UNITS}


def group_by_name(type_name: str) -> str:
    return f"{type_name}AggregateGroupBy"


def define_time_buckets(types: Types) -> None:
    """Define the inputs of groups by time and by date."""
    types.add_enum("TimeUnit", _TIME_UNITS, "The length of a time bucket.")
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
    types.add_enum("DateUnit", _DATE_UNITS, "The length of a date bucket.")
    types.add_input(
        "DateBucket",
        [InputField("by", "DateUnit!", "The length of the buckets.")],
        "Groups by date: the value of a group is the first day of its bucket.",
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


def define_group_by(types: Types, shape: ObjectTypeInfo, key: EmbeddedType) -> None:
    """Define the input of `groupBy` for a type's fields."""
    types.add_input(
        group_by_name(shape.name),
        [_group_by_field(each, shape) for each in key.fields],
        f"Fields of {shape.name} that make groups.",
    )


def _group_by_field(field: Field, shape: ObjectTypeInfo) -> InputField:
    name = field.name
    follows = name in shape.links
    is_list = not follows and shape.fields[name].is_list
    items = " of the items of" if is_list else " of"
    more = ""
    if follows:
        more = " A document that is missing, or that the caller may not read, has nulls."
    elif is_list:
        more = " A document is in the group of each different key of its items."
    if isinstance(field.type, str):
        inner = field.type.removesuffix(key_type_name(""))
        described = f"Group by fields{items} `{name}`.{more}"
        return InputField(name, group_by_name(inner), described, follows)
    if field.type is Scalar.DATETIME:
        the = "each time" if is_list else "the time"
        return InputField(name, "TimeBucket", f"Group by {the} in `{name}`.{more}")
    if field.type is Scalar.DATE:
        the = "each date" if is_list else "the date"
        return InputField(name, "DateBucket", f"Group by {the} in `{name}`.{more}")
    each = "each item of " if is_list else ""
    return InputField(name, "Boolean", f"True: group by {each}`{name}`.{more}")


def _define_where(types: Types, result: EmbeddedType, more: list[InputField]) -> None:
    for each in result.fields:
        define_filter(types, each)
    types.add_input(
        f"{result.name}Where",
        [*more, *map(field_filter, result.fields)],
        "Conditions for results. All of them must match.",
    )
