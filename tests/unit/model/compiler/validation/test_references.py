"""@reference and @referencedBy: relations between documents."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.errors import ModelError

MISTAKES = [
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: ID
          supplier: Supplier @reference(by: "suplierId") # !
        }
        """,
        "Product.supplier",
        '@reference(by: "suplierId") names no field of Product',
        'did you mean "supplierId"?',
        id="a reference by a misspelt field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID!
          supplier: Supplier @reference(by: "supplierId") # !
          label: String
        }
        """,
        "Product.supplier",
        '@reference(by: "supplierId") names no field of Product',
        'add "supplierId: ID" to Product, or name one of its fields: id, label',
        id="a reference by a missing field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID!
          supplier: Supplier @reference(by: "made.supplierId") # !
          label: String
        }
        """,
        "Product.supplier",
        '@reference(by: "made.supplierId") names no field of Product',
        "name a field of Product itself; fields of embedded documents are not supported",
        id="a reference by a path",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! sizeId: ID
          size: Size @reference(by: "sizeId") # !
        }
        type Size { width: Int }
        """,
        "Product.size",
        "@reference: Size is an embedded type, expected an entity",
        "remove @reference, or name a type with @collection",
        id="a reference to an embedded type",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! sizeId: ID
          size: String @reference(by: "sizeId") # !
        }
        """,
        "Product.size",
        "@reference: String is a value, expected an entity",
        "remove @reference, or name a type with @collection",
        id="a reference to a scalar",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: ID
          supplier: Suplier @reference(by: "supplierId") # !
        }
        """,
        "Product.supplier",
        '"Suplier": unknown type',
        'did you mean "Supplier"?',
        id="a reference to an unknown type",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: Int
          supplier: Supplier @reference(by: "supplierId") # !
        }
        """,
        "Product.supplier",
        ('@reference(by: "supplierId"): "supplierId" is Int, and the id of Supplier is ObjectID'),
        'declare it "supplierId: ID"',
        id="a reference by a wrong scalar",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: String!
          supplier: Supplier @reference(by: "supplierId") # !
        }
        """,
        "Product.supplier",
        (
            '@reference(by: "supplierId"): "supplierId" is String, and the id of Supplier '
            "is ObjectID"
        ),
        'declare it "supplierId: ID!"',
        id="a reference by a required field of a wrong scalar",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierIds: [ID!]
          supplier: Supplier @reference(by: "supplierIds") # !
        }
        """,
        "Product.supplier",
        (
            '@reference(by: "supplierIds"): "supplierIds" is [ID!], and "supplier" is Supplier, '
            "expected two lists, or none"
        ),
        'write "supplier: [Supplier!]!", or name another field',
        id="a reference to one by a list",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: ID
          supplier: [Supplier!] @reference(by: "supplierId") # !
        }
        """,
        "Product.supplier",
        (
            '@reference(by: "supplierId"): "supplierId" is ID, and "supplier" is [Supplier!], '
            "expected two lists, or none"
        ),
        'write "supplier: Supplier", or name another field',
        id="a list by one id",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          maker: Supplier @reference(by: "supplierId")
          supplier: Supplier @reference(by: "maker") # !
        }
        """,
        "Product.supplier",
        '@reference(by: "maker"): "maker" is a reference itself, expected a stored field',
        "name the field that holds the id of a Supplier",
        id="a reference by a reference",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID!
          supplier: Supplier @reference(by: "supplier") # !
          label: String
        }
        """,
        "Product.supplier",
        '@reference(by: "supplier"): "supplier" is a reference itself, expected a stored field',
        "name the field that holds the id of a Supplier",
        id="a reference by its own name",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: ID
          supplier: Supplier! @reference(by: "supplierId") # !
        }
        """,
        "Product.supplier",
        'it is never null, but "supplierId" may be',
        'write "Supplier", or make "supplierId" ID!',
        id="a required reference by a field that may be null",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID!
          supplier: Supplier @reference(by: "id") # !
          label: String
        }
        """,
        "Product.supplier",
        '@reference(by: "id"): "id" is ID, and the id of Supplier is ObjectID',
        "declare both ids with the same type",
        id="a reference by an id of another kind",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Shop @collection(name: "shops") { id: Int! name: String }
        type Product @collection(name: "products") {
          id: ID!
          sellerId: ID
          supplier: Supplier @reference(by: "sellerId")
          shop: Shop @reference(by: "sellerId") # !
        }
        """,
        "Product.shop",
        (
            '"sellerId" cannot hold the id of a Shop (Int): "supplier" makes it the id of '
            "a Supplier (ObjectID)"
        ),
        "use a field for each",
        id="one field for two kinds of id",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") { id: ID! supplierId: ID
          supplier: Supplier @reference(by: "supplierId") @stored(as: "supplier_id") # !
        }
        """,
        "Product.supplier",
        "@stored: a @reference is not stored, expected a stored field",
        'put it on "supplierId"',
        id="a stored reference",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID!
          products: [Product!]! @referencedBy(field: "supplierId") @unique # !
          label: String
        }
        type Product @collection(name: "products") { id: ID! supplierId: ID }
        """,
        "Supplier.products",
        "@unique: a @referencedBy is not stored, expected a stored field",
        "remove it",
        id="a unique back reference",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! productId: ID
          products: Product @reference(by: "productId") @referencedBy(field: "supplierId") # !
        }
        type Product @collection(name: "products") { id: ID! supplierId: ID }
        """,
        "Supplier.products",
        "a field cannot be both @reference and @referencedBy",
        "remove one of them",
        id="a reference and back reference at once",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID!
          products: [Product!]! @referencedBy(field: "suplierId") # !
          label: String
        }
        type Product @collection(name: "products") { id: ID! supplierId: ID }
        """,
        "Supplier.products",
        '@referencedBy(field: "suplierId") names no field of Product',
        'did you mean "supplierId"?',
        id="a back reference by a misspelt field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID!
          products: [Product!]! @referencedBy(field: "made.supplierId") # !
          label: String
        }
        type Product @collection(name: "products") { id: ID! supplierId: ID }
        """,
        "Supplier.products",
        '@referencedBy(field: "made.supplierId") names no field of Product',
        "name a field of Product itself; fields of embedded documents are not supported",
        id="a back reference by a path",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID!
          products: [Product!]! @referencedBy(field: "supplierId") # !
          label: String
        }
        type Product @collection(name: "products") { id: ID! supplierId: Float }
        """,
        "Supplier.products",
        (
            '@referencedBy(field: "supplierId"): "supplierId" is Float, and the id of '
            "Supplier is ObjectID"
        ),
        'declare it "supplierId: ID"',
        id="a back reference by a wrong scalar",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID!
          products: Product @referencedBy(field: "supplierId") # !
          label: String
        }
        type Product @collection(name: "products") { id: ID! supplierId: ID }
        """,
        "Supplier.products",
        "@referencedBy: Product, expected a list",
        'write "[Product!]!"',
        id="a back reference to one",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID!
          products: [String!]! @referencedBy(field: "supplierId") # !
          label: String
        }
        """,
        "Supplier.products",
        "@referencedBy: String is a value, expected an entity",
        "remove @referencedBy, or name a type with @collection",
        id="a back reference to a scalar",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID! sizeId: ID size: Size }
        type Size { width: Int
          products: [Product!]! @referencedBy(field: "sizeId") # !
        }
        """,
        "Size.products",
        "@referencedBy: Size is embedded, expected an entity, which has an id",
        "move the field to the entity",
        id="a back reference in an embedded type",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") {
          id: ObjectID!
          products: [Product!]! @referencedBy(field: "shopId")
          label: String
        }
        type Shop @collection(name: "shops") { id: Int! name: String }
        type Product @collection(name: "products") { id: ID! shopId: ID
          shop: Shop @reference(by: "shopId") # !
        }
        """,
        "Product.shop",
        (
            '"shopId" cannot hold the id of a Shop (Int): "products" makes it the id of a '
            "Supplier (ObjectID)"
        ),
        "use a field for each",
        id="a back reference by a field that refers elsewhere",
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)
