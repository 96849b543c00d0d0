"""@access: roles, and the locations of row rules."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Access
from revstream.model.errors import ModelError

MISTAKES = [
    pytest.param(
        """
        type Product @collection(name: "products") {
          id: ID! @access(read: ["staff"]) # !
          name: String }
        """,
        "Product.id",
        "the id identifies the document and cannot be restricted alone",
        "put @access on Product",
        id="on the id",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @access { # !
          id: ID! name: String }
        """,
        "Product",
        "@access: no arguments, expected at least one",
        'name roles, for example @access(read: ["staff"], write: ["admin"]), or remove it',
        id="@access that says nothing",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @access(read: []) { # !
          id: ID! name: String }
        """,
        "Product",
        "@access(read: []): no roles, expected at least one",
        "name roles, or remove read to allow everyone",
        id="no roles",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID!
          name: String @access(write: []) # !
        }
        """,
        "Product.name",
        "@access(write: []): no roles, expected at least one",
        "name roles, or remove write to allow everyone",
        id="no roles on a field",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @access(read: [" "]) { # !
          id: ID! name: String }
        """,
        "Product",
        "@access(read:) has a role without a name",
        "name it or remove it",
        id="an empty role",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") @access(write: ["admin", "admin"]) { # !
          id: ID! name: String }
        """,
        "Product",
        '@access(write:) names "admin" twice',
        "name it once",
        id="a role twice",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID!
          name: String @access(rows: "{ name: { eq: $sub } }") # !
        }
        """,
        "Product.name",
        "rows: on a field, expected on a type",
        "move it to Product",
        id="a row rule on a field",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size @access(rows: "{ width: { eq: 1 } }") { # !
          width: Int }
        """,
        "Size",
        "rows: Size is embedded, expected an entity",
        "put it on the entity",
        id="a row rule on an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID!
          name: String @access(propose: ["contributor"]) # !
        }
        """,
        "Product.name",
        "propose: name is a field, expected an entity",
        "put it on the entity",
        id="a role for drafts on a field",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! size: Size }
        type Size @access(publishOwn: false) { # !
          width: Int }
        """,
        "Size",
        "publishOwn: Size is embedded, expected an entity",
        "put it on the entity",
        id="a rule for drafts on an embedded type",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: ID
          supplier: Supplier @reference(by: "supplierId") @access(write: ["admin"]) # !
          name: String
        }
        """,
        "Product.supplier",
        "write: the field is a reference, expected a stored field",
        'put it on "supplierId"',
        id="write on a reference",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID!
          products: [Product!]! @referencedBy(field: "supplierId") @access(write: ["admin"]) # !
          label: String
        }
        type Product @collection(name: "products") { id: ID! supplierId: ID }
        """,
        "Supplier.products",
        "write: the field is a reference, expected a stored field",
        "remove write",
        id="write on a back reference",
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_access_rules_are_kept_at_each_location() -> None:
    """Entities, embedded types, fields and references have access rules; the default is open."""
    model = read_model(
        """
        type Product
          @collection(name: "products")
          @access(read: ["staff", "guest"], write: ["staff"], rows: "{ shopId: { eq: $shop } }") {
          id: ID!
          cost: Decimal @access(read: ["staff"])
          size: Size
          shopId: ID
          shop: Shop @reference(by: "shopId") @access(read: ["staff"])
        }
        type Size @access(write: ["staff"]) { width: Int }
        type Shop @collection(name: "shops") {
          id: ID!
          name: String
          products: [Product!]! @referencedBy(field: "shopId") @access(read: ["staff"])
        }
        """
    )
    product = model.entity("Product")
    staff = Access(read=("staff",))
    assert product.access == Access(
        read=("staff", "guest"), write=("staff",), rows="{ shopId: { eq: $shop } }"
    )
    assert [each.access for each in product.fields] == [None, staff, None, None]
    assert product.references[0].access == staff
    assert model.embedded("Size").access == Access(write=("staff",))
    assert model.entity("Shop").back_references[0].access == staff
