"""Tests of `gql.schema.entities.connections`."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.model.definition import Entity
from revstream.resolvers.pagination.page_query import PageQuery
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask
from tests.unit.gql.engine.request.test_plan import GOOD


@pytest.fixture(autouse=True)
def readings(memory: Memory) -> None:
    for n in range(5):
        memory.write("readings", {"_id": f"r{n}", "sequence": n, "value": n / 2})


async def test_a_page_has_edges_nodes_and_cursors(ask: Ask) -> None:
    """They follow the requested order and filter."""
    result = await ask(
        "{ readings(first: 2, orderBy: [{sequence: DESC}], where: {value: {lt: 2}}) {"
        " edges { cursor node { id } } nodes { id value }"
        " pageInfo { hasNextPage hasPreviousPage startCursor endCursor } totalCount } }"
    )
    assert result.errors is None
    assert result.data == {
        "readings": {
            "edges": [
                {"cursor": "c0", "node": {"id": "r3"}},
                {"cursor": "c1", "node": {"id": "r2"}},
            ],
            "nodes": [{"id": "r3", "value": 1.5}, {"id": "r2", "value": 1.0}],
            "pageInfo": {
                "hasNextPage": True,
                "hasPreviousPage": False,
                "startCursor": "c0",
                "endCursor": "c1",
            },
            "totalCount": 4,
        }
    }


async def test_an_empty_page_has_no_cursors(ask: Ask) -> None:
    """It has null cursors and no items."""
    result = await ask(
        '{ readings(where: {id: {eq: "none"}})'
        " { nodes { id } pageInfo { startCursor endCursor } } }"
    )
    assert result.data == {
        "readings": {"nodes": [], "pageInfo": {"startCursor": None, "endCursor": None}}
    }


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("totalCount", (True, False)),
        ("resumeToken", (False, True)),
        ("nodes { id }", (False, False)),
        ("totalCount @include(if: false) nodes { id }", (False, False)),
        ("... on ReadingConnection { n: totalCount t: resumeToken }", (True, True)),
    ],
)
async def test_total_and_token_are_computed_only_if_they_are_selected(
    schema: Any, memory: Memory, selection: str, expected: tuple[bool, bool]
) -> None:
    """A count and a read at a cluster time cost more."""
    context = memory.context()
    requested: list[tuple[bool, bool]] = []
    page = context.services.current.page

    async def watched(entity: Entity, query: PageQuery[Any]) -> Any:
        requested.append((query.total, query.token))
        return await page(entity, query)

    context.services.current.page = watched  # type: ignore[method-assign]
    result = await schema.execute(f"{{ readings {{ {selection} }} }}", context_value=context)
    assert result.errors is None
    assert requested == [expected]


async def test_the_resume_token_has_the_deployments_tag(ask: Ask) -> None:
    """All tokens of the API have it."""
    result = await ask("{ readings { resumeToken } }")
    assert result.data is not None
    assert result.data["readings"]["resumeToken"].endswith("~.tests")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("first: -1", "first: -1, minimum is 0; request 0 or more items"),
        ("last: 1001", "last: 1,001, maximum is 1,000; request smaller pages"),
        ("first: 1, last: 1", "first and last: 1 and 1, expected one of them; remove the other"),
    ],
)
@pytest.mark.parametrize("field", ["readings", "readingVersions"])
async def test_invalid_page_arguments_are_bad_user_input(
    ask: Ask, field: str, arguments: str, message: str
) -> None:
    """The error has the argument's name."""
    result = await ask(f"{{ {field}({arguments}) {{ totalCount }} }}")
    assert result.errors is not None
    assert result.errors[0].message == message
    assert result.errors[0].extensions is not None
    assert result.errors[0].extensions["code"] == "BAD_USER_INPUT"


async def test_documents_are_ordered_by_a_field_of_an_embedded_document(
    ask: Ask, memory: Memory
) -> None:
    """It may be stored under another name; documents without it come first."""
    for id_, unit in (("a", {"name": "m", "f": 2.0}), ("b", {"name": "m", "f": 1.0}), ("c", None)):
        size = {"width": 1.0, "height": 2.0, "unit": unit}
        memory.write("products", {"_id": id_, **GOOD, "dimensions": size})
    result = await ask(
        "{ products(orderBy: [{dimensions: {width: ASC}}, {dimensions: {unit: {factor: DESC}}}]) {"
        " nodes { id } } }"
    )
    assert result.errors is None
    assert result.data == {"products": {"nodes": [{"id": each} for each in "abc"]}}


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (
            "[{dimensions: {width: ASC}}, {dimensions: {width: DESC}}]",
            "orderBy: dimensions.width twice, expected each field once; remove one of them",
        ),
        ("[{dimensions: {}}]", "exactly one"),
        ("[{dimensions: {width: ASC, height: ASC}}]", "exactly one"),
        ("[{dimensions: ASC}]", "DimensionsOrderBy"),
        ("[{packages: {weight: ASC}}]", "packages"),
    ],
)
async def test_an_invalid_order_is_refused(ask: Ask, order: str, message: str) -> None:
    """An order has one direction for each field, and lists have no position."""
    result = await ask(f"{{ products(orderBy: {order}) {{ totalCount }} }}")
    assert result.errors is not None
    assert message in result.errors[0].message
