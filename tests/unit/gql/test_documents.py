"""gql.documents: known documents are neither parsed nor validated again, within bounds."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from graphql import parse

from gql.documents import Documents
from gql.schema import build_schema
from model.entities import Model
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask

DOCUMENT = parse("{ __typename }")


def test_the_document_that_was_not_asked_for_longest_goes_first() -> None:
    """No more are kept than allowed."""
    documents = Documents(most=2)
    for text in ("a", "b"):
        documents.keep(text, DOCUMENT)
    assert documents.get("a") is DOCUMENT
    documents.keep("c", DOCUMENT)
    assert documents.get("b") is None
    assert documents.get("a") is DOCUMENT
    assert documents.get("c") is DOCUMENT


def test_all_texts_together_are_bounded() -> None:
    """Many long ones push one another out, and a very long one is not kept at all."""
    documents = Documents(most_characters=100)
    for letter in "abcdef":
        documents.keep(letter * 25, DOCUMENT)
    assert len(documents) == 4
    documents.keep("x" * 26, DOCUMENT)
    assert documents.get("x" * 26) is None


async def test_a_valid_document_is_parsed_once(model: Model, memory: Memory) -> None:
    """However often it is executed, with whatever variables."""
    schema = build_schema(model)
    query = "query($id: ID!) { product(id: $id) { id } }"
    with patch("strawberry.schema.schema.validate_document", return_value=[]) as validate:
        for id_ in ("a", "b"):
            result = await schema.execute(query, {"id": id_}, memory.context())
            assert result.data == {"product": None}
    assert validate.call_count == 1


async def test_an_invalid_document_is_refused_every_time(ask: Ask) -> None:
    """It is not kept, so that its errors are said again."""
    for _ in range(2):
        result: Any = await ask("{ nope }")
        assert "Cannot query field 'nope'" in result.errors[0].message
        assert result.data is None
