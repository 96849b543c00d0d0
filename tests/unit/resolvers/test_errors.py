"""The errors of the resolvers, as clients see them."""

from __future__ import annotations

from resolvers.errors import BadUserInput, DocumentMisfit, Forbidden
from streams.errors import GatewayError


def test_each_has_a_code_of_its_own_and_may_carry_facts() -> None:
    """The code stands in the extensions, beside what is safe to show."""
    for kind, code in ((BadUserInput, "BAD_USER_INPUT"), (Forbidden, "FORBIDDEN")):
        error = kind("no", argument="first")
        assert isinstance(error, GatewayError)
        assert str(error) == "no"
        assert error.extensions == {"code": code, "argument": "first"}


def test_a_misfit_names_the_document_the_field_and_both_values() -> None:
    """Whoever reads it can mend the document or the model."""
    error = DocumentMisfit(
        collection="products", document_id="a", field="price", found="an array", expected="Decimal"
    )
    assert str(error) == "products/a: price holds an array, Decimal expected"
