"""Text index of a collection. MongoDB allows one for each collection, whoever has made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from revstream.model.definition import Model, SearchIndex
from revstream.streams.core.errors import Unsuitable
from revstream.streams.mongo.database import Mongo

__all__ = [
    "check_text_index",
    "create_text_index",
    "text_index_problem",
    "wanted_text_indexes",
]

_NAME = "revstream_search"
# MongoDB takes the language of a document from a field, `language` by default, and refuses
# documents with an unknown one. No field of a program has this name.
_LANGUAGE_FIELD = "_revstream_language"
_KEY = {"_fts": "text", "_ftsx": 1}


def wanted_text_indexes(model: Model) -> dict[str, SearchIndex]:
    """Return the text indexes that a model declares, by collection."""
    return {each.collection: each.search for each in model.entities if each.search is not None}


async def create_text_index(mongo: Mongo, collection: str, search: SearchIndex) -> str | None:
    """Create the text index, if the collection has none; return why it is another one, or None.

    Raises:
        DatabaseError, Unsuitable: The server refused it.
    """
    indexes = await mongo.indexes(collection)
    if any(map(_is_text, indexes)):
        return text_index_problem(search, indexes)
    await mongo.create_index(
        collection,
        [(field, "text") for field in search.fields],
        name=_NAME,
        weights=dict(zip(search.fields, search.weights, strict=True)),
        default_language=search.language,
        language_override=_LANGUAGE_FIELD,
        collation={"locale": "simple"},
    )
    return None


async def check_text_index(mongo: Mongo, collection: str, search: SearchIndex) -> None:
    """Check that a search would look at the fields of the model, and at no others.

    Raises:
        Unsuitable: The collection has no text index, or another one.
    """
    if text_index_problem(search, await mongo.indexes(collection)) is not None:
        # Without the reason: another index names fields that callers may not know.
        raise Unsuitable(
            f"search: {collection}: no text index of the model, expected one; run `revstream "
            "doctor`, which says why"
        )


def text_index_problem(search: SearchIndex, indexes: Sequence[Mapping[str, Any]]) -> str | None:
    """Return why the indexes of a collection do not serve a search; None if they do.

    Args:
        indexes: As `listIndexes` has them.
    """
    found = next(filter(_is_text, indexes), None)
    if found is None:
        return "no text index, expected one; start `revstream serve`, which creates it"
    wanted = dict(zip(search.fields, search.weights, strict=True))
    plain = dict(found["key"]) == _KEY and "partialFilterExpression" not in found
    if plain and found["weights"] == wanted and found["default_language"] == search.language:
        return None
    there = _shown(found["weights"], found["default_language"])
    return (
        f'text index "{found["name"]}" with {there}{"" if plain else " and other options"}, '
        f"expected {_shown(wanted, search.language)}; a collection has one text index at most: "
        "drop that one and start `revstream serve`, or change @search"
    )


def _is_text(index: Mapping[str, Any]) -> bool:
    return "textIndexVersion" in index


def _shown(weights: Mapping[str, Any], language: str) -> str:
    fields = ", ".join(f"{name}: {int(weight)}" for name, weight in sorted(weights.items()))
    return f"weights {{{fields}}} and language {language}"
