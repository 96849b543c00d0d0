"""Translation of `orderBy` to the paths and directions of a MongoDB sort."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from revstream.model.definition import Entity, EnumType, Field, Scalar
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.pagination.keyset import Keys
from revstream.resolvers.values.points import Coordinates

__all__ = [
    "CountKey",
    "DistanceKey",
    "Order",
    "ReferenceKey",
    "RelatedKey",
    "order_keys",
    "related_keys",
]

RELATED = "to"
"""Prefix of the paths of related values: see `resolvers.pagination.related_order`."""


@dataclass(frozen=True, slots=True)
class ReferenceKey:
    """A field of the document to which a reference leads.

    Attributes:
        name: API names, as in `supplier.address.city`.
        place: those of them that lead to the reference.
        by: stored path of the id.
        path: stored path of the field, in the target.
    """

    name: str
    place: str
    by: str
    target: Entity
    path: str

    @property
    def sorted_path(self) -> str:
        return f"{RELATED}.{self.place}.{self.path}"


@dataclass(frozen=True, slots=True)
class CountKey:
    """Number of documents of a relation to many.

    Attributes:
        place: API names that lead to the relation.
        field: of a back reference: the field of `target` that holds the id of the document.
        by: stored path of that id, or of the list of ids of the documents.
    """

    place: str
    target: Entity
    field: Field | None = None
    by: str = "_id"

    @property
    def name(self) -> str:
        return f"{self.place}.count"

    @property
    def sorted_path(self) -> str:
        return f"{RELATED}.{self.place}"


@dataclass(frozen=True, slots=True)
class DistanceKey:
    """Distance of a point of the document from another point.

    Attributes:
        place: API names that lead to the point of the document.
        by: its stored path.
    """

    place: str
    by: str
    origin: Coordinates

    @property
    def name(self) -> str:
        return f"{self.place}.distanceTo"

    @property
    def sorted_path(self) -> str:
        return f"{RELATED}.{self.place}"


RelatedKey = ReferenceKey | CountKey | DistanceKey
Order = Sequence[tuple[str | RelatedKey, str]]
"""API names of top-level fields, the most important first, each with ASC or DESC.

A field of an embedded document has its stored path instead, which has dots: `dimensions.w`.
"""

_DIRECTIONS = {"ASC": 1, "DESC": -1}


def order_keys(
    entity: Entity,
    order: Order | None,
    *,
    id_path: str = "_id",
    version_path: str | None = None,
    prefix: str = "",
) -> Keys:
    """Return the keys of a total order: those of `orderBy`, then the id.

    The id has the direction of the key before it, since an index can be read both ways.

    Args:
        id_path: path of the id in the documents that are read.
        version_path: path of the version number; None for the entity's version field.
        prefix: prefix of the paths of all other fields.

    Raises:
        BadUserInput: a name that is not an orderable field, or a repeated one.
    """
    keys: list[tuple[str, int]] = []
    names: set[str] = set()
    for given, word in order or ():
        name = given if isinstance(given, str) else given.name
        if name in names:
            raise BadUserInput(
                f"orderBy: {name} twice, expected each field once; remove one of them",
                argument="orderBy",
            )
        if word not in _DIRECTIONS:
            raise BadUserInput(
                f"orderBy.{name}: {word!r}, expected ASC or DESC", argument="orderBy"
            )
        names.add(name)
        if name == "id":
            # Ids are unique: further keys would have no effect.
            return (*keys, (id_path, _DIRECTIONS[word]))
        path = (
            _path(entity, name, version_path, prefix)
            if isinstance(given, str)
            else given.sorted_path
        )
        keys.append((path, _DIRECTIONS[word]))
    return (*keys, (id_path, keys[-1][1] if keys else 1))


def related_keys(order: Order | None) -> list[RelatedKey]:
    """Return the keys of an order whose values are not stored in the document."""
    found: list[RelatedKey] = []
    for name, _ in order or ():
        if name == "id":
            # As in `order_keys`.
            break
        if not isinstance(name, str):
            found.append(name)
    return found


def _path(entity: Entity, name: str, version_path: str | None, prefix: str) -> str:
    if "." in name:
        return prefix + name
    field = entity.field(name)
    if field is None:
        version = version_path or entity.version
        if name == "version" and version is not None:
            return version
        raise BadUserInput(
            f"orderBy: {name!r}, expected a field of {entity.name}", argument="orderBy"
        )
    single = isinstance(field.type, Scalar | EnumType) and not field.is_list
    if not single or field.type in (Scalar.JSON, Scalar.POINT):
        raise BadUserInput(
            f"orderBy: {entity.name}.{name} is a list or has several values, expected a field "
            "with one value; sort by another field",
            argument="orderBy",
        )
    return prefix + field.stored
