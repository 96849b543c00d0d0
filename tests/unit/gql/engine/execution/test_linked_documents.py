"""Compiled references by lists of ids, compared with graphql-core."""

from __future__ import annotations

from typing import Any

import pytest
from bson import ObjectId

from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.streams.core import resume_tokens
from tests.support.reads import DEPLOYMENT, Memory, at
from tests.unit.gql.engine.execution.test_compiled_query import by_graphql_core, by_the_schema

MODEL = read_model(
    """
    type Post @collection(name: "posts") {
      id: ID! tagIds: [ObjectID!] tags: [Tag!]! @reference(by: "tagIds")
    }
    type Tag @collection(name: "tags") {
      id: ObjectID! name: String! above: [ObjectID!] parents: [Tag!]! @reference(by: "above")
    }
    """
)
TEXT = """query($at: TimePoint!) {
  posts { nodes { id tags { id name parents { name } } again: tags { __typename version } } }
  postsAsOf(asOf: $at) { nodes { document { id tags { id name parents { name } } } } }
  postStates { nodes { tags { name } } }
  past: postStates(asOf: $at) { nodes { tags { name version } } }
}"""


def tag(number: int) -> Any:

    return ObjectId(f"{number:024x}")


@pytest.mark.parametrize(
    ("lists", "is_compiled"),
    [
        ([[tag(1), tag(2), tag(1)], [tag(2)], []], True),
        ([[tag(8), tag(2)], None], True),
        ([[None, tag(1)]], True),
        ([["no id", tag(1)]], False),
        ([tag(1)], True),
        ([[tag(3), tag(1)]], False),
    ],
    ids=["usual", "gone", "null", "invalid id", "no list", "misfit"],
)
def test_lists_of_references_have_equal_responses(lists: list[Any], is_compiled: bool) -> None:
    """Documents that do not fit are left to graphql-core, which reports them."""

    def make(lists: list[Any] = lists) -> Memory:
        memory = Memory()
        memory.knowing = True
        memory.write("tags", {"_id": tag(1), "name": "one", "above": [tag(2)]})
        memory.write("tags", {"_id": tag(2), "name": "two"})
        memory.write("tags", {"_id": tag(3), "name": ["no text"]})
        for number, ids in enumerate(lists):
            memory.write("posts", {"_id": f"p{number}", "tagIds": ids})
        return memory

    schema: Any = build_schema(MODEL)
    token = resume_tokens.encode(resume_tokens.token_from_time(at(50)), DEPLOYMENT)
    variables = {"at": {"token": token}}
    expected = by_graphql_core(schema, make(), TEXT, variables)
    assert b"INTERNAL" not in expected
    # It is compiled after an execution without errors.
    for _ in range(2):
        by_the_schema(schema, make([]), TEXT, variables)
    for _ in range(3):
        assert by_the_schema(schema, make(), TEXT, variables) == expected
    found = {each[0] for each in schema.operations.fallbacks.counts}
    assert ("query" not in found) is is_compiled
