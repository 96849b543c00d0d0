"""Locations where directives are allowed, and the values of their arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError

FIELD_MISTAKES = [
    pytest.param(
        "name: String @deprecated",
        "@deprecated: unknown directive",
        (
            "expected on a field: @stored, @reference, @referencedBy, @copy, @fence, "
            "@unique, @access"
        ),
        id="an unknown directive on a field",
    ),
    pytest.param(
        'name: String @index(fields: ["name"])',
        "@index on a field, expected on a type or an interface",
        "move it to a type or an interface, or remove it",
        id="a type's directive on a field",
    ),
    pytest.param(
        "name: String @unique @unique",
        "@unique: twice, expected once",
        "remove one of them",
        id="a directive twice",
    ),
    pytest.param(
        'count: Int @fence(by: "x")',
        '@fence: unknown argument "by"',
        "remove it; it has no arguments",
        id="an argument where there is none",
    ),
]

MISTAKES = [
    pytest.param(
        """
        type Product @colection(name: "products") { # !
          id: ID! label: String }
        """,
        "Product",
        "@colection: unknown directive",
        'did you mean "@collection"?',
        id="a misspelt directive",
    ),
    pytest.param(
        """
        type Product @table @collection(name: "products") { # !
          id: ID! label: String }
        """,
        "Product",
        "@table: unknown directive",
        "expected on a type: @collection, @layout, @variant, @index, @search, @access, @sink",
        id="an unknown directive on a type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        enum Size @unique { # !
          S }
        """,
        "Size",
        "@unique on an enum, expected on a field",
        "move it to a field, or remove it",
        id="a directive on an enum",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        enum Size {
          S @old # !
        }
        """,
        "Size.S",
        "@old: unknown directive",
        "expected on an enum value: @stored",
        id="an unknown directive on an enum value",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @fence { # !
          id: ID! name: String }
        """,
        "Product",
        "@fence on a type, expected on a field",
        "move it to a field, or remove it",
        id="a field's directive on a type",
    ),
    pytest.param(
        """
        type Product @collection(nam: "products") { # !
          id: ID! name: String }
        """,
        "Product",
        '@collection: unknown argument "nam"',
        'did you mean "name"?',
        id="a misspelt argument",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", prefix: 3) { # !
          id: ID! name: String }
        """,
        "Product",
        '@collection: unknown argument "prefix"',
        "expected name, plural, version, history, storage, partitions, keep",
        id="an unknown argument",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", nam: "things") { # !
          id: ID! name: String }
        """,
        "Product",
        '@collection: unknown argument "nam"',
        'did you mean "name"?',
        id="a misspelt argument beside the right one",
    ),
    pytest.param(
        """
        type Product @collection( name: "products"
          name: "things" # !
        ) {
          id: ID!
          label: String
        }
        """,
        "Product",
        '@collection: argument "name" twice, expected once',
        "remove one of them",
        id="an argument twice",
    ),
    pytest.param(
        """
        type Product @collection { # !
          id: ID! name: String }
        """,
        "Product",
        '@collection: argument "name" missing, expected one',
        'write @collection(name: "…")',
        id="a missing argument",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index { # !
          id: ID! name: String }
        """,
        "Product",
        '@index: argument "fields" missing, expected one',
        'write @index(fields: ["…"])',
        id="a missing list argument",
    ),
    pytest.param(
        """
        type Product @collection(name: 3) { # !
          id: ID! name: String }
        """,
        "Product",
        "@collection(name: 3): expected a text",
        'write a text in double quotes: "…"',
        id="a number for a text",
    ),
    pytest.param(
        """
        type Product @collection(name: null) { # !
          id: ID! name: String }
        """,
        "Product",
        "@collection(name: null): null, expected a text",
        "give a value",
        id="null for a text that must be",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: null) { # !
          id: ID! name: String }
        """,
        "Product",
        "@index(fields: null): null, expected a list, [String!]",
        "give a value",
        id="null for a list that must be",
    ),
    pytest.param(
        """
        type Product @collection(name: "products")
          @index(fields: ["id", "name"], unique: "yes") { # !
          id: ID!
          name: String
        }
        """,
        "Product",
        '@index(unique: "yes"): expected true or false',
        "write true or false",
        id="a text for true or false",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", history: "ARCHIVE") { # !
          id: ID! name: String }
        """,
        "Product",
        '@collection(history: "ARCHIVE"): the values of an enum have no quotes',
        "write ARCHIVE",
        id="a quoted enum value",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", storage: DELTAS) { # !
          id: ID! name: String }
        """,
        "Product",
        "@collection(storage: DELTAS): expected one of FULL, DELTA",
        'did you mean "DELTA"?',
        id="a misspelt enum value",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", history: GIT) { # !
          id: ID! name: String }
        """,
        "Product",
        (
            "@collection(history: GIT): expected one of ARCHIVE, DOCUMENT_PER_VERSION, "
            "CURRENT_FLAG, EMBEDDED, SEPARATE, DELTAS"
        ),
        ("choose from ARCHIVE, DOCUMENT_PER_VERSION, CURRENT_FLAG, EMBEDDED, SEPARATE, DELTAS"),
        id="an enum value that is far off",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @index(fields: ["name", 2]) { # !
          id: ID! name: String }
        """,
        "Product",
        '@index(fields: ["name", 2]): expected a text',
        'write a text in double quotes: "…"',
        id="a number in a list of texts",
    ),
]


