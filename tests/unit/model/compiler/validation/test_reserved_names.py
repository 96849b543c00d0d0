"""Names that are reserved by the API."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.compiler.validation.reserved_names import (
    ENTITY_FIELDS,
    FILTER_WORDS,
    FIXED_TYPES,
)
from revstream.model.errors import ModelError

FIELD_MISTAKES = [
    pytest.param(
        "nodeId: String",
        '"nodeId" is a field of the API: the id across all types',
        'rename it: productNodeId: String @stored(as: "nodeId")',
        id="nodeId on an entity",
    ),
    pytest.param(
        "history: String",
        '"history" is a field of the API: the document\'s versions',
        'rename it: productHistory: String @stored(as: "history")',
        id="history on an entity",
    ),
    pytest.param(
        "and: String",
        '"and" is reserved for filters',
        'rename it: productAnd: String @stored(as: "and")',
        id="and on an entity",
    ),
    pytest.param(
        "_id: String",
        'caches of clients would confuse "_id" with "id"',
        'remove it: "id" is stored there',
        id="_id on an entity",
    ),
    pytest.param(
        "__typename: String",
        "names that begin with __ are reserved by GraphQL",
        'rename it: productTypename: String @stored(as: "__typename")',
        id="__typename on an entity",
    ),
    pytest.param(
        "version: Int!",
        '"version" is a field of the API: the document\'s version',
        "remove it; @collection(version:) names where it is stored",
        id="version on an entity",
    ),
    pytest.param(
        'history: [String!] @stored(as: "past_owners")',
        '"history" is a field of the API: the document\'s versions',
        'rename it: productHistory: [String!] @stored(as: "past_owners")',
        id="a stored history",
    ),
]

MISTAKES = [
    pytest.param(
        """
        type Product @collection(name: "products", version: null) { id: ID!
          version: Int! # !
        }
        """,
        "Product.version",
        '"version" is a field of the API: the document\'s version',
        'rename it: productVersion: Int! @stored(as: "version")',
        id="version on an entity that counts elsewhere",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size { width: Int
          id: String # !
        }
        """,
        "Size.id",
        'Size is embedded, and caches of clients would confuse its "id" with that of a document',
        (
            'rename it: sizeId: String @stored(as: "id"), or @stored(as: "_id") if it '
            "is stored so, as by Mongoose; or make Size an entity with @collection"
        ),
        id="id in an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size { width: Int
          nodeId: String # !
        }
        """,
        "Size.nodeId",
        (
            'Size is embedded, and caches of clients would confuse its "nodeId" with that of a '
            "document"
        ),
        (
            'rename it: sizeNodeId: String @stored(as: "nodeId"); or make Size an '
            "entity with @collection"
        ),
        id="nodeId in an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size { width: Int
          exists: String # !
        }
        """,
        "Size.exists",
        '"exists" is reserved for filters',
        'rename it: sizeExists: String @stored(as: "exists")',
        id="exists in an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size { width: Int
          or: String # !
        }
        """,
        "Size.or",
        '"or" is reserved for filters',
        'rename it: sizeOr: String @stored(as: "or")',
        id="or in an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: JSON }
        type JSON { # !
          width: Int }
        """,
        "JSON",
        '"JSON" is a scalar of the model language',
        "rename the type",
        id="a scalar's name",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Comment }
        type Comment { # !
          width: Int }
        """,
        "Comment",
        '"Comment" is reserved: every API has a type of this name',
        'rename the type, for example "ShopComment"',
        id="a type of every API",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Operation }
        enum Operation { # !
          A }
        """,
        "Operation",
        '"Operation" is reserved: every API has a type of this name',
        'rename the type, for example "ShopOperation"',
        id="an enum of every API",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: IntFilter }
        type IntFilter { # !
          width: Int }
        """,
        "IntFilter",
        '"IntFilter" is reserved: every API has a type of this name',
        'rename the type, for example "ShopIntFilter"',
        id="a filter of every API",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: __Size }
        type __Size { # !
          width: Int }
        """,
        "__Size",
        "names that begin with __ are reserved by GraphQL",
        "rename it",
        id="a type of GraphQL's",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: ProductVersion }
        type ProductVersion { # !
          width: Int }
        """,
        "ProductVersion",
        '"ProductVersion" is the name of a type that revstream creates for Product',
        "rename one of the two",
        id="a type made for an entity",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: ProductOrder }
        enum ProductOrder { # !
          A }
        """,
        "ProductOrder",
        '"ProductOrder" is the name of a type that revstream creates for Product',
        "rename one of the two",
        id="an enum that is made for an entity",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size past: SizeSnapshot }
        type Size { width: Int }
        type SizeSnapshot { # !
          width: Int }
        """,
        "SizeSnapshot",
        '"SizeSnapshot" is the name of a type that revstream creates for Size',
        "rename one of the two",
        id="a type made for an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size filter: SizeFilter }
        enum Size { S }
        type SizeFilter { # !
          width: Int }
        """,
        "SizeFilter",
        '"SizeFilter" is the name of a type that revstream creates for Size',
        "rename one of the two",
        id="a type made for an enum",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID!
          count: Long! @fence
          size: ProductEvent
        }
        type ProductEvent { # !
          width: Int }
        """,
        "ProductEvent",
        '"ProductEvent" is the name of a type that revstream creates for Product',
        "rename one of the two",
        id="a type made for a fence",
    ),
    pytest.param(
        """
        type Field @collection(name: "fields") { # !
          id: ID! name: String }
        """,
        "Field",
        'revstream would create a type "FieldChange" for it, which every API already has',
        "rename the type",
        id="a made type that every API has",
    ),
    pytest.param(
        """
        type Note @collection(name: "notes") { id: ID! count: Long! @fence }
        type NotesApplied @collection(name: "more") { # !
          id: ID! name: String }
        """,
        "NotesApplied",
        '"NotesApplied" is the name of a type that revstream creates for Note',
        "rename one of the two",
        id="one made type for two",
    ),
    pytest.param(
        """
        type Stream @collection(name: "streams") { # !
          id: ID! name: String }
        """,
        "Stream",
        'its root field "streams" would be one that every API has',
        'name the list with @collection(plural: "…")',
        id="a plural of every API",
    ),
    pytest.param(
        """
        type One @collection(name: "things") { id: ID! name: String }
        type Two @collection(name: "Things") { # !
          id: ID! name: String }
        """,
        "Two",
        'its root field "things" would be that of One too',
        'name the list with @collection(plural: "…")',
        id="two plurals",
    ),
    pytest.param(
        """
        type URL @collection(name: "a", plural: "aList") { id: ID! name: String }
        type Url @collection(name: "b", plural: "bList") { # !
          id: ID! name: String }
        """,
        "Url",
        'its root field "url" would be that of URL too',
        "rename one of the two",
        id="two singulars",
    ),
    pytest.param(
        """
        type Product @collection(name: "products", plural: "productVersions") { # !
          id: ID! name: String }
        """,
        "Product",
        'its root field "productVersions" would be defined twice',
        'name the list with @collection(plural: "…")',
        id="a plural that is the audit trail",
    ),
    pytest.param(
        """
        type A @collection(name: "things") { id: ID! name: String }
        type B @collection(name: "thingsAsOf") { # !
          id: ID! name: String }
        """,
        "B",
        'its root field "thingsAsOf" would be that of A too',
        'name the list with @collection(plural: "…")',
        id="a plural that is another's as-of",
    ),
    pytest.param(
        """
        type Note @collection(name: "a", plural: "pages") { id: ID! count: Long! @fence }
        type Pages @collection(name: "b", plural: "books") { # !
          id: ID! name: String }
        """,
        "Pages",
        'its root field "pages" would be that of Note too',
        "rename one of the two",
        id="a mutation twice",
    ),
    pytest.param(
        """
        type Author @collection(name: "authors") { # !
          id: ID! name: String }
        """,
        "Author",
        'a change would have the field "author" for it, which every change already has',
        'rename the type, for example "ShopAuthor"',
        id="a singular that every change has",
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


def test_embedded_types_may_use_names_reserved_for_entities() -> None:
    """Fields that the API adds to entities are free in embedded types."""
    names = [each for each in ENTITY_FIELDS if each != "nodeId"]
    fields = " ".join(f"{each}: Int" for each in names)
    model = read_model(
        f'type Product @collection(name: "products") {{ id: ID! size: Size exists: Int }}'
        f"type Size {{ {fields} }}"
    )
    assert [each.name for each in model.embedded("Size").fields] == names


def test_a_reserved_name_can_be_stored() -> None:
    """The fix that the error gives is valid."""
    model = read_model(
        """
        type Product @collection(name: "products") {
          id: ID!
          productHistory: [String!] @stored(as: "history")
        }
        """
    )
    assert model.entity("Product").fields[1].stored == "history"


@pytest.mark.parametrize("name", sorted(FIXED_TYPES))
def test_no_type_may_have_a_name_that_every_api_has(
    name: str, errors: Callable[[str], list[str]]
) -> None:
    """Each reserved name is reported at the type that has it."""
    found = errors(
        f'type Product @collection(name: "products") {{ id: ID! name: String }}\n'
        f'type {name} @collection(name: "things") {{ id: ID! name: String }}'
    )
    assert len(found) == 1
    assert found[0].startswith(f"2: {name}: ")


@pytest.mark.parametrize("name", [*ENTITY_FIELDS, *FILTER_WORDS])
def test_no_field_of_an_entity_may_have_a_name_that_the_api_adds(
    name: str, errors: Callable[[str], list[str]]
) -> None:
    """Each reserved name is reported at its field, and @stored keeps the data."""
    (found,) = errors(f'type Product @collection(name: "products") {{ id: ID! {name}: [Int] }}')
    assert found.startswith(f'1: Product.{name}: "{name}" is ')
