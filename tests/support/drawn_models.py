"""Hypothesis strategies for models, and a printer of a model's schema.graphql.

Names come from lists without conflicts, so every drawn model is valid.
"""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import strategies as st

from revstream.model.compiler.validation.fields import ID_SCALARS
from revstream.model.definition import (
    Access,
    BackReference,
    Copy,
    EmbeddedType,
    Entity,
    EnumType,
    Field,
    HistoryKind,
    Index,
    LayoutFields,
    Model,
    Reference,
    Scalar,
    SinkDefinition,
    Storage,
)

__all__ = ["models", "print_model"]

ENTITIES = ("Product", "Supplier", "Order", "URLEntry")
EMBEDDEDS = ("Size", "Line")
ENUMS = ("Colour", "Kind")
FIELDS = ("name", "price", "stock", "tags", "addedAt", "sku", "exact")

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
DESCRIPTIONS = st.none() | TEXTS
ROLES = st.lists(st.sampled_from(["staff", "guest", "admin"]), min_size=1, unique=True).map(tuple)
OPERATIONS = st.sampled_from(["BASELINE", "INSERT", "UPDATE", "REPLACE", "DELETE"])
SINKS = st.builds(
    SinkDefinition,
    url=st.sampled_from(["https://example.org", "http://example.org:8080/a?b=c"]),
    operations=st.none() | st.lists(OPERATIONS, min_size=1, unique=True).map(tuple),
)


@st.composite
def accesses(draw: st.DrawFn, *, rows: bool = False, write: bool = True) -> Access | None:
    """Draw arguments of `@access`, or None."""
    access = Access(
        read=draw(st.none() | ROLES),
        write=draw(st.none() | ROLES) if write else None,
        rows=draw(st.sampled_from([None, "{ id: { eq: $sub } }"])) if rows else None,
    )
    return None if access == Access() else access


def stored_as(scalar: Scalar) -> Scalar:
    """Return the storage type of a scalar: ID is stored as text."""
    return Scalar.STRING if scalar is Scalar.ID else scalar


