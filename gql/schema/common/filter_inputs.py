"""Input types of filters and orders: `ProductWhere`, `ProductOrder`, `StringFilter`, …

`resolvers.filters.parser` defines which operators a field has; this module adds their types and
descriptions. Resolvers receive the input as plain dicts, for `parse_where`.
"""

from __future__ import annotations

from collections.abc import Mapping

from revstream.gql.engine.definitions.field import InputField
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import EnumType, Field, Scalar
from revstream.resolvers.filters.parser import operators
from revstream.resolvers.history.version_filter import OPERATION

__all__ = ["define_filters", "orderable_fields"]

_OPERATOR_DESCRIPTIONS: Mapping[str, str] = {
    "eq": "Equal to this. `null` means that there is no value.",
    "ne": "Not equal to this, or without a value. `null` means that there is a value.",
    "in": "Equal to one of these. An empty list matches nothing.",
    "notIn": "Equal to none of these. An empty list matches everything.",
    "lt": "Less than this.",
    "lte": "Less than this, or equal to it.",
    "gt": "Greater than this.",
    "gte": "Greater than this, or equal to it.",
    "startsWith": "Begins with this text, in the same case.",
    "contains": "Has this text somewhere in it, in the same case.",
    "exists": "True: there is a value, and it is not null. False: there is none.",
    "has": "One of the items is equal to this.",
    "hasEvery": "Each of these is among the items.",
    "hasSome": "At least one of these is among the items.",
    "isEmpty": "True: a list without items. False: one with items. No list is neither.",
    "some": "At least one item matches.",
    "every": "All items match, or there are none.",
    "none": "No item matches.",
}
_LISTS = frozenset({"in", "notIn", "hasEvery", "hasSome"})
_FLAGS = frozenset({"exists", "isEmpty"})
_QUANTIFIERS = frozenset({"some", "every", "none"})


def define_filters(types: Types, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define `<Type>Where` of all types, `<Entity>Order`, and the filter types of their fields."""
    _define_version_where(types)
    for shape in shapes.values():
        fields = [each for each in shape.fields.values() if operators(each)]
        if shape.is_entity:
            _define_where(types, shape, fields)
            _define_order(types, shape)
        else:
            _define_embedded_where(types, shape, fields)
        for each in fields:
            _define_filter(types, each)


def orderable_fields(shape: ObjectTypeInfo) -> list[str]:
    """Return the names of the fields by which documents can be ordered.

    These are fields with a single, comparable value. The id is the first, then `version` if the
    entity has a version field.
    """
    names = [
        each.name
        for each in shape.fields.values()
        if not each.is_list
        and isinstance(each.type, Scalar | EnumType)
        and each.type is not Scalar.JSON
    ]
    return [names[0], *_version(shape), *names[1:]]


def _version(shape: ObjectTypeInfo) -> list[str]:
    return ["version"] if shape.entity.version is not None else []


def _combinators(name: str) -> list[InputField]:
    return [
        InputField("and", f"[{name}!]", "Each of these matches. An empty list matches everything."),
        InputField(
            "or", f"[{name}!]", "At least one of these matches. An empty list matches nothing."
        ),
        InputField("not", name, "This does not match."),
    ]


def _define_where(types: Types, shape: ObjectTypeInfo, fields: list[Field]) -> None:
    name = f"{shape.name}Where"
    of_fields = [_field_filter(each) for each in fields]
    counter = [
        InputField(each, "IntFilter", "The version number that is shown.")
        for each in _version(shape)
    ]
    types.add_input(
        name,
        [*_combinators(name), of_fields[0], *counter, *of_fields[1:]],
        f"Which documents of {shape.name} match: those that match everything that is given.",
    )


def _define_embedded_where(types: Types, shape: ObjectTypeInfo, fields: list[Field]) -> None:
    name = f"{shape.name}Where"
    types.add_input(
        name,
        [
            *_combinators(name),
            *map(_field_filter, fields),
            InputField("exists", "Boolean", _OPERATOR_DESCRIPTIONS["exists"]),
        ],
        f"Which embedded documents of type {shape.name} match: "
        "those that match everything that is given.",
    )


def _field_filter(field: Field) -> InputField:
    return InputField(field.name, _filter_name(field), field.description or f"By `{field.name}`.")


def _filter_name(field: Field) -> str:
    if isinstance(field.type, str):
        return f"{field.type}ListFilter" if field.is_list else f"{field.type}Where"
    return f"{field.type_name}ListFilter" if field.is_list else f"{field.type_name}Filter"


def _define_filter(types: Types, field: Field) -> None:
    name = _filter_name(field)
    if name in types or (isinstance(field.type, str) and not field.is_list):
        return
    if isinstance(field.type, str):
        _define_list_of_embedded_filter(types, field)
    else:
        _define_scalar_filter(types, field)


def _define_scalar_filter(types: Types, field: Field) -> None:
    item = field.type_name
    of_items = "the items of a list" if field.is_list else "a value"
    types.add_input(
        _filter_name(field),
        [_operator(each, item) for each in operators(field)],
        f"What is asked of {of_items} of type {item}; everything that is given must hold.",
    )


def _define_list_of_embedded_filter(types: Types, field: Field) -> None:
    item = field.type_name
    types.add_input(
        _filter_name(field),
        [
            InputField(each, f"{item}Where", _OPERATOR_DESCRIPTIONS[each])
            if each in _QUANTIFIERS
            else _operator(each, item)
            for each in operators(field)
        ],
        f"What is asked of a list of {item}; everything that is given must hold.",
    )


def _operator(name: str, item: str) -> InputField:
    type_ = "Boolean" if name in _FLAGS else f"[{item}!]" if name in _LISTS else item
    return InputField(name, type_, _OPERATOR_DESCRIPTIONS[name])


def _define_order(types: Types, shape: ObjectTypeInfo) -> None:
    types.add_input(
        f"{shape.name}Order",
        [InputField(each, "SortDirection", f"By `{each}`.") for each in orderable_fields(shape)],
        f"One field to order documents of {shape.name} by; "
        "give several in a list, the most important first.",
        one_of=True,
    )


def _define_version_where(types: Types) -> None:
    for type_ in (Scalar.ID, Scalar.STRING, OPERATION, Scalar.DATETIME, Scalar.INT):
        _define_scalar_filter(types, Field(name="", stored="", type=type_))
    types.add_input(
        "VersionWhere",
        [
            InputField("documentId", "IDFilter", "By the id of the document."),
            InputField("author", "StringFilter", "By who wrote."),
            InputField("operation", "OperationFilter", "By what was done."),
            InputField("at", "DateTimeFilter", "By when it was written."),
            InputField("version", "IntFilter", "By the version number."),
            InputField(
                "changedField",
                "String",
                "The dotted path of a field: versions that changed it, something inside of it, "
                "or all of what it is in.",
            ),
        ],
        "Which versions match: those that match everything that is given.",
    )