@pytest.mark.parametrize(("line", "problem", "mend"), FIELD_MISTAKES)
def test_an_error_in_a_field_has_a_fix(
    mistake: Callable[[str], ModelError], line: str, problem: str, mend: str
) -> None:
    """Adding the field to a product gives exactly one error, which is in that field."""
    error = mistake(f'type Product @collection(name: "products") {{ id: ID!\n{line} # !\n}}')
    assert error.subject == f"Product.{line.partition(':')[0]}"
    assert (error.problem, error.mend) == (problem, mend)


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_a_single_value_is_coerced_to_a_list() -> None:
    """GraphQL allows a list of one item to be written without brackets."""
    model = read_model(
        """
        type Product @collection(name: "products") @index(fields: "name") {
          id: ID!
          name: String
        }
        """
    )
    (index,) = model.entity("Product").indexes
    assert index.fields == ("name",)


def test_a_repeatable_directive_may_be_used_twice() -> None:
    """`@index` may be repeated, and each use defines one index."""
    model = read_model(
        """
        type Product
          @collection(name: "products")
          @index(fields: ["name"])
          @index(fields: ["price"]) {
          id: ID!
          name: String
          price: Int
        }
        """
    )
    assert [each.fields for each in model.entity("Product").indexes] == [("name",), ("price",)]


def test_null_is_accepted_for_optional_arguments() -> None:
    """An argument that may be omitted may also be null."""
    model = read_model(
        """
        type Product @collection(name: "products", plural: null, version: null) {
          id: ID!
          name: String @access(read: null, write: ["admin"])
        }
        """
    )
    product = model.entity("Product")
    assert (product.plural, product.version) == ("products", None)


def test_a_long_value_is_shortened(mistake: Callable[[str], ModelError]) -> None:
    """The message is one line, whatever the length of the value."""
    many = " ".join(["products"] * 20)
    error = mistake(
        f'type Product @collection(name: ["{many}"]) {{ # !\n  id: ID!\n  name: Int\n}}'
    )
    assert error.problem == (
        '@collection(name: ["products products products products products products pro…): '
        "expected a text"
    )


@pytest.mark.parametrize(
    "text",
    [
        'type A @collection(name: "as", plural: 3) { id: ID! a: Int } # !',
        'type A @collection(name: "as", version: 3) { id: ID! a: Int } # !',
        'type A @collection(name: "as") @index(fields: 3) { id: ID! a: Int } # !',
        'type A @collection(name: "as") @sink(url: 3) { id: ID! a: Int } # !',
        'type A @collection(name: "as") @access(rows: 3) { id: ID! a: Int } # !',
        'type A @collection(name: "as") { id: ID! a: Int @stored(as: 3) } # !',
        'type A @collection(name: "as") { id: ID! aId: ID a: A @reference(by: 3) } # !',
        'type A @collection(name: "as") { id: ID! aId: ID a: [A] @referencedBy(field: 3) } # !',
        'type A @collection(name: "as") { id: ID! a: Int @copy(of: 3) } # !',
    ],
)
def test_an_invalid_argument_is_reported_once(
    mistake: Callable[[str], ModelError], text: str
) -> None:
    """Later checks do not report what is missing because of the invalid argument."""
    assert "): expected " in mistake(text).problem
