"""Arguments of a connection, and pages built from the rows read."""

from __future__ import annotations

from typing import Any

import pytest

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.page import SORT_KEY, PageRequest, Window, page_request

BY_ID = Keyset("things", (("_id", 1),))
BY_NAME = Keyset("things", (("name", -1), ("_id", -1)))


def rows(*ids: int) -> list[dict[str, Any]]:
    return [{"_id": each} for each in ids]


def test_without_arguments_the_first_page_has_the_default_size() -> None:
    """`after` alone has the default size as well."""
    assert page_request() == PageRequest(first=20)
    assert page_request(default=5, after="x") == PageRequest(first=5, after="x")


def test_before_alone_returns_the_items_next_to_the_cursor() -> None:
    """It does not return the first items of the list."""
    assert page_request(before="x") == PageRequest(last=20, before="x")
    assert page_request(before="x", after="w") == PageRequest(first=20, before="x", after="w")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"first": -1}, "first: -1, minimum is 0"),
        ({"last": -7}, "last: -7, minimum is 0"),
        ({"first": 10_000_000}, "first: 10,000,000, maximum is 1,000"),
        ({"last": 1001}, "last: 1,001, maximum is 1,000"),
        ({"first": 1, "last": 2}, "first and last: 1 and 2, expected one"),
    ],
)
def test_an_invalid_size_is_refused(arguments: dict[str, int], message: str) -> None:
    """The error names the value and the bound."""
    with pytest.raises(BadUserInput, match=message):
        page_request(**arguments)


def test_the_bounds_themselves_are_allowed() -> None:
    """Zero and the maximum are valid."""
    assert page_request(first=0).first == 0
    assert page_request(last=7, most=7).last == 7


def test_one_more_row_is_read_than_returned() -> None:
    """The additional row proves that there is another page, and is not on this one."""
    window = Window(BY_ID, page_request(first=2))
    assert window.limit == 3
    page = window.page(rows(1, 2, 3), lambda row: row["_id"])
    assert (page.items, page.has_next, page.has_previous) == ([1, 2], True, False)
    assert not window.page(rows(1, 2), lambda row: row["_id"]).has_next


def test_the_last_page_is_read_backwards_and_returned_forwards() -> None:
    """The order of items does not depend on the direction of the read."""
    window = Window(BY_ID, page_request(last=2))
    assert window.sort == {"_id": -1}
    page = window.page(rows(9, 8, 7), lambda row: row["_id"])
    assert (page.items, page.has_next, page.has_previous) == ([8, 9], False, True)
    assert page.cursors == [BY_ID.cursor({"_id": 8}), BY_ID.cursor({"_id": 9})]


def test_a_cursor_proves_a_page_on_its_other_side() -> None:
    """`hasPreviousPage` after a cursor costs no further read."""
    cursor = BY_ID.cursor({"_id": 5})
    ahead = Window(BY_ID, page_request(first=2, after=cursor))
    assert ahead.page(rows(6), lambda row: row).has_previous
    back = Window(BY_ID, page_request(last=2, before=cursor))
    assert back.page(rows(4), lambda row: row).has_next


def test_an_empty_page_still_has_has_next() -> None:
    """Some clients use `first: 0` to test whether there are items."""
    page = Window(BY_ID, page_request(first=0)).page(rows(1), lambda row: row)
    assert (page.items, page.cursors, page.has_next) == ([], [], True)


def test_the_projection_includes_the_sort_keys() -> None:
    """No path occurs twice: MongoDB refuses paths that lie inside of one another."""
    window = Window(Keyset("things", (("in.ner", 1), ("_id", 1))), page_request())
    assert window.projected({"_id": 1, "in": 1}) == {"_id": 1, "in": 1}
    assert window.projected({"_id": 1, "in.ner.most": 1, "a": 1}) == {
        "_id": 1,
        "a": 1,
        "in.ner": 1,
    }
    assert window.placing == {SORT_KEY: {"$meta": "sortKey"}}
    assert Window(BY_ID, page_request()).placing == {}


def test_the_sort_key_of_a_list_is_the_servers() -> None:
    """A document whose sort field is a list is placed by the server's sort key."""
    window = Window(BY_NAME, page_request(first=1))
    row = {"_id": 1, "name": ["a", "z"], SORT_KEY: ["z", 1]}
    page = window.page([row])
    assert page.items == [row]
    assert page.cursors == [BY_NAME.cursor({"_id": 1, "name": "z"})]


def test_the_total_and_the_token_are_on_the_page() -> None:
    """They are None if they were not read."""
    window = Window(BY_ID, page_request())
    page = window.page([], lambda row: row, total=0, token="t")
    assert (page.total, page.token) == (0, "t")
    page = window.page([], lambda row: row)
    assert (page.total, page.token) == (None, None)


def test_a_window_narrows_a_query() -> None:
    """Filter and cursor are combined with `$and`; one without the other is used alone."""
    cursor = BY_ID.cursor({"_id": 5})
    window = Window(BY_ID, page_request(after=cursor))
    assert window.limited_to({"a": 1}) == {"$and": [{"a": 1}, window.query]}
    assert window.limited_to({}) == window.query
    assert Window(BY_ID, page_request()).limited_to({"a": 1}) == {"a": 1}
