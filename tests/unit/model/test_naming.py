"""Names of the API, derived from those of the model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from revstream.model.naming import (
    camel_case,
    did_you_mean,
    is_name,
    lower_first,
    suggestion,
    upper_first,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Product", "product"),
        ("OrderLine", "orderLine"),
        ("URL", "url"),
        ("URLs", "urls"),
        ("URLEntry", "urlEntry"),
        ("IDs", "ids"),
        ("IDsSeen", "idsSeen"),
        ("SKU2", "sku2"),
        ("ABTest", "abTest"),
        ("A", "a"),
        ("As", "as"),
        ("product", "product"),
        ("_Odd", "_Odd"),
    ],
)
def test_the_first_word_becomes_lower_case(name: str, expected: str) -> None:
    """An acronym is one word."""
    assert lower_first(name) == expected


@pytest.mark.parametrize(
    ("collection", "expected"),
    [
        ("products", "products"),
        ("order_lines", "orderLines"),
        ("order-lines", "orderLines"),
        ("shop.order lines", "shopOrderLines"),
        ("OrderLines", "orderLines"),
        ("ORDER_LINES", "orderLines"),
        ("URLEntries", "urlEntries"),
        ("_private", "private"),
        ("top10", "top10"),
        ("10top", None),
        ("größen", None),
        ("--", None),
        ("", None),
    ],
)
def test_a_collection_name_becomes_camel_case(collection: str, expected: str | None) -> None:
    """The result is None if the name would be a guess."""
    assert camel_case(collection) == expected


@settings(deadline=None)
@given(st.text(max_size=20))
def test_a_derived_name_is_a_valid_name(collection: str) -> None:
    """The result is a GraphQL name or None, for any collection name."""
    name = camel_case(collection)
    assert name is None or is_name(name)


@settings(deadline=None)
@given(st.from_regex(r"[A-Za-z][0-9A-Za-z]*", fullmatch=True))
def test_only_the_case_changes(name: str) -> None:
    """No letter is lost, and the first one is lower case."""
    lowered = lower_first(name)
    assert lowered.lower() == name.lower()
    assert lowered[0].islower()


def test_the_first_letter_becomes_upper_case() -> None:
    """The other letters do not change."""
    assert upper_first("orderLines") == "OrderLines"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("suplier", "supplier"), ("SUPPLIER", "supplier"), ("supplerId", "supplierId"), ("x", None)],
)
def test_the_closest_name_is_suggested(name: str, expected: str | None) -> None:
    """The comparison ignores case; there is no suggestion if no name is close."""
    assert suggestion(name, ["name", "supplier", "supplierId"]) == expected


def test_a_fix_without_a_suggestion_is_the_advice() -> None:
    """The fix is either the suggestion or the advice."""
    assert did_you_mean("nmae", ["name"], "look it up") == 'did you mean "name"?'
    assert did_you_mean("x", ["name"], "look it up") == "look it up"


@pytest.mark.parametrize(
    ("text", "expected"), [("a1", True), ("_", True), ("1a", False), ("a b", False), ("é", False)]
)
def test_names_are_those_of_graphql(text: str, expected: bool) -> None:
    """A name has ASCII letters, digits and _, and does not begin with a digit."""
    assert is_name(text) is expected
