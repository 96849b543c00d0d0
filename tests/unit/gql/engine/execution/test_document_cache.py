"""Document cache: known documents are not parsed and validated again, within bounds."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from revstream.gql.schema import build_schema
from revstream.model.definition import Model
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask


async def test_a_valid_document_is_parsed_once(model: Model, memory: Memory) -> None:
    """It may be executed any number of times, with any variables."""
    schema = build_schema(model)
    query = "query($id: ID!) { product(id: $id) { id } }"
    with patch(
        "revstream.gql.engine.execution.document_cache.validate", return_value=[]
    ) as validate:
        for id_ in ("a", "b"):
            result = await schema.execute(query, {"id": id_}, memory.context())
            assert result.data == {"product": None}
    assert validate.call_count == 1


async def test_an_invalid_document_is_refused_every_time(ask: Ask) -> None:
    """It is not cached; each response has its errors."""
    for _ in range(2):
        result: Any = await ask("{ nope }")
        assert "Cannot query field 'nope'" in result.errors[0].message
        assert result.data is None
