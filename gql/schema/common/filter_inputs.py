"""Input types of filters, such as `ProductWhere` and `StringFilter`.

`resolvers.filters.parser` defines which operators a field has; this module adds their types and
descriptions. Resolvers receive the input as plain dicts, for `parse_where`.
"""

from __future__ import annotations

from collections.abc import Mapping

from revstream.gql.engine.definitions.field import InputField
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo, with_members
from revstream.gql.schema.common.order_inputs import version_names
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import Field, Scalar
from revstream.model.filter_operators import (
    BOOLEAN_OPERANDS,
    LIST_OPERANDS,
    NUMBER_OPERANDS,
    POINT_OPERANDS,
    TEXT_OPERANDS,
)
from revstream.resolvers.filters.parser import operators
from revstream.resolvers.history.version_filter import OPERATION

__all__ = [
    "OPERATOR_DESCRIPTIONS",
    "combinators",
    "define_filter",
    "define_filters",
    "field_filter",
    "unique_fields",
]

OPERATOR_DESCRIPTIONS: Mapping[str, str] = {
    "path": "Names that lead to the value, with dots between: `size.width`. A path leads through "
    "lists to each item. Without it, the value is that of the field.",
    "eq": "Equal to this value; `null` matches a missing value.",
    "ne": "Not equal to this value, or missing; `null` matches any value.",
    "in": "Equal to one of these values. An empty list matches nothing.",
    "notIn": "Equal to none of these values. An empty list matches everything.",
    "lt": "Less than this value.",
    "lte": "Less than or equal to this value.",
    "gt": "Greater than this value.",
    "gte": "Greater than or equal to this value.",
    "startsWith": "Starts with this text; case-sensitive.",
    "endsWith": "Ends with this text; case-sensitive.",
    "contains": "Contains this text; case-sensitive.",
    "eqIgnoreCase": "Equal to this text, in any case; accents count.",
    "startsWithIgnoreCase": "Starts with this text, in any case; accents count.",
    "endsWithIgnoreCase": "Ends with this text, in any case; accents count.",
    "containsIgnoreCase": "Contains this text, in any case; accents count.",
    "eqIgnoreCaseAndAccents": "Equal to this text, in any case, with or without accents.",
    "startsWithIgnoreCaseAndAccents": "Starts with this text, in any case, with or without "
    "accents.",
    "endsWithIgnoreCaseAndAccents": "Ends with this text, in any case, with or without accents.",
    "containsIgnoreCaseAndAccents": "Contains this text, in any case, with or without accents.",
    "matches": "Contains a match of this regular expression; case-sensitive. Not for "
    "subscriptions, row rules and items of lists.",
    "exists": "True: has a value that is not null. False: has no value, or null.",
    "within": "In this region.",
    "near": "At most so far away from a point, in metres.",
    "has": "At least one item is equal to this value.",
    "hasEvery": "The list contains each of these values.",
    "hasSome": "The list contains at least one of these values.",
    "size": "A list with this number of items.",
    "isEmpty": "True: a list without items. False: with items. A missing list matches neither.",
    "some": "At least one item matches.",
    "every": "All items match, or the list is empty or missing.",
    "none": "No item matches.",
}
_QUANTIFIERS = frozenset({"some", "every", "none"})
_RELATED = {
    "some": "At least one document matches.",
    "every": "All documents match, or there is none.",
    "none": "No document matches.",
}


