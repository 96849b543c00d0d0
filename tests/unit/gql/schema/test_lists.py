"""Tests of the lists of the API: each has a bound in number and in cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from graphql import (
    GraphQLField,
    GraphQLInterfaceType,
    GraphQLObjectType,
    get_nullable_type,
    is_list_type,
)

from revstream.gql.engine.definitions.field import strawberry_field
from revstream.gql.engine.execution.schema import Schema
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.model.definition import Model
from revstream.resolvers.subscriptions.saved_cursors import _MOST as MOST_SAVED_CURSORS
from revstream.streams.archive.coverage import _MOST_GAPS as MOST_GAPS

EXAMPLE = Path(__file__).parents[4] / "schema.graphql"

BOUNDS: dict[str, tuple[int, str]] = {
    "changedFields": (1, "of one write: read with its version or event, and bounded as bytes"),
    "diff": (10, "counted as values once it is made; of drafts and events, read with them"),
    "blame": (50, "the fields of one document: counted as values"),
    "streams": (1, "recorders and listeners of the model"),
    "savedCursors": (1, f"{MOST_SAVED_CURSORS} of a caller"),
    "groups": (1, "`first` of the aggregate, which counts as that many documents"),
    "gaps": (1, f"{MOST_GAPS} of a collection: counted as values, and read once"),
}
"""Lists that are neither pages nor part of a document, with their cost and their bound.

The cost is beside the ten items that each list counts as, if it reads more than one document.
"""


def lists(schema: Schema) -> Iterator[tuple[str, str, GraphQLField]]:
    """Yield the fields of list type: type, name, field."""
    for type_ in schema._schema.type_map.values():
        if isinstance(type_, GraphQLObjectType | GraphQLInterfaceType):
            if type_.name.startswith("__"):
                continue
            for name, field in type_.fields.items():
                if is_list_type(get_nullable_type(field.type)):
                    yield type_.name, name, field


def stored_lists(model: Model) -> set[tuple[str, str]]:
    """Return the lists of documents, by their types in the API."""
    owners = [*model.entities, *model.embeddeds]
    suffixes = ("", "State", "Snapshot")
    referenced = {
        (f"{owner.name}{suffix}", each.name)
        for owner in owners
        for each in owner.references
        if each.is_list
        for suffix in suffixes
    }
    return referenced | {
        (f"{owner.name}{suffix}", each.name)
        for owner in owners
        for each in owner.fields
        if each.is_list
        for suffix in suffixes
    }


def unbounded(model: Model) -> list[str]:
    stored = stored_lists(model)
    found = []
    for type_, name, field in lists(build_schema(model)):
        is_page = type_.endswith("Connection") and name in ("nodes", "edges")
        if is_page or (type_, name) in stored:
            continue
        cost, _ = BOUNDS.get(name, (-1, ""))
        if cost < 0 or getattr(strawberry_field(field), "cost", 0) not in (0, 1, cost):
            found.append(f"{type_}.{name}: {field.type}")
    return found


def test_every_list_is_a_page_or_part_of_a_document_or_has_a_known_bound(model: Model) -> None:
    """A new list must be a connection or have a bound in this test."""
    assert unbounded(model) == []
    assert unbounded(read_model(EXAMPLE.read_text())) == []
