"""Ids that are unique across all types."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.values.global_id import node_id, parse_node_id


@given(id_text=st.text().filter(lambda text: text.isprintable()))
def test_a_node_id_is_parsed_to_its_parts(id_text: str) -> None:
    """An id may contain colons, slashes and any script."""
    assert parse_node_id(node_id("Product", id_text)) == ("Product", id_text)


def test_the_type_is_a_part_of_the_id() -> None:
    """Equal ids of two types are two nodes."""
    assert node_id("Product", "1") != node_id("Supplier", "1")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Product:1",
        "!",
        base64.urlsafe_b64encode(b"no colon here").decode(),
        base64.urlsafe_b64encode(b":1").decode(),
        base64.urlsafe_b64encode(b"\xff:1").decode(),
        node_id("Product", "1") + "=",
        "x" * 1000,
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    """The message quotes the start of the text."""
    with pytest.raises(BadUserInput, match="expected a node id") as caught:
        parse_node_id(text)
    assert len(caught.value.message) < 150
