"""Pydantic models and Beanie documents of a Python module, as collections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.importing.collection_schema import (
    CollectionSchema,
    ImportedReference,
    SourceError,
    draft_of,
    split_served,
)
from revstream.model.importing.plain_schema import plain_schema, schema_kinds, union_schema
from revstream.model.inference.accepted_names import accepted_text
from revstream.model.inference.json_schema import add_json_schema
from revstream.model.inference.naming_words import field_name, plural_word, reference_base
from revstream.model.inference.profile import ObjectProfile
from revstream.model.inference.relation import candidates
from revstream.model.naming import lower_first

__all__ = ["PythonModel", "python_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonModel:
    """Class of documents.

    Attributes:
        base: Name of the class whose collection it shares, or its own.
        collection: Name of the collection; None if the class does not say it.
        schema: JSON schema of its documents, with `bsonType` or `type` and `$defs`.
        unique: Stored names of its unique fields.
        notes: Facts that are not translated.
    """

    name: str
    base: str
    collection: str | None
    schema: Mapping[str, Any]
    unique: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()


def python_text(source: str, models: Sequence[PythonModel], only: list[str]) -> str:
    """Return the text of a model for the collections of Python models.

    Args:
        source: Name of the module's file.
        only: Names of collections; empty for all.

    Raises:
        SourceError: There are none.
    """
    by_collection: dict[str, list[PythonModel]] = {}
    for each in models:
        name = each.collection or plural_word(lower_first(each.name))
        if not only or name in only:
            by_collection.setdefault(name, []).append(each)
    if not by_collection:
        raise SourceError(
            f"{source}: no models of collections{' ' + ', '.join(only) if only else ''}, expected "
            "documents of Beanie, or Pydantic models with a field that has the alias _id, or with "
            "a class Settings that has a name"
        )
    collections = [_collection(name, each) for name, each in by_collection.items()]
    references = dict(_references({each.name: each.schema for each in collections}))
    found = [
        CollectionSchema(
            name=each.name,
            schema=each.schema,
            title=each.title,
            references=tuple(references.get(each.name, ())),
            unique=each.unique,
            notes=each.notes,
        )
        for each in collections
    ]
    served, left_out = split_served(found)
    header = [f"Made from the Python models in {source}.", *left_out]
    return accepted_text(draft_of(served), header)


def _collection(name: str, models: list[PythonModel]) -> CollectionSchema:
    schemas = [plain_schema(each.schema, each.schema.get("$defs", {})) for each in models]
    schema = union_schema(schemas)
    _set_id(schema)
    notes = [note for each in models for note in each.notes]
    if len(models) > 1:
        notes.insert(0, f"documents of the classes {', '.join(each.name for each in models)}")
    if models[0].collection is None:
        notes.insert(0, f"{models[0].name} does not say its collection: check the name")
    return CollectionSchema(
        name=name,
        schema=schema,
        title=models[0].base,
        unique=frozenset(field for each in models for field in each.unique),
        notes=tuple(dict.fromkeys(notes)),
    )


def _set_id(schema: dict[str, Any]) -> None:
    """Give an `_id` that may be missing the type that MongoDB gives it."""
    one = schema.setdefault("properties", {}).get("_id", {"bsonType": ["null"]})
    kinds = set(schema_kinds(one))
    if "null" in kinds and kinds <= {"null", "string"}:
        one = {"bsonType": ["objectId"]}
    schema["properties"]["_id"] = one


def _references(
    schemas: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[str, list[ImportedReference]]]:
    """Yield the references by fields that are named after a collection, as ids: `supplier_id`."""
    profiles = {name: ObjectProfile() for name in schemas}
    for name, schema in schemas.items():
        add_json_schema(profiles[name], schema, alone=True)
    found: dict[str, dict[tuple[str, ...], ImportedReference]] = {}
    for each in candidates(profiles):
        if each.named and reference_base(field_name(each.path[-1])):
            of = found.setdefault(each.collection, {})
            of.setdefault(
                each.path,
                ImportedReference(path=each.path, target=each.target, lists=each.lists),
            )
    for name, references in found.items():
        yield name, [*references.values()]
