"""The types of a model with their fields by name and their references resolved, built once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from revstream.model.definition import (
    BackReference,
    Discriminator,
    EmbeddedType,
    Entity,
    Field,
    Model,
    ObjectType,
    Reference,
    Scalar,
)
from revstream.resolvers.access.permissions import members, read_by
from revstream.resolvers.values.field_diff import FieldDiff
from revstream.resolvers.values.output import ID_TO_API

__all__ = ["BackLink", "Link", "ObjectTypeInfo", "build_object_types", "with_members"]


@dataclass(frozen=True, slots=True)
class Link:
    """Reference to one document: the field `by` holds the id of a document of `target`."""

    reference: Reference
    by: Field
    target: ObjectTypeInfo


@dataclass(frozen=True, slots=True)
class BackLink:
    """Reference to the documents of `target` whose field `by` holds this document's id."""

    reference: BackReference
    by: Field
    target: ObjectTypeInfo


@dataclass(eq=False, slots=True, kw_only=True)
class ObjectTypeInfo:
    """An entity or an embedded type.

    Attributes:
        fields: stored fields, by API name.
        embedded: types of the fields that hold embedded documents, by API name.
        links: references to one document, by API name.
        list_links: references to the documents of a list of ids, by API name.
        list_pages: the same, by the name of the field with their pages.
        guarded: fields, references and back references with an `@access` rule, by name.
        everything: stored names of all fields, of members too; a comparison of two states reads
            these.
        members: types of the members, if it is a union, by the discriminator's value.
        union: type of the union of which it is a member.
        entity: the type, if it is an entity.
        id_scalar: stored type of an entity's `_id`.
        shown_id: converts an `_id` to its API form, or to REFUSED.
        comparison: compares two states of an entity, for callers that may read all fields.
    """

    type: ObjectType
    fields: Mapping[str, Field]
    embedded: dict[str, ObjectTypeInfo] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    list_links: dict[str, Link] = field(default_factory=dict)
    list_pages: dict[str, Link] = field(default_factory=dict)
    back_links: dict[str, BackLink] = field(default_factory=dict)
    guarded: dict[str, Field | Reference | BackReference] = field(default_factory=dict)
    members: dict[str, ObjectTypeInfo] = field(default_factory=dict)
    union: ObjectTypeInfo | None = None
    name: str = field(init=False)
    everything: frozenset[str] = field(init=False)
    entity: Entity = field(init=False)
    id_scalar: Scalar = field(init=False)
    shown_id: Callable[[Any], Any] = field(init=False)
    comparison: FieldDiff = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.type.name
        self.everything = frozenset(each.stored for each in self.fields.values())
        if isinstance(self.type, Entity):
            self.entity = self.type
            self.id_scalar = self.type.id.stored_scalar or Scalar.ID
            self.shown_id = ID_TO_API[self.id_scalar]

    @property
    def is_entity(self) -> bool:
        return isinstance(self.type, Entity)

    @property
    def discriminator(self) -> Discriminator | None:
        """The field that tells the members of a union apart; None for other types."""
        return self.type.discriminator

    def is_discriminator(self, field: Field) -> bool:
        """Return whether the field tells the members of the union apart, here or in a member."""
        union = self.union or self
        return union.discriminator is not None and union.discriminator.name == field.name

    @property
    def variants(self) -> Sequence[ObjectTypeInfo]:
        """The object types of documents: the members of a union, or the type itself."""
        return [*self.members.values()] or [self]

    def variant(self, document: Mapping[str, Any]) -> ObjectTypeInfo:
        """Return the type of a document: the member, if it is one of a union.

        Raises:
            KeyError: the document is of no member.
        """
        return self.members[document[self.discriminator.stored]] if self.discriminator else self

    @property
    def state(self) -> str:
        """The interface of current and past documents."""
        return f"{self.name}State"

    @property
    def snapshot(self) -> str:
        """The object type of past documents."""
        return f"{self.name}Snapshot"

    @property
    def version(self) -> str:
        """The object type of an entity's versions."""
        return f"{self.name}Version"


def with_members(shapes: Mapping[str, ObjectTypeInfo]) -> Iterator[ObjectTypeInfo]:
    """Return the types, and behind each entity that is an interface its members."""
    for shape in shapes.values():
        yield shape
        if shape.is_entity:
            yield from shape.members.values()


def build_object_types(model: Model) -> Mapping[str, ObjectTypeInfo]:
    """Build the types of a model, by name, entities first, in the model's order."""
    types: tuple[Entity | EmbeddedType, ...] = (*model.entities, *model.embeddeds, *model.members)
    shapes = {
        each.name: ObjectTypeInfo(type=each, fields={one.name: one for one in each.fields})
        for each in types
    }
    for shape in shapes.values():
        for one in shape.discriminator.members if shape.discriminator else ():
            shape.members[one.value] = shapes[one.type]
            shapes[one.type].union = shape
            if shape.is_entity:
                # Its collection, rows and history are those of the interface.
                shapes[one.type].entity = shape.entity
        for each in shape.fields.values():
            if isinstance(each.type, str):
                shape.embedded[each.name] = shapes[each.type]
        for reference in shape.type.references:
            by = shape.fields[reference.by]
            found = shape.list_links if reference.is_list else shape.links
            found[reference.name] = Link(reference, by, shapes[reference.target])
        if isinstance(shape.type, Entity):
            shape.comparison = FieldDiff(shape.type, model)
            for back in shape.type.back_references:
                target = shapes[back.target]
                shape.back_links[back.name] = BackLink(back, target.fields[back.field], target)
        taken = (shape.fields, shape.links, shape.list_links, shape.back_links)
        for link in shape.list_links.values():
            name = f"{link.reference.name}Connection"
            # A field of the model has precedence.
            if not any(name in each for each in taken):
                shape.list_pages[name] = link
        for guarded in members(shape.type):
            if read_by(model, shape.type, guarded):
                shape.guarded[guarded.name] = guarded
    for shape in shapes.values():
        for member in shape.members.values():
            shape.everything |= member.everything
        # A member has the fields of its interface: a name that one of them has is taken in all.
        family = [shape, *shape.members.values()] if shape.is_entity else []
        for name in {page for each in family for page in each.list_pages}:
            if any(name in (*kin.fields, *kin.links, *kin.list_links) for kin in family):
                for kin in family:
                    kin.list_pages.pop(name, None)
    # Members of an entity are found by the entity: they have no collection of their own.
    own = {each.name for each in model.members}
    return {name: each for name, each in shapes.items() if name not in own}
