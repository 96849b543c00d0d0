"""Export of an Atlas App Services app: schemas, relationships and rules of its collections.

`data_sources/NAME/DATABASE/COLLECTION/` has `schema.json`, `relationships.json` and `rules.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from revstream.model.importing.collection_schema import (
    CollectionSchema,
    ImportedReference,
    SourceError,
    draft_of,
    split_served,
)
from revstream.model.importing.role_access import add_access
from revstream.model.inference.accepted_names import accepted_text
from revstream.model.inference.draft_builder import ModelDraft

__all__ = ["app_services_text"]

_REF_PARTS = 5


def app_services_text(folder: Path, database: str | None, only: list[str]) -> str:
    """Return the text of a model for the collections of one database of an export.

    Args:
        folder: The app's folder, or its `data_sources`.
        database: The database; may be None if the export has one.
        only: Names of collections; empty for all.

    Raises:
        SourceError: The export cannot be read, or has no such database or schema.
    """
    sources = folder / "data_sources"
    sources = sources if sources.is_dir() else folder
    chosen = _database(sources, database)
    folders = [
        each
        for each in sorted(chosen.iterdir())
        if each.is_dir() and (not only or each.name in only)
    ]
    left_out = []
    collections: list[CollectionSchema] = []
    rules: dict[str, Mapping[str, Any]] = {}
    default = _read(chosen.parent / "default_rule.json")
    for each in folders:
        schema = _read(each / "schema.json")
        if not schema.get("properties"):
            left_out.append(f"{each.name}: it has no schema")
            continue
        collections.append(_collection(each, schema))
        own = _read(each / "rules.json")
        rules[each.name] = own if own.get("roles") else default
    if not collections:
        raise SourceError(
            f"{chosen}: no schema.json with properties, expected one in a collection's folder; "
            "or leave out --from, and revstream init reads the documents"
        )
    header = [f"Made from an Atlas App Services export, database {chosen.name!r}."]
    header += [f"Left out: {each}." for each in left_out]
    served, lines = split_served(collections)
    header += lines
    draft = draft_of(served)
    # Names are final after this, and row rules name fields.
    accepted_text(draft, header)
    _add_rules(draft, rules)
    return accepted_text(draft, header)


def _add_rules(draft: ModelDraft, rules: Mapping[str, Mapping[str, Any]]) -> None:
    given: dict[str, str] = {}
    for type_ in draft.types:
        if type_.collection is not None:
            add_access(draft, type_, rules[type_.collection], given)


def _database(sources: Path, wanted: str | None) -> Path:
    """Return the folder of the database."""
    found = [
        database
        for source in sorted(sources.iterdir())
        if source.is_dir()
        for database in sorted(source.iterdir())
        if database.is_dir() and any(database.glob("*/schema.json"))
    ]
    if not found:
        raise SourceError(
            f"{sources}: no schemas, expected data_sources/NAME/DATABASE/COLLECTION/schema.json; "
            "name the folder that App Services exported"
        )
    names = [each.name for each in found]
    chosen = [each for each in found if wanted is None or each.name == wanted]
    if not chosen:
        raise SourceError(f"database {wanted!r}: not in the export, which has {', '.join(names)}")
    if len(chosen) > 1:
        places = ", ".join(f"{each.parent.name}/{each.name}" for each in chosen)
        raise SourceError(
            f"{sources}: several databases ({places}), expected one; "
            + ("name the database with --database" if wanted is None else "remove the others")
        )
    return chosen[0]


def _collection(folder: Path, schema: Mapping[str, Any]) -> CollectionSchema:
    references = []
    notes = []
    for path, each in _read(folder / "relationships.json").items():
        if not isinstance(each, Mapping):
            notes.append(f"not translated: relationship {json.dumps(path)}: {json.dumps(each)}")
            continue
        ref = str(each.get("ref", "")).split("/")
        same = len(ref) == _REF_PARTS and ref[3] == folder.parent.name
        if not same or each.get("foreign_key") != "_id":
            notes.append(
                f"not translated: relationship {json.dumps(path)}: {json.dumps(each)}; "
                "references lead to _id of a collection of the same database"
            )
            continue
        source = each.get("source_key")
        stored = source if isinstance(source, str) and source else path
        references.append(
            ImportedReference(
                path=tuple(name for name in stored.split(".") if name != "[]"),
                target=ref[4],
                lists=each.get("is_list") is True,
            )
        )
    title = schema.get("title")
    return CollectionSchema(
        name=folder.name,
        schema=schema,
        title=title if isinstance(title, str) and title else None,
        references=tuple(references),
        notes=tuple(notes),
    )


def _read(path: Path) -> Mapping[str, Any]:
    """Return the content of a file; empty if there is none."""
    if not path.exists():
        return {}
    return _read_json(path)


def _read_json(path: Path) -> Mapping[str, Any]:
    """Return the object in a file.

    Raises:
        SourceError: It holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: {error}, expected JSON") from error
    if not isinstance(found, dict):
        raise SourceError(f"{path}: {type(found).__name__}, expected an object in JSON")
    return found
