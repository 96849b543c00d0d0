"""gql.documents: known documents are neither parsed nor validated again, within bounds."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from gql.documents import Kept
from gql.schema import build_schema
from model.entities import Model
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask


def test_what_was_not_asked_for_longest_goes_first() -> None:
    """No more are kept than allowed."""
    kept = Kept[int](most=2, most_characters=1000)
    for number, text in enumerate("ab"):
        kept.keep(text, number, 1)
    assert kept.get("a") == 0
    kept.keep("c", 2, 1)
    assert kept.get("b") is None
    assert kept.get("a") == 0
    assert kept.get("c") == 2


def test_all_texts_together_are_bounded() -> None:
    """Many long ones push one another out, and a very long one is not kept at all."""
    kept = Kept[int](most=500, most_characters=100)
    for letter in "abcdef":
        kept.keep(letter, 1, 25)
    assert len(kept) == 4
    kept.keep("x", 1, 26)
    assert kept.get("x") is None


async def test_a_valid_document_is_parsed_once(model: Model, memory: Memory) -> None:
    """However often it is executed, with whatever variables."""
    schema = build_schema(model)
    query = "query($id: ID!) { product(id: $id) { id } }"
    with patch("gql.documents.validate", return_value=[]) as validate:
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
