"""Input types of mutations: `ProductInput`, `ProductPatch`, `ProductIncrement`, `ProductEvent`.

Embedded types have an input and a patch, too. Resolvers receive the input as plain dicts, for
`resolvers.mutations.document_input`.
"""

from __future__ import annotations

from collections.abc import Mapping

from revstream.gql.engine.definitions.field import InputField
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo, with_members
from revstream.gql.schema.common.descriptions import field_description, object_phrase
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import Field, Scalar
from revstream.model.naming import lower_first, with_article
from revstream.resolvers.mutations.document_input import incrementable_fields, writable_fields

__all__ = ["define_inputs", "has_counters", "has_input"]


def define_inputs(types: Types, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define the input types of all types.

    A type without a field that clients may write gets none: revstream sets all its fields.
    """
    for shape in with_members(shapes):
        if shape.members:
            _define_union_inputs(types, shape)
        elif has_input(shape):
            _define_plain_inputs(types, shape)
        if shape.is_entity and shape.union is None and has_input(shape):
            _define_entity_inputs(types, shape)


def _define_plain_inputs(types: Types, shape: ObjectTypeInfo) -> None:
    fields = list(writable_fields(shape.type))
    types.add_input(
        f"{shape.name}Input",
        [
            InputField(each.name, _complete_type(each), field_description(shape, each))
            for each in fields
        ],
        f"The complete content of {object_phrase(shape)}. "
        "A field that is missing or null has no value afterwards.",
    )
    types.add_input(
        f"{shape.name}Patch",
        [
            InputField(each.name, _patch_type(each), field_description(shape, each))
            for each in fields
        ],
        f"Changes of {object_phrase(shape)}. A missing field keeps its value; null removes "
        "it. Embedded documents are merged field by field, lists are replaced (RFC 7396).",
    )


def _define_entity_inputs(types: Types, shape: ObjectTypeInfo) -> None:
    if has_counters(shape):
        types.add_input(
            f"{shape.name}Increment",
            [
                InputField(
                    each.name,
                    each.type_name,
                    f"The number to add to `{each.name}`; may be negative.",
                )
                for each in incrementable_fields(shape.entity)
            ],
            f"Numbers to add to fields of {with_article(shape.name)}, atomically.",
        )
    if shape.entity.fence is not None:
        types.add_input(
            f"{shape.name}Event",
            [
                InputField("id", "ID!", "The id of the document."),
                InputField("document", f"{shape.name}Input!", "The state of the document."),
            ],
            f"One state of {with_article(shape.name)}, from an event.",
        )


def _define_union_inputs(types: Types, shape: ObjectTypeInfo) -> None:
    other = "is an error" if shape.is_entity else "is replaced by the content"
    for suffix, description in (
        ("Input", "The complete content of a document"),
        ("Patch", f"Changes of a document of this type; a document of another type {other}. It is"),
    ):
        types.add_input(
            f"{shape.name}{suffix}",
            [
                InputField(
                    lower_first(each.name),
                    f"{each.name}{suffix}" if has_input(each) else "Boolean",
                    f"{description} of type {each.name}"
                    + ("." if has_input(each) else ": `true`, since it has no fields."),
                )
                for each in shape.members.values()
            ],
            f"A document of one of the types of {shape.name}, under the name of its type.",
            one_of=True,
        )


def has_input(shape: ObjectTypeInfo) -> bool:
    """Return whether a client may write at least one field."""
    return any(True for _ in writable_fields(shape.type))


def has_counters(shape: ObjectTypeInfo) -> bool:
    """Return whether the entity has at least one number that can be incremented."""
    return shape.is_entity and any(True for _ in incrementable_fields(shape.entity))


def _complete_type(field: Field) -> str:
    text = _wrap_in_list(field, _item_type(field, "Input"))
    return f"{text}!" if field.required else text


def _patch_type(field: Field) -> str:
    # A patch replaces a list, so its items are complete.
    return _wrap_in_list(field, _item_type(field, "Input" if field.is_list else "Patch"))


def _wrap_in_list(field: Field, item: str) -> str:
    return f"[{item}{'!' if field.item_required else ''}]" if field.is_list else item


def _item_type(field: Field, suffix: str) -> str:
    if field.type is Scalar.POINT:
        return "PointInput"
    return f"{field.type}{suffix}" if isinstance(field.type, str) else field.type_name
