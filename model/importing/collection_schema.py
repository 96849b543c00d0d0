"""Collections as other tools describe them, and the draft of a model from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.inference.draft_builder import CollectionFacts, ModelDraft, build_draft
from revstream.model.inference.json_schema import add_json_schema
from revstream.model.inference.profile import ObjectProfile
from revstream.model.inference.relation import Candidate, Relation

__all__ = ["CollectionSchema", "ImportedReference", "SourceError", "draft_of"]


_IDS = ("objectId", "string", "uuid", "int", "long", "integer")


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


def draft_of(collections: Sequence[CollectionSchema]) -> ModelDraft:
    """Return the draft; relations to collections that are not among them become notes."""
    known = {each.name for each in collections}
    facts = {}
    relations = []
    notes: dict[str, list[str]] = {each.name: [*each.notes] for each in collections}
    for each in collections:
        profile = ObjectProfile()
        add_json_schema(profile, each.schema, alone=True)
        facts[each.name] = CollectionFacts(profile=profile, unique=each.unique, title=each.title)
        for reference in each.references:
            path = ".".join(reference.path)
            if reference.target not in known:
                notes[each.name].append(
                    f'not translated: "{path}" refers to "{reference.target}", which is not here'
                )
            elif _holds_list(each.schema, reference.path) is not reference.lists:
                notes[each.name].append(
                    f'not translated: "{path}" refers to "{reference.target}", '
                    f"but the schema has no such field with {'ids' if reference.lists else 'an id'}"
                )
            else:
                relations.append(_relation(each.name, reference))
    draft = build_draft(facts, relations)
    for type_ in draft.types:
        if type_.collection is not None:
            type_.comments = notes[type_.collection]
    return draft


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


def _holds_list(schema: Mapping[str, Any], path: tuple[str, ...]) -> bool | None:
    """Return whether the property at a path, lists looked into, holds a list of single values;
    None if there is none, or it holds anything but single values.
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
    lists = at.get("bsonType", at.get("type")) == "array"
    one = items if lists else at
    kind = one.get("bsonType", one.get("type")) if isinstance(one, Mapping) else None
    return lists if kind in _IDS else None
