"""@search: stored paths with weights, and mistakes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import SearchIndex
from revstream.model.errors import ModelError

MISTAKES = [
    ("fields: []", "@search: no fields, expected at least one", "name one"),
    ('fields: ["nam"]', '@search: Product has no stored field "nam"', 'did you mean "name"?'),
    (
        'fields: ["stock"]',
        '@search: "stock" is Int, expected String',
        "name a field of text",
    ),
    ('fields: ["version"]', '@search: "version" is a number, expected String', None),
    ('fields: ["name", "name"]', '@search names "name" twice', "name it once"),
    (
        'fields: ["name"], weights: [1, 2]',
        "@search: 2 weights, expected one for each of 1 fields",
        "name a weight for each field, in their order",
    ),
    (
        'fields: ["name"], weights: [0]',
        "@search: weight 0, expected 1 to 99,999",
        "choose a weight in this range",
    ),
    (
        'fields: ["name"], language: "engish"',
        '@search: language "engish", expected one of MongoDB\'s',
        'did you mean "english"?',
    ),
    (
        'fields: ["any.one.note"]',
        '@search: "any.one.note" is in a union, expected a field in none',
        "name another field",
    ),
]


@pytest.mark.parametrize(("arguments", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], arguments: str, problem: str, mend: str | None
) -> None:
    """The error names the type, the problem and its fix."""
    error = mistake(
        f"""
        type Product @collection(name: "products") @search({arguments}) {{ # !
          id: ID! name: String stock: Int any: Any
        }}
        union Any @discriminator(field: "kind") = One | Two
        type One {{ note: String }}
        type Two {{ note: String other: String }}
        """
    )
    assert (error.subject, error.problem) == ("Product", problem)
    assert mend in (None, error.mend)


def test_a_layout_of_its_own_has_no_search(mistake: Callable[[str], ModelError]) -> None:
    """Its documents are not stored as the API shows them."""
    error = mistake(
        'type P @collection(name: "ps", history: EMBEDDED) @search(fields: ["name"]) { # !\n'
        "id: ID! name: String }"
    )
    assert error.problem == "@search: P has history EMBEDDED, expected ARCHIVE"


def test_an_embedded_type_has_no_search(mistake: Callable[[str], ModelError]) -> None:
    """The entity names the path."""
    error = mistake(
        'type P @collection(name: "ps") { id: ID! size: Size }\n'
        'type Size @search(fields: ["note"]) { note: String } # !'
    )
    assert error.problem == "@search: Size is embedded, expected an entity"


def test_a_text_index_is_over_stored_names() -> None:
    """Weights are 1 where they are not set, and words are as they are without a language."""
    model = read_model(
        """
        type Order @collection(name: "orders") @search(fields: ["title", "lines.notes"]) {
          id: ID! title: String @stored(as: "t") lines: [Line!] @stored(as: "items")
        }
        type Line { notes: [String!] }
        type Other @collection(name: "others")
          @search(fields: ["a", "b"], weights: [5, 1], language: "french") {
          id: ID! a: String b: String
        }
        """
    )
    assert model.entity("Order").search == SearchIndex(
        names=("title", "lines.notes"), fields=("t", "items.notes"), weights=(1, 1), language="none"
    )
    assert model.entity("Other").search == SearchIndex(
        names=("a", "b"), fields=("a", "b"), weights=(5, 1), language="french"
    )
