"""Collections as other tools describe them, and the draft of a model from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.importing.plain_schema import schema_kinds
from revstream.model.inference.draft_builder import (
    CollectionFacts,
    ModelDraft,
    build_draft,
    has_fields,
)
from revstream.model.inference.json_schema import add_json_schema
from revstream.model.inference.profile import Kind, ObjectProfile
from revstream.model.inference.relation import Candidate, Relation

__all__ = ["CollectionSchema", "ImportedReference", "SourceError", "draft_of", "split_served"]


# Kinds of ids, as they are compared.
_IDS = {
    "objectId": "objectId",
    "string": "string",
    "uuid": "uuid",
    "int": "int",
    "long": "int",
    "integer": "int",
}


class SourceError(ValueError):
    """A source of a model that cannot be read; the text says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedReference:
    """Field that holds ids of another collection.

    Attributes:
        path: Stored names from the document to the field.
        lists: Whether the field is a list of ids.
    """

    path: tuple[str, ...]
    target: str
    lists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionSchema:
    """Collection as another tool describes it.

    Attributes:
        schema: JSON schema of its documents, with `bsonType` or `type`.
        title: Name of its type in the other tool.
        unique: Stored names of its unique fields.
        notes: Facts that are not translated.
    """

    name: str
    schema: Mapping[str, Any]
    title: str | None = None
    references: tuple[ImportedReference, ...] = ()
    unique: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def split_served(
    collections: Sequence[CollectionSchema],
) -> tuple[list[CollectionSchema], list[str]]:
    """Return the collections that a model can have, and a line for each other one.

    Raises:
        SourceError: There are none.
    """
    served = [each for each in collections if has_fields(_profile(each.schema))]
    lines = [
        f"Left out: {each.name}: it has no field but _id."
        for each in collections
        if each not in served
    ]
    if not served:
        names = ", ".join(each.name for each in collections)
        raise SourceError(f"{names}: no fields but _id, expected a schema with others")
    return served, lines


def draft_of(collections: Sequence[CollectionSchema]) -> ModelDraft:
    """Return the draft; relations to collections that are not among them become notes."""
    schemas = {each.name: each.schema for each in collections}
    facts = {}
    relations = []
    notes: dict[str, list[str]] = {each.name: [*each.notes] for each in collections}
    for each in collections:
        profile = _profile(each.schema)
        facts[each.name] = CollectionFacts(profile=profile, unique=each.unique, title=each.title)
        for reference in each.references:
            problem = _problem(each.schema, reference, schemas)
            if problem is None:
                relations.append(_relation(each.name, reference))
            else:
                path = ".".join(reference.path)
                notes[each.name].append(
                    f'not translated: "{path}" refers to "{reference.target}", {problem}'
                )
    draft = build_draft(facts, relations)
    for type_ in draft.types:
        if type_.collection is not None:
            type_.comments = notes[type_.collection]
    return draft


def _profile(schema: Mapping[str, Any]) -> ObjectProfile:
    profile = ObjectProfile()
    add_json_schema(profile, schema, alone=True)
    # An id is never null; some tools say so of every field that is not required.
    profile.field_profile("_id").kinds.pop(Kind.NULL, None)
    return profile


def _problem(
    schema: Mapping[str, Any],
    reference: ImportedReference,
    schemas: Mapping[str, Mapping[str, Any]],
) -> str | None:
    """Return why a reference cannot be followed; None if it can."""
    if reference.target not in schemas:
        return "which is not here"
    found = _id_kind(schema, reference.path)
    if found is None or found[1] is not reference.lists:
        return f"but the schema has no such field with {'ids' if reference.lists else 'an id'}"
    wanted = _id_kind(schemas[reference.target], ("_id",))
    if wanted is not None and wanted[0] != found[0]:
        return f'but holds {found[0]}, and "_id" there is {wanted[0]}'
    return None


def _relation(collection: str, reference: ImportedReference) -> Relation:
    return Relation(
        candidate=Candidate(
            collection=collection,
            path=reference.path,
            lists=reference.lists,
            target=reference.target,
            named=True,
        ),
        found=1,
    )


def _id_kind(schema: Mapping[str, Any], path: tuple[str, ...]) -> tuple[str, bool] | None:
    """Return the kind of the ids that a property holds, and whether in a list; None if there is no
    such property, or it holds anything but ids. Lists are looked into on the way.
    """
    at: Any = schema
    for name in path:
        while isinstance(at, Mapping) and isinstance(at.get("items"), Mapping):
            at = at["items"]
        properties = at.get("properties") if isinstance(at, Mapping) else None
        if not isinstance(properties, Mapping) or not isinstance(properties.get(name), Mapping):
            return None
        at = properties[name]
    items = at.get("items")
    lists = set(schema_kinds(at)) - {"null"} == {"array"}
    one = items if lists else at
    kinds = set(schema_kinds(one)) - {"null"} if isinstance(one, Mapping) else set()
    found = {_IDS.get(each) for each in kinds}
    [kind] = found if len(found) == 1 else (None,)
    return None if kind is None else (kind, lists)
