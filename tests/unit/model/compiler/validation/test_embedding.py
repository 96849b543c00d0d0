"""Embedded types: each is used by an entity, and no type contains itself without end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError

MISTAKES = [
    pytest.param(
        """
        type Product { # !
          name: String }
        """,
        "Product",
        "no type has a @collection, expected at least one",
        ('add @collection(name: "…") to the types whose documents have a collection of their own'),
        id="no entity",
    ),
    pytest.param(
        """
        enum Size { # !
          S }
        """,
        None,
        "no type has a @collection, expected at least one",
        ('declare one: type Product @collection(name: "products") { id: ID! name: String }'),
        id="no type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        type Size { # !
          width: Int }
        """,
        "Size",
        "embedded type: not used, expected a field of an entity with it",
        (
            'give it @collection(name: "…") if its documents have a collection of their '
            "own, otherwise use it in a field or remove it"
        ),
        id="an unused embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        type Size { # !
          size: Size }
        """,
        "Size",
        "embedded type: not used, expected a field of an entity with it",
        (
            'give it @collection(name: "…") if its documents have a collection of their '
            "own, otherwise use it in a field or remove it"
        ),
        id="an embedded type that only itself uses",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size {
          inner: Size! # !
        }
        """,
        "Size.inner",
        "each Size would have to contain another one: Size in Size",
        'allow null: "inner: Size"',
        id="an endless type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size {
          other: Other! # !
        }
        type Other { name: String! size: Size! }
        """,
        "Size.other",
        "each Size would have to contain another one: Size in Other in Size",
        'allow null: "other: Other"',
        id="endless types",
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_an_embedded_type_may_contain_itself_optionally() -> None:
    """A list may be empty and a field may be null, so the document is possible."""
    model = read_model(
        """
        type Menu @collection(name: "menus") { id: ID! entry: Entry! }
        type Entry { text: String! next: Entry entries: [Entry!]! }
        """
    )
    assert model.embedded("Entry").fields[1].type == "Entry"


def test_a_misspelt_use_counts_as_a_use(errors: Callable[[str], list[str]]) -> None:
    """One typing error is reported once."""
    assert errors(
        """
        type Product @collection(name: "products") { id: ID! size: Dimension }
        type Dimensions { width: Int }
        """
    ) == ['1: Product.size: "Dimension": unknown type; mend: did you mean "Dimensions"?']


def test_two_cycles_are_two_errors(errors: Callable[[str], list[str]]) -> None:
    """Each cycle of embedded types is reported once, at its first type."""
    found = errors(
        """
        type Product @collection(name: "products") { id: ID! a: A c: C }
        type A { b: B! }
        type B { a: A! }
        type C { a: A! c: C! }
        """
    )
    assert [each.partition(";")[0] for each in found] == [
        "2: A.b: each A would have to contain another one: A in B in A",
        "4: C.c: each C would have to contain another one: C in C",
    ]


def test_many_paths_to_one_type_take_no_time() -> None:
    """The search visits each type once, however many paths lead to it."""
    layers = "\n".join(f"type L{n} {{ a: L{n + 1}! b: L{n + 1}! }}" for n in range(60))
    model = read_model(
        'type Product @collection(name: "products") { id: ID! a: L0 }\n'
        f"{layers}\ntype L60 {{ x: Int }}"
    )
    assert len(model.embeddeds) == 61
