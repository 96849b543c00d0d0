"""Models of Mongoose, exported as JSON: a list with one object for each model.

Each has `name`, `base` (of a discriminator), `collection`, `schema` (of `toJSONSchema` with
`useBsonType`), `indexes` (of `indexes`) and `paths`: `path`, `instance`, `ref`, `refPath`, and
`variants`, the schemas of embedded discriminators.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
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

__all__ = ["mongoose_text"]

Model = Mapping[str, Any]


def mongoose_text(path: Path, only: list[str]) -> str:
    """Return the text of a model for the collections of exported models.

    Args:
        only: Names of collections; empty for all.

    Raises:
        SourceError: The file holds something else.
    """
    models = _read(path)
    collections = {each["name"]: each["collection"] for each in models}
    names = [each for each in dict.fromkeys(collections.values()) if not only or each in only]
    if not names:
        raise SourceError(
            f"{path}: no models of the collections {', '.join(only)}, expected one of "
            f"{', '.join(sorted(set(collections.values())))}"
        )
    found = [
        _collection(name, [each for each in models if each["collection"] == name], collections)
        for name in names
    ]
    served, left_out = split_served(found)
    header = [f"Made from the Mongoose models in {path.name}.", *left_out]
    return accepted_text(draft_of(served), header)


def _read(path: Path) -> list[Model]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {error}, expected JSON") from error
    if not isinstance(found, list) or not found or not all(map(_is_model, found)):
        raise SourceError(
            f"{path}: no list of objects with name, collection and schema, expected exported "
            "Mongoose models; export them as the page on `revstream init` shows"
        )
    return found


def _is_model(found: Any) -> bool:
    return (
        isinstance(found, dict)
        and all(isinstance(found.get(each), str) for each in ("name", "collection"))
        and isinstance(found.get("schema"), dict)
        and isinstance(found["schema"].get("properties"), dict)
        and all(map(_is_path, found.get("paths", [])))
        and all(map(_is_index, found.get("indexes", [])))
    )


def _is_path(found: Any) -> bool:
    return isinstance(found, dict) and isinstance(found.get("path"), str)


def _is_index(found: Any) -> bool:
    return (
        isinstance(found, list)
        and len(found) == 2
        and all(isinstance(each, dict) for each in found)
    )


def _collection(name: str, models: list[Model], collections: Mapping[str, str]) -> CollectionSchema:
    """Return one collection; several models of it are discriminators, or say the same twice."""
    # The base first, whose name the type has.
    base, *others = sorted(models, key=lambda each: isinstance(each.get("base"), str))
    notes = []
    references: dict[tuple[str, ...], ImportedReference] = {}
    schemas = []
    for model in (base, *others):
        schema = plain_schema({"bsonType": "object", **model["schema"]})
        for path, facts in _paths(model):
            _set_kind(schema, path, facts)
            reference = facts.get("ref")
            if isinstance(facts.get("refPath"), str):
                notes.append(f'not translated: "{".".join(path)}" refers to several collections')
            elif isinstance(reference, str):
                references[path] = ImportedReference(
                    path=path,
                    target=collections.get(reference, reference),
                    lists=facts.get("instance") == "Array",
                )
        schemas.append(schema)
    if others:
        notes.insert(0, f"documents of the models {', '.join(each['name'] for each in models)}")
    return CollectionSchema(
        name=name,
        schema=union_schema(schemas),
        title=base["name"],
        references=tuple(references.values()),
        unique=frozenset(each for model in models for each in _unique(model)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _paths(model: Model) -> Iterator[tuple[tuple[str, ...], Model]]:
    """Yield the paths of a model with their facts; not those inside a Map."""
    for each in model.get("paths", ()):
        path = tuple(each["path"].split("."))
        if "$*" not in path:
            yield path, each


def _set_kind(schema: dict[str, Any], path: tuple[str, ...], facts: Model) -> None:
    """Give a property the kind that is stored, which the exported schema does not say."""
    at: Any = schema
    for name in path:
        while isinstance(at.get("items"), dict):
            at = at["items"]
        at = at.get("properties", {}).get(name)
        if at is None:
            return
    variants = facts.get("variants", ())
    at = at.get("items", at) if facts.get("instance") == "Array" or variants else at
    if variants:
        schemas = [plain_schema({"bsonType": "object", **each}) for each in variants]
        at |= union_schema([at, *schemas])
    kinds = [*schema_kinds(at)]
    instead = {
        # The data of a Buffer has subtype 0; that of a list of UUIDs or Buffers is not exported.
        "binData": {"UUID": "uuid", "Buffer": "binData"}.get(facts.get("instance", ""), "mixed"),
        # Whole numbers of JavaScript are stored as such.
        "number": "int" if path == ("_id",) or facts.get("ref") else "number",
    }
    if kinds:
        at["bsonType"] = [instead.get(each, each) for each in kinds]


def _unique(model: Model) -> Iterator[str]:
    for keys, options in model.get("indexes", ()):
        if (
            options.get("unique")
            and "partialFilterExpression" not in options
            and len(keys) == 1
            and set(keys.values()) <= {1, -1}
        ):
            yield from keys
