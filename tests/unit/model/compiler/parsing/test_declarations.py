"""Top-level definitions that a model file may contain."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.errors import ModelError

MISTAKES = [
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        input ProductData { # !
          name: String
        }
        """,
        "ProductData",
        "an input type: not supported in a model",
        "remove it; revstream creates the inputs of the API",
        id="an input",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        scalar DateTime # !
        """,
        "DateTime",
        "a scalar: not supported in a model",
        (
            "remove it; the scalars are ID, String, Int, Long, Float, Boolean, Decimal, "
            "DateTime, Date, Timestamp, ObjectID, UUID, Binary, Point, JSON"
        ),
        id="a scalar",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        directive @stored(as: String!) on FIELD_DEFINITION # !
        """,
        "stored",
        "a directive definition: not supported in a model",
        "remove it; revstream knows its directives",
        id="a directive definition",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        schema { # !
          query: Product
        }
        """,
        None,
        "a schema definition: not supported in a model",
        "remove it; revstream creates Query, Mutation and Subscription",
        id="a schema definition",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        query Products { # !
          products { nodes { id } }
        }
        """,
        "Products",
        "an operation: not supported in a model",
        "remove it; a model has types only, operations are sent to the gateway",
        id="a query",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        { # !
          products { nodes { id } }
        }
        """,
        None,
        "an operation: not supported in a model",
        "remove it; a model has types only, operations are sent to the gateway",
        id="a nameless query",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        fragment Parts on Product { # !
          id
        }
        """,
        "Parts",
        "a fragment: not supported in a model",
        "remove it; a model has types only, fragments are sent to the gateway",
        id="a fragment",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        extend type Product { # !
          name: String
        }
        """,
        "Product",
        "an extension: not supported in a model",
        "write it in the declaration of the type",
        id="an extended type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        extend schema { # !
          query: Product
        }
        """,
        None,
        "an extension: not supported in a model",
        "write it in the declaration of the type",
        id="an extended schema",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        type Query { # !
          products(first: Int): [Product] }
        """,
        "Query",
        '"Query": created by revstream from the entities',
        "remove it; a model has stored types only",
        id="a root type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        type Product @collection(name: "things") { # !
          id: ID! name: String }
        """,
        "Product",
        '"Product" is already declared on line 1',
        "rename or remove one of them",
        id="a type twice",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String }
        enum Product { # !
          A }
        """,
        "Product",
        '"Product" is already declared on line 1',
        "rename or remove one of them",
        id="a type and an enum of one name",
    ),
    pytest.param(
        """
        type Product implements Node @collection(name: "products") { # !
          id: ID! name: String }
        """,
        "Product",
        'it implements "Node", expected an interface of the model',
        "remove it; the API's interface ProductState is created by revstream",
        id="an implemented interface",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size # !
        """,
        "Size",
        "the type has no fields",
        "give it fields, or remove it",
        id="a type without fields",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! name: String
          name: String # !
        }
        """,
        "Product.name",
        'the type has a field "name" already',
        "rename or remove one of them",
        id="a field twice",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID!
          name(length: Int): String # !
        }
        """,
        "Product.name",
        "the fields of a model take no arguments",
        "remove them; the API defines the arguments of fields",
        id="a field with arguments",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID!
          grid: [[Int!]!]! # !
        }
        """,
        "Product.grid",
        "lists of lists are not supported",
        "declare it as JSON, or as a list of an embedded type with a list in it",
        id="a list of lists",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        enum Size # !
        """,
        "Size",
        "the enum has no values",
        "give it at least one, or remove it",
        id="an enum without values",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        enum Size { S
          S # !
        }
        """,
        "Size.S",
        'the value "S": twice, expected once',
        "remove one of them",
        id="an enum value twice",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        enum Size {
          S @stored(as: "M") # !
          M
        }
        """,
        "Size.S",
        'it is stored as "M", like another value',
        "store each value as a different text",
        id="two enum values stored alike",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        enum Size {
          __S # !
        }
        """,
        "Size.__S",
        "names that begin with __ are reserved by GraphQL",
        "rename it, for example S",
        id="an enum value of GraphQL's",
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_an_enum_value_may_be_stored_as_another_text() -> None:
    """`@stored` maps an enum value to another stored text, as it does for fields."""
    model = read_model(
        """
        type Task @collection(name: "tasks") { id: ID! status: Status }
        enum Status { IN_PROGRESS @stored(as: "in-progress") DONE }
        """
    )
    [status] = model.enums
    assert status.values == ("IN_PROGRESS", "DONE")
    assert status.by_stored == {"in-progress": "IN_PROGRESS", "DONE": "DONE"}


def test_an_unused_enum_is_allowed() -> None:
    """Enums are kept in source order, with their descriptions."""
    model = read_model(
        """
        type Product @collection(name: "products") {
          id: ID!
          name: String
        }
        "How big."
        enum Size {
          "Small."
          S
          L
        }
        """
    )
    (size,) = model.enums
    assert (size.name, size.values, size.description) == ("Size", ("S", "L"), "How big.")
    assert size.value_descriptions == {"S": "Small."}


def test_errors_in_a_type_with_a_duplicate_name_are_reported(
    errors: Callable[[str], list[str]],
) -> None:
    """A duplicate name does not hide the other errors."""
    assert errors(
        """
        type Product @collection(name: "products") {
          id: ID!
          name: String
        }
        type Product {
          name: String @stord(as: "title")
        }
        """
    ) == [
        '5: Product: "Product" is already declared on line 1; mend: rename or remove one of them',
        '6: Product.name: @stord: unknown directive; mend: did you mean "@stored"?',
    ]
