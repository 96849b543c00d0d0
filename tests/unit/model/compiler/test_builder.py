"""The model built from a text: fields with their types, and relations."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from revstream.model.compiler.loader import read_model
from revstream.model.compiler.validation.fields import ID_SCALARS
from revstream.model.definition import Model, Scalar
from tests.support.drawn_models import models, print_model


@pytest.mark.parametrize("declared", ["ID", "ObjectID"])
def test_a_field_used_by_a_reference_is_stored_as_the_id_of_its_target(declared: str) -> None:
    """The API type is ID, whether the field is declared as ID or as the stored scalar."""
    model = read_model(
        f"""
        type Product @collection(name: "products") {{
          id: ID!
          supplierId: {declared}
          supplier: Supplier @reference(by: "supplierId")
          otherId: {declared}
        }}
        type Supplier @collection(name: "suppliers") {{ id: ObjectID! name: String }}
        """
    )
    named, other = model.entity("Product").fields[1:]
    assert (named.type, named.stored_scalar) == (Scalar.ID, Scalar.OBJECTID)
    as_declared = Scalar.STRING if declared == "ID" else Scalar.OBJECTID
    assert (other.type, other.stored_scalar) == (Scalar(declared), as_declared)


def test_a_field_used_only_by_a_back_reference_is_stored_as_an_id() -> None:
    """Both directions of a relation determine the stored type of the field."""
    model = read_model(
        """
        type Product @collection(name: "products") { id: ID! supplierId: ID! }
        type Supplier @collection(name: "suppliers") {
          id: Long!
          name: String
          products: [Product!]! @referencedBy(field: "supplierId")
        }
        """
    )
    field = model.entity("Product").field("supplierId")
    assert field is not None
    assert (field.type, field.stored_scalar) == (Scalar.ID, Scalar.LONG)


def test_an_embedded_document_may_refer() -> None:
    """The field that holds the id is beside the reference, in the embedded document."""
    model = read_model(
        """
        type Order @collection(name: "orders") { id: ID! lines: [Line!]! }
        type Line { productId: ID! product: Product! @reference(by: "productId") }
        type Product @collection(name: "products") { id: UUID! name: String }
        """
    )
    line = model.embedded("Line")
    (reference,) = line.references
    assert (reference.target, reference.by, reference.required) == ("Product", "productId", True)
    assert line.fields[0].stored_scalar is Scalar.UUID


def test_two_documents_may_share_an_id() -> None:
    """A reference may use the document's own id, if both ids are stored as the same type."""
    model = read_model(
        """
        type Account @collection(name: "accounts") {
          id: ObjectID!
          name: String
          profile: Profile @reference(by: "id")
        }
        type Profile @collection(name: "profiles") { id: ObjectID! text: String }
        """
    )
    assert model.entity("Account").references[0].by == "id"


def test_an_entity_may_refer_to_itself() -> None:
    """A tree is a reference and a back reference of one type."""
    model = read_model(
        """
        type Part @collection(name: "parts") {
          id: ID!
          wholeId: ID
          whole: Part @reference(by: "wholeId")
          parts: [Part!]! @referencedBy(field: "wholeId")
        }
        """
    )
    part = model.entity("Part")
    assert (part.references[0].target, part.back_references[0].field) == ("Part", "wholeId")


@pytest.mark.parametrize("scalar", ID_SCALARS)
def test_the_stored_type_of_an_id_is_its_declared_scalar(scalar: Scalar) -> None:
    """The API type is ID; the declared scalar is the stored type, and ID is stored as text."""
    model = read_model(
        f'type Product @collection(name: "products") {{ id: {scalar.value}! name: String }}'
    )
    field = model.entity("Product").id
    assert (field.type, field.stored) == (Scalar.ID, "_id")
    assert field.stored_scalar == (Scalar.STRING if scalar is Scalar.ID else scalar)


# Generating a model is slow on a busy machine; that is not a fault of the model.
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(models())
def test_a_printed_model_parses_to_the_same_model(model: Model) -> None:
    """A generated model, printed and parsed again, is equal to the first."""
    assert read_model(print_model(model)) == model
