"""Tests of `gql.schema.entities.versions`: history of a document."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest

from revstream.resolvers.values.field_diff import FieldDiff
from tests.support.reads import Memory
from tests.unit.gql.conftest import Ask

PRODUCT: dict[str, Any] = {
    "_id": "p",
    "name": "Lamp",
    "stock": 3,
    "dimensions": {"width": 1.0, "height": 2.0},
    "unmodelled": 1,
}


@pytest.fixture(autouse=True)
def written(memory: Memory) -> None:
    """Insert a document, change it, delete it, and insert it again."""
    memory.write("products", PRODUCT)
    memory.write("products", {**PRODUCT, "stock": 2, "dimensions": {"width": 1.5, "height": 2.0}})
    memory.write("products", None, id_="p")
    memory.write("products", {**PRODUCT, "name": "Lamp II"})


async def test_a_version_has_author_operation_and_time(ask: Ask) -> None:
    """It has all facts of the archive."""
    result = await ask(
        '{ productVersion(id: "p", version: 2) { id nodeId documentId version operation at until'
        " author comment changedFields restoredFrom fromDraft gap resumeToken __typename } }"
    )
    assert result.errors is None
    assert result.data == {
        "productVersion": {
            "id": "p@2",
            "nodeId": "UHJvZHVjdFZlcnNpb246cEAy",
            "documentId": "p",
            "version": 2,
            "operation": "UPDATE",
            "at": "2024-05-01T12:00:01.000Z",
            "until": "2024-05-01T12:00:02.000Z",
            "author": "ann",
            "comment": "a reason",
            "changedFields": ["stock", "dimensions"],
            "restoredFrom": None,
            "fromDraft": None,
            "gap": False,
            "resumeToken": "66322EC1000000010001.tests",
            "__typename": "ProductVersion",
        }
    }


async def test_history_is_newest_first(ask: Ask) -> None:
    """Deletions are in it, without a document."""
    result = await ask(
        '{ product(id: "p") { history(first: 3) { nodes { version operation document { id name }'
        " previous { version } } totalCount pageInfo { hasNextPage } } } }"
    )
    assert result.errors is None
    assert result.data is not None
    history = result.data["product"]["history"]
    assert history["nodes"] == [
        {
            "version": 4,
            "operation": "UPDATE",
            "document": {"id": "p@4", "name": "Lamp II"},
            "previous": {"version": 3},
        },
        {"version": 3, "operation": "DELETE", "document": None, "previous": {"version": 2}},
        {
            "version": 2,
            "operation": "UPDATE",
            "document": {"id": "p@2", "name": "Lamp"},
            "previous": {"version": 1},
        },
    ]
    assert history["totalCount"] == 4
    assert history["pageInfo"] == {"hasNextPage": True}


async def test_a_diff_compares_with_the_previous_version(ask: Ask) -> None:
    """It has API names and values; the first version adds all fields, a deletion removes them."""
    result = await ask(
        '{ product(id: "p") { history { nodes { diff { path kind before after } } } } }'
    )
    assert result.errors is None
    assert result.data is not None
    again, deleted, changed, first = (
        each["diff"] for each in result.data["product"]["history"]["nodes"]
    )
    assert changed == [
        {"path": "stock", "kind": "CHANGED", "before": 3, "after": 2},
        {"path": "dimensions.width", "kind": "CHANGED", "before": 1.0, "after": 1.5},
    ]
    assert [each["kind"] for each in first] == ["ADDED"] * 3
    assert [each["kind"] for each in deleted] == ["REMOVED"] * 3
    assert [each["after"] for each in again] == ["Lamp II", 3, {"width": 1.0, "height": 2.0}]


async def test_a_document_is_compared_between_any_two_versions(ask: Ask) -> None:
    """Without the second version, it is compared with the current document."""
    result = await ask(
        '{ product(id: "p") { now: diff(from: 2) { path after }'
        " back: diff(from: 2, to: 1) { path after } gone: diff(from: 1, to: 3) { kind } } }"
    )
    assert result.errors is None
    assert result.data is not None
    product = result.data["product"]
    assert product["now"] == [
        {"path": "name", "after": "Lamp II"},
        {"path": "stock", "after": 3},
        {"path": "dimensions.width", "after": 1.0},
    ]
    assert product["back"] == [
        {"path": "stock", "after": 3},
        {"path": "dimensions.width", "after": 1.0},
    ]
    assert product["gone"] == [{"kind": "REMOVED"}] * 3


async def test_an_unknown_version_has_no_diff(ask: Ask) -> None:
    """The error has the document and the number."""
    result = await ask('{ product(id: "p") { diff(from: 9) { path } } }')
    assert result.errors is not None
    assert (
        result.errors[0].message
        == "diff: version 9, expected one of Product p; take a number from its history"
    )
    assert result.errors[0].extensions == {"code": "BAD_USER_INPUT"}


async def test_blame_has_the_version_that_last_changed_a_field(ask: Ask) -> None:
    """It has each field of the document."""
    result = await ask(
        '{ product(id: "p") { blame { path value version { version document { name } } } } }'
    )
    assert result.errors is None
    assert result.data is not None
    blame = result.data["product"]["blame"]
    assert [each["path"] for each in blame] == [
        "name",
        "stock",
        "dimensions.width",
        "dimensions.height",
    ]
    assert blame[0] == {
        "path": "name",
        "value": "Lamp II",
        "version": {"version": 4, "document": {"name": "Lamp II"}},
    }


STATES = [
    ("version: 1", 1),
    ("version: 3", 3),
    ("version: 9", None),
    ('asOf: {time: "2024-05-01T12:00:01.500Z"}', 2),
    ('asOf: {time: "2024-05-01T12:00:02.500Z"}', None),
    ('asOf: {time: "2024-05-01T11:00:00Z"}', None),
    ('asOf: {token: "66322EC100000001~.tests"}', 2),
]


@pytest.mark.parametrize(("arguments", "number"), STATES)
async def test_one_version_is_read_by_number_or_time_point(
    ask: Ask, arguments: str, number: int | None
) -> None:
    """Root and document have the field; it is null if the document did not exist."""
    result = await ask(
        f'{{ productVersion(id: "p", {arguments}) {{ version }}'
        f' product(id: "p") {{ state({arguments}) {{ version }} }} }}'
    )
    assert result.errors is None
    expected = None if number is None else {"version": number}
    assert result.data == {"productVersion": expected, "product": {"state": expected}}


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", "neither"),
        ("version: null", "neither"),
        ('version: 1, asOf: {time: "2024-05-01T12:00:00Z"}', "both"),
    ],
)
async def test_exactly_one_of_version_and_time_point_is_required(
    ask: Ask, arguments: str, given: str
) -> None:
    """Otherwise root and document return bad user input."""
    of_root = f'productVersion(id: "p", {arguments}) {{ version }}'
    of_document = (
        f'product(id: "p") {{ state{f"({arguments})" if arguments else ""} {{ version }} }}'
    )
    result = await ask(f"{{ {of_root} {of_document} }}")
    assert result.data == {"productVersion": None, "product": {"state": None}}
    assert result.errors is not None
    for error in result.errors:
        assert error.message == f"arguments version and asOf: got {given}, expected exactly one"
        assert error.extensions == {"code": "BAD_USER_INPUT"}


async def test_fifty_histories_are_one_read(ask: Ask, memory: Memory) -> None:
    """Previous versions, states, diffs and blame are one read each, too."""
    for n in range(50):
        memory.write("products", {**PRODUCT, "_id": f"p{n}"})
        memory.write("products", {**PRODUCT, "_id": f"p{n}", "stock": n + 10})
    memory.calls.clear()
    result = await ask(
        "{ products(first: 50) { nodes { version state(version: 1) { version }"
        " diff(from: 1) { path } blame { path } history(first: 2) {"
        " nodes { version previous { author } diff { path } document { name } } } } } }"
    )
    assert result.errors is None
    assert result.data is not None
    assert len(result.data["products"]["nodes"]) == 50
    names = [name for name, *_ in memory.calls]
    assert len(names) <= 12, names
    assert names.count("pages_of") == 1
    # The versions with which diffs compare were read with the pages.
    assert names.count("before") == 1


async def test_the_document_is_read_only_if_it_is_selected(ask: Ask, memory: Memory) -> None:
    """Only its selected fields are read."""
    for selection, fields in (("version", None), ("document { name }", frozenset({"name"}))):
        memory.calls.clear()
        await ask(f'{{ product(id: "p") {{ history {{ edges {{ node {{ {selection} }} }} }} }} }}')
        assert memory.calls[-1] == ("pages_of", "Product", 1, fields)


async def test_equal_differences_are_computed_once(ask: Ask) -> None:
    """All fields of an operation with the same arguments share the result."""
    places = [f"a{number}: diff(from: 1, to: 4) {{ path }}" for number in range(9)]
    text = f'{{ product(id: "p") {{ {" ".join(places)} other: diff(from: 1) {{ path }} }} }}'
    with patch.object(
        FieldDiff, "changes", autospec=True, side_effect=FieldDiff.changes
    ) as computed:
        result = await ask(text)
    assert result.errors is None
    assert result.data is not None
    assert list(result.data["product"].values()) == [[{"path": "name"}]] * 10
    assert computed.call_count == 2
