"""@copy: fields that are kept equal to fields of a referenced document."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Copy, Scalar
from revstream.model.errors import ModelError

MISTAKES = [
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplierId.name") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "supplierId.name"): "supplierId" is not a @reference of Product',
        'did you mean "supplier"?',
        id="a copy by the id's field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "suplier.name") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "suplier.name"): "suplier" is not a @reference of Product',
        'did you mean "supplier"?',
        id="a copy by a misspelt reference",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "warehouse.name") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "warehouse.name"): "warehouse" is not a @reference of Product',
        "name a reference of Product: supplier",
        id="a copy by an unknown reference",
    ),
    pytest.param(
        """
        type Product @collection(name: "products") { id: ID!
          supplierName: String @copy(of: "supplier.name") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "supplier.name"): "supplier" is not a @reference of Product',
        "add a field to Product with @reference(by:)",
        id="a copy where there is no reference",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplier.nam") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "supplier.nam"): Supplier has no field "nam"',
        'did you mean "name"?',
        id="a copy of a misspelt field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplier.street") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "supplier.street"): Supplier has no field "street"',
        "it has id, name",
        id="a copy of an unknown field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplier") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "supplier"): expected the path of a reference and a field',
        'write it with one dot, for example "supplier.name"',
        id="a copy of no field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplierId") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "supplierId"): expected the path of a reference and a field',
        'write it with one dot, for example "supplier.name"',
        id="a copy of no field by the id's field",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplier.address.city") # !
        }
        """,
        "Product.supplierName",
        '@copy(of: "supplier.address.city"): expected the path of a reference and a field',
        'write it with one dot, for example "supplier.name"',
        id="a copy of a path",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: Int @copy(of: "supplier.name") # !
        }
        """,
        "Product.supplierName",
        'it is Int, and "name" of Supplier is String',
        'write "supplierName: String"',
        id="a copy of another type",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: [String] @copy(of: "supplier.name") # !
        }
        """,
        "Product.supplierName",
        'it is [String], and "name" of Supplier is String',
        'write "supplierName: String"',
        id="a list that copies one",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String! @copy(of: "supplier.name") # !
        }
        """,
        "Product.supplierName",
        "@copy: String!, expected a type that may be null, since the copy follows the write",
        'write "String"',
        id="a copy that is never null",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ObjectID! name: String }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: ID @copy(of: "supplier.id") # !
        }
        """,
        "Product.supplierName",
        ('@copy(of: "supplier.id"): the id of Supplier is already in the field of the reference'),
        "remove the field",
        id="a copy of the id",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") {
          id: ObjectID!
          products: [Product!]! @referencedBy(field: "supplierId")
          label: String
        }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: JSON @copy(of: "supplier.products") # !
        }
        """,
        "Product.supplierName",
        (
            '@copy(of: "supplier.products"): "products" of Supplier is a reference, '
            "expected a stored field"
        ),
        "name a stored field",
        id="a copy of a back reference",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") {
          id: ObjectID!
          bossId: ID
          boss: Supplier @reference(by: "bossId")
        }
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          bossId: ID @copy(of: "supplier.bossId") # !
        }
        """,
        "Product.bossId",
        '"bossId" of Supplier is stored as ObjectID, and this field as String',
        'write "bossId: ObjectID"',
        id="a copy of an id that is stored otherwise",
    ),
    pytest.param(
        """
        type One @collection(name: "ones") { id: ID! twoId: ID two: Two @reference(by: "twoId")
          name: String @copy(of: "two.name") # !
        }
        type Two @collection(name: "twos") {
          id: ID!
          oneId: ID
          one: One @reference(by: "oneId")
          name: String @copy(of: "one.name")
        }
        """,
        "One.name",
        "it is a copy of itself: One.name of Two.name of One.name",
        "remove @copy from one of them",
        id="two copies of one another",
    ),
    pytest.param(
        """
        type Node1 @collection(name: "nodes") {
          id: ID!
          parentId: ID
          parent: Node1 @reference(by: "parentId")
          child: String @copy(of: "parent.root")
          root: String @copy(of: "parent.root") # !
        }
        """,
        "Node1.root",
        "it is a copy of itself: Node1.root of Node1.root",
        "remove @copy from one of them",
        id="a copy of itself, and a copy of that",
    ),
    pytest.param(
        """
        type Supplier @collection(name: "suppliers") { id: ID! name: String }
        type Product @collection(name: "products") { id: ID! part: Part }
        type Part {
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          supplierName: String @copy(of: "supplier.name") # !
          box: Box
        }
        type Box { parts: [Part!] }
        """,
        "Part.supplierName",
        "documents of Part may contain one another, but copies are written to a bounded depth",
        "remove @copy, or move the field to a type that does not contain itself",
        id="a copy in a type that holds itself",
    ),
]


@pytest.mark.parametrize(("text", "subject", "problem", "mend"), MISTAKES)
def test_an_error_has_its_location_and_a_fix(
    mistake: Callable[[str], ModelError], text: str, subject: str, problem: str, mend: str
) -> None:
    """The error names the marked line, the type and field, the problem and its fix."""
    error = mistake(text)
    assert (error.subject, error.problem, error.mend) == (subject, problem, mend)


def test_a_copy_has_its_reference_and_its_source() -> None:
    """The path is split, and lists and embedded documents may be copied as well."""
    model = read_model(
        """
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          name: String @copy(of: "supplier.name")
          tags: [String!] @copy(of: "supplier.tags")
          address: Address @copy(of: "supplier.address")
        }
        type Supplier @collection(name: "suppliers") {
          id: ID!
          name: String!
          tags: [String!]!
          address: Address!
        }
        type Address { city: String }
        """
    )
    copies = [each.copy for each in model.entity("Product").fields if each.copy]
    assert copies == [
        Copy(reference="supplier", source="name"),
        Copy(reference="supplier", source="tags"),
        Copy(reference="supplier", source="address"),
    ]


def test_a_copy_of_a_copy_is_allowed() -> None:
    """A chain of copies is finite; only a cycle is an error."""
    model = read_model(
        """
        type A @collection(name: "as") { id: ID! bId: ID b: B @reference(by: "bId")
          name: String @copy(of: "b.name") }
        type B @collection(name: "bs") { id: ID! cId: ID c: C @reference(by: "cId")
          name: String @copy(of: "c.name") }
        type C @collection(name: "cs") { id: ID! name: String! }
        """
    )
    assert model.entity("A").fields[2].copy == Copy(reference="b", source="name")


def test_a_copied_id_is_compared_by_its_stored_type() -> None:
    """One field may be declared as ID with a reference, the other as the stored scalar."""
    model = read_model(
        """
        type Product @collection(name: "products") {
          id: ID!
          supplierId: ID
          supplier: Supplier @reference(by: "supplierId")
          countryId: Int @copy(of: "supplier.countryId")
        }
        type Supplier @collection(name: "suppliers") {
          id: ID!
          countryId: ID
          country: Country @reference(by: "countryId")
        }
        type Country @collection(name: "countries") { id: Int! name: String }
        """
    )
    field = model.entity("Product").field("countryId")
    assert field is not None
    assert (field.type, field.stored_scalar) == (Scalar.INT, Scalar.INT)
