"""Definition of a model: frozen dataclasses with the content of a schema.graphql.

The archive, the resolvers and the GraphQL types are built from a `Model`. Pure: no I/O, no web, no
driver. `model.compiler.loader.read_model` creates it; only tests create it by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = [
    "Access",
    "BackReference",
    "Copy",
    "Discriminator",
    "EmbeddedType",
    "Entity",
    "EnumType",
    "Field",
    "HistoryKind",
    "Index",
    "Keep",
    "LayoutFields",
    "Model",
    "ObjectType",
    "Reference",
    "Scalar",
    "SearchIndex",
    "SinkDefinition",
    "Storage",
    "UnionMember",
]


class Scalar(Enum):
    """The scalars of the model language; the value is the GraphQL name."""

    ID = "ID"
    STRING = "String"
    INT = "Int"
    LONG = "Long"
    FLOAT = "Float"
    BOOLEAN = "Boolean"
    DECIMAL = "Decimal"
    DATETIME = "DateTime"
    DATE = "Date"
    TIMESTAMP = "Timestamp"
    OBJECTID = "ObjectID"
    UUID = "UUID"
    BINARY = "Binary"
    POINT = "Point"
    JSON = "JSON"


class HistoryKind(Enum):
    """Layout in which the versions of a collection are stored."""

    ARCHIVE = "ARCHIVE"
    DOCUMENT_PER_VERSION = "DOCUMENT_PER_VERSION"
    CURRENT_FLAG = "CURRENT_FLAG"
    EMBEDDED = "EMBEDDED"
    SEPARATE = "SEPARATE"
    DELTAS = "DELTAS"


class Storage(Enum):
    """Storage of a version in the archive: whole, or as deltas between keyframes."""

    FULL = "FULL"
    DELTA = "DELTA"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumType:
    """An enum.

    `stored_as`: the texts that values are stored as, where they are not the values' names.
    """

    name: str
    values: tuple[str, ...]
    stored_as: dict[str, str] = field(default_factory=dict, hash=False)
    value_descriptions: dict[str, str] = field(default_factory=dict, hash=False)
    description: str | None = None

    def stored(self, value: str) -> str:
        """Return the text that a value is stored as."""
        return self.stored_as.get(value, value)

    @property
    def by_stored(self) -> dict[str, str]:
        """The values by the text that each is stored as."""
        return {self.stored(each): each for each in self.values}


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`@access`: roles that may read and write, and a row rule; None where it is left open.

    `rows` is a GraphQL input value of the entity's Where type, with variables that name claims:
    `{ ownerId: { eq: $sub } }`. Of entities only: `propose`, `publish`: roles that may make and
    publish drafts, None for those of `write`; `comment`: roles that may comment, None for those of
    `read`; `publish_own`: whether callers may publish drafts of their own.
    """

    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None
    rows: str | None = None
    propose: tuple[str, ...] | None = None
    comment: tuple[str, ...] | None = None
    publish: tuple[str, ...] | None = None
    publish_own: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """`@copy(of: "reference.source")`: kept equal to `source` of where `reference` leads to."""

    reference: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionMember:
    """A type that a document of a union may have.

    `key`: its name in filters and inputs. `value`: the discriminator's value in its documents.
    """

    type: str
    key: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Discriminator:
    """`@discriminator`: the field by whose value the members of a union are told apart."""

    name: str
    stored: str
    members: tuple[UnionMember, ...]

    def member(self, document: Mapping[str, Any]) -> UnionMember | None:
        """Return the member that a stored document is of; None for an unknown value."""
        value = document.get(self.stored)
        # bson.Code is a subclass of str.
        if value.__class__ is not str:
            return None
        return next((each for each in self.members if each.value == value), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A stored value.

    `type` says what the API shows: a scalar, an enum, or the name of an embedded type.
    `stored_scalar` says how a scalar lies in MongoDB; it differs from `type` for ids only: `id`,
    and a field that a `@reference` names, show ID and are stored as the `_id` they lead to.
    `discriminator`: of a field that holds documents of a union. `constant`: the only value of a
    discriminator in the documents of one member.
    """

    name: str
    stored: str
    type: Scalar | EnumType | str
    stored_scalar: Scalar | None = None
    required: bool = False
    is_list: bool = False
    item_required: bool = False
    description: str | None = None
    unique: bool = False
    fence: bool = False
    copy: Copy | None = None
    access: Access | None = None
    discriminator: Discriminator | None = None
    constant: str | None = None

    @property
    def type_name(self) -> str:
        """Name in GraphQL of the type of one item."""
        match self.type:
            case Scalar():
                return self.type.value
            case EnumType():
                return self.type.name
            case name:
                return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """`@reference(by:)`: from the id in field `by` (of this type) to the target's `_id`.

    `is_list`: to-many, from a list of ids.
    """

    name: str
    target: str
    by: str
    is_list: bool = False
    required: bool = False
    description: str | None = None
    access: Access | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackReference:
    """`@referencedBy(field:)`: the documents of `target` whose `field` holds the id of this one."""

    name: str
    target: str
    field: str
    description: str | None = None
    access: Access | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """`@index` or `@unique`: stored names, in order; `points`: those of fields of type Point."""

    fields: tuple[str, ...]
    unique: bool = False
    points: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchIndex:
    """`@search`: the text index of an entity. For each field its name, stored name and weight."""

    names: tuple[str, ...]
    fields: tuple[str, ...]
    weights: tuple[int, ...]
    language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """`keep:`: how much of a document's history stays; one of the two. `text`: as it was written.

    `seconds`: how long ago a version may have been replaced. `versions`: how many stay, the current
    one included.
    """

    text: str
    seconds: int | None = None
    versions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFields:
    """`@layout`: the names by which a collection keeps its versions itself.

    `document`: of the field with the id. `current`: of the flag, or of the current state.
    `previous`: of the list of previous states, or of their collection. `unset`, `whole`: of what a
    delta says. `deleted`: of what marks a deletion. `at`: of when a version was written, or None.
    """

    document: str = "docId"
    current: str = "current"
    previous: str = "prev"
    unset: str = "unset"
    whole: str = "whole"
    deleted: str = "deleted"
    at: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkDefinition:
    """`@sink`: where changes are delivered as CloudEvents, and which operations (None: all)."""

    url: str
    operations: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectType:
    """Common part of entities and embedded types; fields in source order.

    A union or an interface has a `discriminator`, and the fields that all its members have.
    `hidden`: stored names of the fields that were left out for one caller.
    """

    name: str
    fields: tuple[Field, ...]
    references: tuple[Reference, ...] = ()
    description: str | None = None
    access: Access | None = None
    hidden: frozenset[str] = frozenset()
    discriminator: Discriminator | None = None

    def field(self, name: str) -> Field | None:
        """The field of that API name, or None."""
        return next((each for each in self.fields if each.name == name), None)

    def stored_field(self, stored: str) -> Field | None:
        """The field of that name in MongoDB, or None."""
        return next((each for each in self.fields if each.stored == stored), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedType(ObjectType):
    """A type without `@collection`: part of its parent's document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity(ObjectType):
    """A type with `@collection`. `fields[0]` is always `id`, stored as `_id`.

    `singular`, `plural`: the root fields (`product`, `products`). `version`: the stored field that
    counts writes, or None. `layout`: None where revstream keeps the versions itself. `partitions`:
    into how many parts recording it is divided. `member_fields`: further fields of the members, if
    it is an interface.
    """

    collection: str
    singular: str
    plural: str
    version: str | None = "version"
    history: HistoryKind = HistoryKind.ARCHIVE
    layout: LayoutFields | None = None
    storage: Storage = Storage.FULL
    partitions: int = 1
    keep: Keep | None = None
    back_references: tuple[BackReference, ...] = ()
    indexes: tuple[Index, ...] = ()
    search: SearchIndex | None = None
    sinks: tuple[SinkDefinition, ...] = ()
    member_fields: tuple[Field, ...] = ()

    @property
    def id(self) -> Field:
        return self.fields[0]

    @property
    def fence(self) -> Field | None:
        """The field that holds the fencing token of out-of-order events, or None."""
        return next((each for each in self.fields if each.fence), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A whole schema.graphql, in source order; `entity` and `embedded` look up by type name.

    `members`: of the entities that are interfaces; they share the collection of theirs.
    """

    entities: tuple[Entity, ...]
    embeddeds: tuple[EmbeddedType, ...] = ()
    enums: tuple[EnumType, ...] = ()
    description: str | None = None
    members: tuple[Entity, ...] = ()

    def entity(self, name: str) -> Entity:
        """Return an entity by its name.

        Raises:
            KeyError: No entity has that name.
        """
        for each in self.entities:
            if each.name == name:
                return each
        raise KeyError(name)

    def embedded(self, name: str) -> EmbeddedType:
        """Return an embedded type by its name.

        Raises:
            KeyError: No embedded type has that name.
        """
        for each in self.embeddeds:
            if each.name == name:
                return each
        raise KeyError(name)

    def variant(self, kind: ObjectType, document: Mapping[str, Any]) -> ObjectType:
        """Return the member of a union that a stored document is of, else the type itself.

        A document that is of no member has the fields that all members have.
        """
        if kind.discriminator is None:
            return kind
        member = kind.discriminator.member(document)
        return kind if member is None else self.member(member.type)

    def member(self, name: str) -> ObjectType:
        """Return a member of a union by its name."""
        return next((each for each in self.members if each.name == name), None) or self.embedded(
            name
        )

    def variants(self, kind: ObjectType) -> tuple[ObjectType, ...]:
        """Return the types that a document may be of: the type, then the members of a union."""
        members = kind.discriminator.members if kind.discriminator else ()
        return (kind, *(self.member(each.type) for each in members))

    def entity_of_collection(self, collection: str) -> Entity | None:
        return next((each for each in self.entities if each.collection == collection), None)
