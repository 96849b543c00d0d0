"""Errors of the resolvers, as clients see them."""

from __future__ import annotations

import pytest

from revstream.resolvers.errors import BadUserInput, DocumentMisfit, Forbidden
from revstream.streams.core.errors import DatabaseError, DuplicateKey, GatewayError, Unavailable


def test_each_has_a_code_of_its_own_and_may_carry_facts() -> None:
    """The code is in the extensions, beside facts that are safe to return."""
    for kind, code in ((BadUserInput, "BAD_USER_INPUT"), (Forbidden, "FORBIDDEN")):
        error = kind("no", argument="first")
        assert isinstance(error, GatewayError)
        assert str(error) == "no"
        assert error.extensions == {"code": code, "argument": "first"}


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("gone", seconds=3),
        DatabaseError("no", number=246),
        DuplicateKey("there", fields=("sku",)),
        DocumentMisfit(
            collection="products",
            document_id="a",
            field="price",
            found="1",
            expected="Decimal",
            mend="store a Decimal there",
        ),
    ],
)
def test_a_copy_is_equal_and_independent(error: GatewayError) -> None:
    """This holds for any constructor; facts added to the copy do not reach the original."""
    again = error.copy()
    assert type(again) is type(error)
    assert (str(again), vars(again)) == (str(error), vars(error))
    again.facts["resumeToken"] = "t"
    assert "resumeToken" not in error.facts


def test_a_misfit_names_the_document_the_field_and_both_values() -> None:
    """The reader can correct the document or the model."""
    error = DocumentMisfit(
        collection="products",
        document_id="a",
        field="price",
        found="an array",
        expected="Decimal",
        mend="store a Decimal there",
    )
    assert str(error) == "products/a: price: an array, expected Decimal"