def define_filters(types: Types, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define `<Type>Where` of all types, and the filter types of their fields."""
    _define_version_where(types)
    for shape in with_members(shapes):
        fields = [each for each in shape.fields.values() if operators(each)]
        if shape.is_entity and shape.union is None:
            _define_where(types, shape, fields)
            _define_by(types, shape)
        else:
            _define_embedded_where(types, shape, fields)
        for each in fields:
            define_filter(types, each)
        referred = [each.target for each in shape.back_links.values()]
        for target in [*referred, *(each.target for each in shape.list_links.values())]:
            if _related_filter_name(target) not in types:
                _define_related_filter(types, target)


def unique_fields(shape: ObjectTypeInfo) -> list[Field]:
    """Return the `@unique` fields of an entity."""
    return [each for each in shape.fields.values() if each.unique]


def combinators(name: str) -> list[InputField]:
    """Return the fields `and`, `or` and `not` of a filter."""
    return [
        InputField(
            "and", f"[{name}!]", "All of these filters match. An empty list matches everything."
        ),
        InputField(
            "or",
            f"[{name}!]",
            "At least one of these filters matches. An empty list matches nothing.",
        ),
        InputField("not", name, "This filter does not match."),
    ]


def _define_where(types: Types, shape: ObjectTypeInfo, fields: list[Field]) -> None:
    name = f"{shape.name}Where"
    of_fields = [field_filter(each) for each in fields]
    counter = [
        InputField(each, "IntFilter", "Conditions for the version number.")
        for each in version_names(shape)
    ]
    types.add_input(
        name,
        [
            *combinators(name),
            of_fields[0],
            *counter,
            *of_fields[1:],
            *_reference_filters(shape),
            *_member_filters(shape),
        ],
        f"Filter for documents of {shape.name}. A document must match all conditions.",
    )


def _define_embedded_where(types: Types, shape: ObjectTypeInfo, fields: list[Field]) -> None:
    name = f"{shape.name}Where"
    # The filter of a union selects its members; there they exist.
    exists = [InputField("exists", "Boolean", OPERATOR_DESCRIPTIONS["exists"])]
    if shape.union is not None:
        exists = []
    types.add_input(
        name,
        [
            *combinators(name),
            *map(field_filter, fields),
            *_reference_filters(shape),
            *_member_filters(shape),
            *exists,
        ],
        f"Filter for embedded documents of type {shape.name}. All conditions must match.",
    )


def _reference_filters(shape: ObjectTypeInfo) -> list[InputField]:
    to_one = [
        InputField(
            name,
            f"{link.target.name}Where",
            f"Conditions for the document to which `{link.by.name}` refers. It must exist. "
            "Not for subscriptions.",
            follows=True,
        )
        for name, link in shape.links.items()
    ]
    to_many = [
        InputField(
            name,
            _related_filter_name(link.target),
            f"Conditions for the documents to which `{link.by.name}` refers. "
            "Not for subscriptions.",
        )
        for name, link in shape.list_links.items()
    ]
    back = [
        InputField(
            name,
            _related_filter_name(link.target),
            f"Conditions for the documents of {link.target.name} whose `{link.by.name}` refers to "
            "this document. Not for subscriptions.",
        )
        for name, link in shape.back_links.items()
    ]
    return [*to_one, *to_many, *back]


def _related_filter_name(target: ObjectTypeInfo) -> str:
    return f"{target.name}ListFilter"


def _define_related_filter(types: Types, shape: ObjectTypeInfo) -> None:
    """Define the filter of the relations that lead to many documents of an entity."""
    types.add_input(
        _related_filter_name(shape),
        [
            InputField(name, f"{shape.name}Where", description, follows=True)
            for name, description in _RELATED.items()
        ],
        f"Conditions for related documents of {shape.name}, of those that the caller may read. "
        "All of them must match.",
    )


def _member_filters(shape: ObjectTypeInfo) -> list[InputField]:
    return [
        InputField(
            member.key,
            f"{member.type}Where",
            f"The document is a {member.type}, and matches these conditions.",
        )
        for member in (shape.discriminator.members if shape.discriminator else ())
    ]


def field_filter(field: Field) -> InputField:
    """Return the conditions of a field, as a field of a filter."""
    return InputField(
        field.name, _filter_name(field), field.description or f"Conditions for `{field.name}`."
    )


def _filter_name(field: Field) -> str:
    if isinstance(field.type, str):
        return f"{field.type}ListFilter" if field.is_list else f"{field.type}Where"
    if field.type is Scalar.JSON:
        return "JSONFilter"
    return f"{field.type_name}ListFilter" if field.is_list else f"{field.type_name}Filter"


def define_filter(types: Types, field: Field) -> None:
    """Define the filter type of a field, if it is not defined yet."""
    name = _filter_name(field)
    if name in types or (isinstance(field.type, str) and not field.is_list):
        return
    if isinstance(field.type, str):
        _define_list_of_embedded_filter(types, field)
    else:
        _define_scalar_filter(types, field)


def _define_scalar_filter(types: Types, field: Field) -> None:
    item = field.type_name
    is_list = field.is_list and field.type is not Scalar.JSON
    of_items = "a list with items" if is_list else "a value"
    types.add_input(
        _filter_name(field),
        [_operator(each, item) for each in operators(field)],
        f"Conditions for {of_items} of type {item}. All of them must match.",
    )


def _define_list_of_embedded_filter(types: Types, field: Field) -> None:
    item = field.type_name
    types.add_input(
        _filter_name(field),
        [
            InputField(each, f"{item}Where", OPERATOR_DESCRIPTIONS[each])
            if each in _QUANTIFIERS
            else _operator(each, item)
            for each in operators(field)
        ],
        f"Conditions for a list with items of type {item}. All of them must match.",
    )


def _operator(name: str, item: str) -> InputField:
    type_ = item
    if name in BOOLEAN_OPERANDS:
        type_ = "Boolean"
    elif name in NUMBER_OPERANDS:
        type_ = "Int"
    elif name in TEXT_OPERANDS:
        type_ = "String"
    elif name in LIST_OPERANDS:
        type_ = f"[{item}!]"
    type_ = POINT_OPERANDS.get(name, type_)
    return InputField(name, type_, OPERATOR_DESCRIPTIONS[name])


def _define_by(types: Types, shape: ObjectTypeInfo) -> None:
    fields = unique_fields(shape)
    if fields:
        types.add_input(
            f"{shape.name}By",
            [
                InputField(
                    each.name, each.type_name, each.description or f"Value of `{each.name}`."
                )
                for each in fields
            ],
            f"A unique field that identifies one document of {shape.name}.",
            one_of=True,
        )


def _define_version_where(types: Types) -> None:
    for type_ in (Scalar.ID, Scalar.STRING, OPERATION, Scalar.DATETIME, Scalar.INT):
        _define_scalar_filter(types, Field(name="", stored="", type=type_))
    types.add_input(
        "VersionWhere",
        [
            InputField("documentId", "IDFilter", "Conditions for the id of the document."),
            InputField("author", "StringFilter", "Conditions for the author."),
            InputField("operation", "OperationFilter", "Conditions for the operation."),
            InputField("at", "DateTimeFilter", "Conditions for the time of the write."),
            InputField("version", "IntFilter", "Conditions for the version number."),
            InputField(
                "changedField",
                "String",
                "Dotted path of a field. Matches versions that changed it, a field inside it, "
                "or a whole object that contains it.",
            ),
        ],
        "Filter for versions. A version must match all conditions.",
    )
