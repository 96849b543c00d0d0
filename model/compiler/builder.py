"""Make the `Model` out of declarations in which no check found a mistake."""

from __future__ import annotations

from dataclasses import replace

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    FieldDeclaration,
    TypeDeclaration,
)
from revstream.model.compiler.validation.access import access_of
from revstream.model.compiler.validation.collections import plural, singular
from revstream.model.compiler.validation.copies import copied_field
from revstream.model.compiler.validation.indexes import indexes_of
from revstream.model.compiler.validation.layouts import layout_of
from revstream.model.compiler.validation.references import FieldKey, named_ids
from revstream.model.compiler.validation.retention import keep_of
from revstream.model.compiler.validation.search import search_of
from revstream.model.compiler.validation.sinks import sinks_of
from revstream.model.definition import (
    BackReference,
    Copy,
    EmbeddedType,
    Entity,
    EnumType,
    Field,
    HistoryKind,
    Model,
    Reference,
    Scalar,
    Storage,
)

__all__ = ["build_model"]


def build_model(declarations: Declarations) -> Model:
    """The model that the declarations describe. They must have passed every check."""
    ids = named_ids(declarations)
    members = tuple(_member(each, ids, declarations) for each in declarations.members)
    return Model(
        entities=tuple(
            _with_member_fields(_entity(each, ids, declarations), members)
            for each in declarations.entities
        ),
        embeddeds=tuple(
            EmbeddedType(
                name=each.name,
                fields=_fields(each, ids, declarations),
                references=_references(each),
                description=each.description,
                access=access_of(each.directives),
                discriminator=each.discriminator,
            )
            for each in declarations.embeddeds
        ),
        enums=tuple(declarations.enums.values()),
        members=members,
    )


def _with_member_fields(entity: Entity, members: tuple[Entity, ...]) -> Entity:
    own = {each.stored for each in entity.fields}
    further = [
        field
        for member in members
        for field in member.fields
        if member.collection == entity.collection and field.stored not in own
    ]
    return replace(entity, member_fields=tuple(further))


def _member(
    type_: TypeDeclaration, ids: dict[FieldKey, Scalar], declarations: Declarations
) -> Entity:
    """Return a member of an entity: the entity with its own name, fields and references."""
    owner = declarations.types[type_.member_of or ""]
    return replace(
        _entity(owner, ids, declarations),
        name=type_.name,
        fields=_fields(type_, ids, declarations),
        references=_references(type_),
        description=type_.description,
        discriminator=None,
    )


def _entity(
    type_: TypeDeclaration, ids: dict[FieldKey, Scalar], declarations: Declarations
) -> Entity:
    collection = type_.directives.one("collection")
    assert collection is not None
    return Entity(
        name=type_.name,
        fields=_fields(type_, ids, declarations),
        references=_references(type_),
        description=type_.description,
        discriminator=type_.discriminator,
        access=access_of(type_.directives),
        collection=collection.text("name") or "",
        singular=singular(type_),
        plural=plural(type_) or "",
        version=collection.text("version"),
        history=HistoryKind(collection.text("history")),
        layout=layout_of(type_),
        storage=Storage(collection.text("storage")),
        partitions=collection.number("partitions") or 1,
        keep=keep_of(collection),
        back_references=_back_references(type_),
        indexes=indexes_of(type_, declarations),
        search=search_of(type_, declarations),
        sinks=sinks_of(type_),
    )


def _fields(
    type_: TypeDeclaration, ids: dict[FieldKey, Scalar], declarations: Declarations
) -> tuple[Field, ...]:
    fields = [_field(type_, each, ids, declarations) for each in type_.stored_fields]
    # Entity.fields[0] is the id, wherever it was declared.
    return (
        tuple(sorted(fields, key=lambda each: each.stored != "_id"))
        if type_.is_entity
        else tuple(fields)
    )


def _field(
    type_: TypeDeclaration,
    field: FieldDeclaration,
    ids: dict[FieldKey, Scalar],
    declarations: Declarations,
) -> Field:
    is_id = type_.is_entity and field.name == "id"
    shown, stored = _types(type_, field, ids, declarations)
    copy = field.directives.one("copy")
    found = copied_field(type_, copy, declarations) if copy else None
    held = declarations.embedded(field) if field.is_stored else None
    return Field(
        name=field.name,
        stored="_id" if is_id else field.stored,
        type=shown,
        stored_scalar=stored,
        required=field.required,
        is_list=field.is_list,
        item_required=field.item_required,
        description=field.description,
        unique="unique" in field.directives,
        fence="fence" in field.directives,
        copy=Copy(reference=(copy.text("of") or "").partition(".")[0], source=found[1].name)
        if copy and found
        else None,
        access=access_of(field.directives),
        discriminator=held.discriminator if held else None,
        constant=_constant(type_, field, declarations),
    )


def _constant(
    type_: TypeDeclaration, field: FieldDeclaration, declarations: Declarations
) -> str | None:
    """Return the value of the discriminator in a member of a union; None for other fields."""
    union = declarations.types[type_.member_of] if type_.member_of else None
    discriminator = union.discriminator if union else None
    if discriminator is None or field.name != discriminator.name:
        return None
    return next(each.value for each in discriminator.members if each.type == type_.name)


def _types(
    type_: TypeDeclaration,
    field: FieldDeclaration,
    ids: dict[FieldKey, Scalar],
    declarations: Declarations,
) -> tuple[Scalar | EnumType | str, Scalar | None]:
    """Return the type of a field in the API, and the scalar in which it is stored."""
    kind = declarations.kind(field)
    if not isinstance(kind, Scalar):
        return (kind, None) if isinstance(kind, EnumType) else (field.type_name, None)
    stored = Scalar.STRING if kind is Scalar.ID else kind
    if type_.is_entity and field.name == "id":
        return Scalar.ID, stored
    if (type_.name, field.name) in ids:
        return Scalar.ID, ids[type_.name, field.name]
    return kind, stored


def _references(type_: TypeDeclaration) -> tuple[Reference, ...]:
    return tuple(
        Reference(
            name=field.name,
            target=field.type_name,
            by=directive.text("by") or "",
            is_list=field.is_list,
            required=field.required,
            description=field.description,
            access=access_of(field.directives),
        )
        for field in type_.fields.values()
        if (directive := field.directives.one("reference"))
    )


def _back_references(type_: TypeDeclaration) -> tuple[BackReference, ...]:
    return tuple(
        BackReference(
            name=field.name,
            target=field.type_name,
            field=directive.text("field") or "",
            description=field.description,
            access=access_of(field.directives),
        )
        for field in type_.fields.values()
        if (directive := field.directives.one("referencedBy"))
    )
