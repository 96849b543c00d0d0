"""Input types of orders, such as `ProductOrder` and `DimensionsOrderBy`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from revstream.gql.engine.definitions.field import InputField
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.schema.common.type_builder import Types
from revstream.model.definition import EnumType, Field, Scalar

__all__ = ["define_orders", "orderable_fields", "version_names"]


def define_orders(types: Types, shapes: Mapping[str, ObjectTypeInfo]) -> None:
    """Define `<Entity>Order`, and the types of its fields."""
    for shape in shapes.values():
        if shape.is_entity:
            _define_order(types, shape)
        else:
            _define_embedded_order(types, shape)
        related = [each.target for each in shape.back_links.values()]
        for target in [*related, *(each.target for each in shape.list_links.values())]:
            if _count_order_name(target) not in types:
                _define_count_order(types, target)
        for link in shape.links.values():
            if _reference_order_name(link.target) not in types:
                _define_reference_order(types, link.target)


def version_names(shape: ObjectTypeInfo) -> list[str]:
    """Return the API name of an entity's version number; nothing if it has no version field."""
    return ["version"] if shape.entity.version is not None else []


def orderable_fields(shape: ObjectTypeInfo) -> list[str]:
    """Return the names of the fields by which documents can be ordered.

    These are fields with a single, comparable value, in an embedded document too. The id is the
    first, then `version` if the entity has a version field.
    """
    names = [each.name for each in shape.fields.values() if _is_orderable(shape, each)]
    return [names[0], *version_names(shape), *names[1:]] if shape.is_entity else names


def _is_orderable(shape: ObjectTypeInfo, field: Field) -> bool:
    if field.is_list or field.type in (Scalar.JSON, Scalar.POINT):
        return False
    if not shape.is_entity and field.stored.isdecimal():
        # In a path, a number is also an index of a list.
        return False
    if isinstance(field.type, Scalar | EnumType):
        return True
    inner = shape.embedded[field.name]
    # An embedded document that has only embedded ones is not offered: it may contain itself.
    return any(
        _is_orderable(inner, each) or _is_point(inner, each)
        for each in inner.fields.values()
        if isinstance(each.type, Scalar | EnumType)
    )


def _define_order(types: Types, shape: ObjectTypeInfo) -> None:
    types.add_input(
        f"{shape.name}Order",
        _order_fields(shape),
        f"One field that orders documents of {shape.name}. "
        "Pass several in a list, the most important first.",
        one_of=True,
    )


def _define_embedded_order(types: Types, shape: ObjectTypeInfo) -> None:
    fields = _order_fields(shape)
    # The shared fields of a union are ordered by, those of its members are not.
    if fields and shape.union is None:
        types.add_input(
            f"{shape.name}OrderBy",
            fields,
            f"One field of an embedded document of type {shape.name} that orders documents.",
            one_of=True,
        )


def _reference_order_name(target: ObjectTypeInfo) -> str:
    return f"{target.name}OrderBy"


def _define_reference_order(types: Types, shape: ObjectTypeInfo) -> None:
    types.add_input(
        _reference_order_name(shape),
        _own_order_fields(shape, [name for name in orderable_fields(shape) if name != "version"]),
        f"One field of a document of {shape.name} that orders documents that refer to it.",
        one_of=True,
    )


def _count_order_name(target: ObjectTypeInfo) -> str:
    return f"{target.name}OrderByCount"


def _define_count_order(types: Types, shape: ObjectTypeInfo) -> None:
    types.add_input(
        _count_order_name(shape),
        [InputField("count", "SortDirection", "Direction of the order by the number.")],
        f"An order by the number of related documents of {shape.name}.",
        one_of=True,
    )


def _order_fields(shape: ObjectTypeInfo) -> list[InputField]:
    to_one = [
        InputField(
            name,
            _reference_order_name(link.target),
            f"A field of the document to which `{link.by.name}` refers. Without one that the "
            "caller may read, it is a missing value. For at most 10,000 documents.",
            follows=True,
        )
        for name, link in shape.links.items()
    ]
    targets = {name: link.target for name, link in shape.list_links.items()}
    targets |= {name: link.target for name, link in shape.back_links.items()}
    counts = [
        InputField(
            name,
            _count_order_name(target),
            f"The number of documents in `{name}` that the caller may read. "
            "For at most 10,000 documents.",
            follows=True,
        )
        for name, target in targets.items()
    ]
    distances = [
        InputField(
            name,
            "PointOrder",
            f"The distance of `{name}` from a point. For at most 10,000 documents.",
            follows=True,
        )
        for name, field in shape.fields.items()
        if _is_point(shape, field)
    ]
    own = _own_order_fields(shape, orderable_fields(shape))
    return [*own, *distances, *to_one, *counts]


def _is_point(shape: ObjectTypeInfo, field: Field) -> bool:
    return field.type is Scalar.POINT and (shape.is_entity or not field.stored.isdecimal())


def _own_order_fields(shape: ObjectTypeInfo, names: Iterable[str]) -> list[InputField]:
    return [
        InputField(name, f"{shape.embedded[name].name}OrderBy", f"A field inside of `{name}`.")
        if name in shape.embedded
        else InputField(name, "SortDirection", f"Direction of the order by `{name}`.")
        for name in names
    ]