@st.composite
def plain_fields(
    draw: st.DrawFn, enums: list[EnumType], holds: list[str], prefix: str = ""
) -> tuple[Field, ...]:
    """Draw fields of every type, with distinct names, with and without another storage type."""
    kinds = st.sampled_from([*Scalar, *enums, *holds])
    fields: list[Field] = []
    for name in draw(st.lists(st.sampled_from(FIELDS), min_size=1, unique=True)):
        kind = draw(kinds)
        is_list = kind is not Scalar.POINT and draw(st.booleans())
        fields.append(
            Field(
                name=f"{prefix}{name}",
                stored=draw(st.sampled_from([f"{prefix}{name}", f"{prefix}{name}_", f"ö {name}"])),
                type=kind,
                stored_scalar=stored_as(kind) if isinstance(kind, Scalar) else None,
                # A required embedded document of its own type would be infinite.
                required=not isinstance(kind, str) and draw(st.booleans()),
                is_list=is_list,
                item_required=is_list and draw(st.booleans()),
                description=draw(DESCRIPTIONS),
                unique=kind not in (Scalar.JSON, Scalar.POINT)
                and not isinstance(kind, str)
                and not prefix
                and draw(st.booleans()),
                access=draw(accesses()),
            )
        )
    return tuple(fields)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Draw a model with any of the features that a model may have."""
    enums = [
        EnumType(
            name=name,
            values=("NEW", "OLD"),
            value_descriptions=draw(st.dictionaries(st.sampled_from(["NEW", "OLD"]), TEXTS)),
            description=draw(DESCRIPTIONS),
        )
        for name in draw(st.lists(st.sampled_from(ENUMS), unique=True))
    ]
    embedded_names = draw(st.lists(st.sampled_from(EMBEDDEDS), unique=True))
    entity_names = draw(st.lists(st.sampled_from(ENTITIES), min_size=1, unique=True))
    ids = {name: draw(st.sampled_from(ID_SCALARS)) for name in entity_names}
    embeddeds = tuple(
        EmbeddedType(
            name=name,
            fields=draw(plain_fields(enums, embedded_names, prefix="part_")),
            description=draw(DESCRIPTIONS),
            access=draw(accesses()),
        )
        for name in embedded_names
    )
    bodies = {name: draw(plain_fields(enums, embedded_names)) for name in entity_names}
    entities: list[Entity] = []
    for name in entity_names:
        targets = draw(st.lists(st.sampled_from(entity_names), unique=True))
        named = tuple(
            Field(
                name=f"to{target}Id",
                stored=draw(st.sampled_from([f"to{target}Id", f"to_{target}"])),
                type=Scalar.ID,
                stored_scalar=stored_as(ids[target]),
                required=draw(st.booleans()),
            )
            for target in targets
        )
        copies = tuple(
            Field(
                name=f"copy{target}",
                stored=f"copy{target}",
                type=source.type,
                stored_scalar=source.stored_scalar,
                is_list=source.is_list,
                item_required=source.item_required,
                copy=Copy(reference=f"to{target}", source=source.name),
            )
            for target in targets
            for source in draw(st.lists(st.sampled_from(bodies[target]), max_size=1))
        )
        holders = tuple(
            Field(name=f"held{each}", stored=f"held{each}", type=each) for each in embedded_names
        )
        fence = Field(
            name="fence", stored="fence", type=Scalar.LONG, stored_scalar=Scalar.LONG, fence=True
        )
        fields = (
            *bodies[name],
            *named,
            *copies,
            *holders,
            *([fence] if draw(st.booleans()) else []),
        )
        indexed = [each for each in named if draw(st.booleans())]
        entities.append(
            Entity(
                name=name,
                fields=(
                    Field(
                        name="id",
                        stored="_id",
                        type=Scalar.ID,
                        stored_scalar=stored_as(ids[name]),
                        required=True,
                    ),
                    *fields,
                ),
                references=tuple(
                    Reference(
                        name=f"to{target}",
                        target=target,
                        by=each.name,
                        required=each.required and draw(st.booleans()),
                        description=draw(DESCRIPTIONS),
                        access=draw(accesses(write=False)),
                    )
                    for target, each in zip(targets, named, strict=True)
                ),
                description=draw(DESCRIPTIONS),
                access=draw(accesses(rows=True)),
                collection=f"all {name}",
                singular={"URLEntry": "urlEntry"}.get(name, name.lower()),
                plural=draw(st.sampled_from([f"all{name}", f"{name.lower()}List"])),
                version=draw(st.sampled_from([None, "version", "rev"])),
                storage=draw(st.sampled_from(Storage)),
                partitions=draw(st.integers(1, 64)),
                back_references=tuple(
                    BackReference(
                        name=f"from{other.name}",
                        target=other.name,
                        field=f"to{name}Id",
                        description=draw(DESCRIPTIONS),
                        access=draw(accesses(write=False)),
                    )
                    for other in entities
                    if other.field(f"to{name}Id") and draw(st.booleans())
                ),
                indexes=(
                    *(
                        Index(fields=(each.stored, "_id"), unique=draw(st.booleans()))
                        for each in indexed
                    ),
                    *(Index(fields=(each.stored,), unique=True) for each in fields if each.unique),
                ),
                sinks=tuple(draw(st.lists(SINKS, max_size=2, unique_by=lambda each: each.url))),
            )
        )
    kept = tuple(in_layout(each, draw(st.sampled_from(HistoryKind))) for each in entities)
    return Model(entities=kept, embeddeds=embeddeds, enums=tuple(enums))


def in_layout(entity: Entity, history: HistoryKind) -> Entity:
    """Return the entity with that layout, where its other features allow it."""
    refused = (each.fence or each.copy or each.unique for each in entity.fields)
    unique = any(each.unique for each in entity.indexes)
    if history is HistoryKind.ARCHIVE or entity.storage is Storage.DELTA or entity.version is None:
        return entity
    if unique or any(refused):
        return entity
    previous = f"{entity.collection}.previous" if history is HistoryKind.SEPARATE else "prev"
    return replace(entity, history=history, layout=LayoutFields(previous=previous))


def gql_str(text: str) -> str:
    """Return a text as a GraphQL string."""
    return json.dumps(text, ensure_ascii=False)


def gql_list(texts: tuple[str, ...]) -> str:
    """Return texts as a GraphQL list of strings."""
    return f"[{', '.join(map(gql_str, texts))}]"


def print_doc(description: str | None) -> str:
    """Return the description that stands before a definition, or an empty text."""
    return "" if description is None else f"{gql_str(description)} "


def print_access(access: Access | None) -> str:
    """Return the `@access` directive with its arguments."""
    if access is None:
        return ""
    arguments = [
        *([f"read: {gql_list(access.read)}"] if access.read else []),
        *([f"write: {gql_list(access.write)}"] if access.write else []),
        *([f"rows: {gql_str(access.rows)}"] if access.rows else []),
    ]
    return f" @access({', '.join(arguments)})"


def print_field(field: Field) -> str:
    """Return one stored field as a line."""
    kind = field.type
    name = kind if isinstance(kind, str) else kind.value if isinstance(kind, Scalar) else kind.name
    if field.stored == "_id" and field.stored_scalar:
        name = field.stored_scalar.value
    item = f"{name}{'!' if field.item_required else ''}"
    directives = [
        *(
            [f"@stored(as: {gql_str(field.stored)})"]
            if field.stored not in ("_id", field.name)
            else []
        ),
        *(["@unique"] if field.unique else []),
        *(["@fence"] if field.fence else []),
        *([f'@copy(of: "{field.copy.reference}.{field.copy.source}")'] if field.copy else []),
    ]
    return (
        f"{print_doc(field.description)}{field.name}: {f'[{item}]' if field.is_list else item}"
        f"{'!' if field.required else ''} {' '.join(directives)}{print_access(field.access)}"
    )


def print_entity(entity: Entity) -> str:
    """Return the type with all its directives and relations."""
    api_names = {each.stored: each.name for each in entity.fields}
    version = "null" if entity.version is None else gql_str(entity.version)
    sinks = [
        f"@sink(url: {gql_str(each.url)}"
        + (f", operations: [{', '.join(each.operations)}])" if each.operations else ")")
        for each in entity.sinks
    ]
    unique = sum(each.unique for each in entity.fields)
    indexes = [
        f"@index(fields: {gql_list(tuple(api_names[each] for each in index.fields))}"
        f"{', unique: true' if index.unique else ''})"
        for index in entity.indexes[: len(entity.indexes) - unique]
    ]
    relations = [
        *(
            f"{print_doc(each.description)}{each.name}: {each.target}"
            f"{'!' if each.required else ''} "
            f"@reference(by: {gql_str(each.by)}){print_access(each.access)}"
            for each in entity.references
        ),
        *(
            f"{print_doc(each.description)}{each.name}: [{each.target}!]! "
            f"@referencedBy(field: {gql_str(each.field)}){print_access(each.access)}"
            for each in entity.back_references
        ),
    ]
    body = "\n".join([*map(print_field, entity.fields), *relations])
    return (
        f"{print_doc(entity.description)}type {entity.name} @collection(name: "
        f"{gql_str(entity.collection)}, plural: {gql_str(entity.plural)}, version: {version}, "
        f"history: {entity.history.value}, storage: {entity.storage.value}, "
        f"partitions: {entity.partitions}) "
        f"{' '.join([*indexes, *sinks])}{print_access(entity.access)} {{\n{body}\n}}"
    )


def print_model(model: Model) -> str:
    """Return the schema.graphql of a model."""
    embeddeds = [
        f"{print_doc(each.description)}type {each.name}{print_access(each.access)} {{\n"
        + "\n".join(map(print_field, each.fields))
        + "\n}"
        for each in model.embeddeds
    ]
    enums = [
        f"{print_doc(each.description)}enum {each.name} {{ "
        + " ".join(
            f"{print_doc(each.value_descriptions.get(value))}{value}" for value in each.values
        )
        + " }"
        for each in model.enums
    ]
    return "\n".join([*map(print_entity, model.entities), *embeddeds, *enums])
