"""Keyset pagination: a walk over all pages visits each document once, in MongoDB's order, for any
stored values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient, WriteConcern
from pymongo.collection import Collection

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.page import Page, PageRequest, Window
from revstream.streams.mongo.driver.codecs import DECODED
from tests.support.bson_order import sort_key
from tests.support.exhaustive import examples

Things = Collection[dict[str, Any]]
Document = dict[str, Any]

VALUES = st.sampled_from(
    [
        None,
        MinKey(),
        MaxKey(),
        float("nan"),
        Decimal128("NaN"),
        float("-inf"),
        float("inf"),
        -1,
        0,
        -0.0,
        Int64(1),
        1.0,
        Decimal128("1.00"),
        1.5,
        Decimal128("1.5"),
        2**53,
        "",
        "a",
        "A",
        "ä",
        "\U0010ffff",
        "\ue000",
        {},
        {"a": 1},
        {"a": "b"},
        {"$gt": 1},
        b"",
        b"ab",
        Binary(b"ab", 4 + 128),
        ObjectId("5" * 24),
        ObjectId("6" * 24),
        False,
        True,
        datetime(1960, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, tzinfo=UTC),
        Timestamp(1, 1),
        Timestamp(2, 0),
        Regex("a"),
        Regex("a", "i"),
        Regex("b"),
        Code("x"),
        Code("y"),
    ]
)
FEW = st.sampled_from([None, 1, 2, "a"])
DOCUMENTS = st.lists(
    st.fixed_dictionaries({}, optional={"one": VALUES, "two": FEW, "in": st.just({"ner": 1})}),
    min_size=1,
    max_size=25,
)
DIRECTION = st.sampled_from([1, -1])
ORDERS = st.one_of(
    st.builds(lambda d, i: (("one", d), ("_id", i)), DIRECTION, DIRECTION),
    st.builds(
        lambda d, e, i: (("two", d), ("one", e), ("_id", i)), DIRECTION, DIRECTION, DIRECTION
    ),
    st.builds(lambda d: (("_id", d),), DIRECTION),
    st.builds(lambda d, i: (("in.ner", d), ("_id", i)), DIRECTION, DIRECTION),
)
DRAWN = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def things(client: MongoClient[Document], database_name: str) -> Things:
    """Return a collection with fast writes (w=1, j=False): its documents need not be durable."""
    return client.get_database(
        database_name, codec_options=DECODED, write_concern=WriteConcern(w=1, j=False)
    ).get_collection("things")


def may_be_an_id(value: Any) -> bool:
    """Return whether MongoDB accepts the value as `_id`."""
    return not isinstance(value, Regex) and value != {"$gt": 1}


def distinct(values: list[Any]) -> list[Any]:
    """Return the values that a unique index accepts together: 1 and 1.0 are equal."""
    kept: list[Any] = []
    for value in values:
        if all(sort_key(value) != sort_key(each) for each in kept):
            kept.append(value)
    return kept


def stored(things: Things, drawn: list[Document], ids: Callable[[int], Any]) -> list[Document]:
    """Replace the collection's documents by these, and return them."""
    documents = [{"_id": ids(number), **each} for number, each in enumerate(drawn)]
    things.delete_many({})
    things.insert_many(documents)
    return documents


def in_order(documents: list[Document], keys: tuple[tuple[str, int], ...]) -> list[Document]:
    """Return the documents sorted by a plain Python model."""
    for path, direction in reversed(keys):

        def value(document: Document, path: str = path) -> Any:
            found: Any = document
            for name in path.split("."):
                found = found.get(name) if isinstance(found, dict) else None
            return sort_key(found)

        documents = sorted(documents, key=value, reverse=direction < 0)
    return documents


def read(things: Things, keyset: Keyset, request: PageRequest) -> Page[Document]:
    window = Window(keyset, request)
    projection = window.projected({"_id": 1}) | window.placing
    found = things.find(window.limited_to({}), projection, limit=window.limit)
    return window.page(list(found.sort(list(window.keys))), lambda row: row)


def forwards(things: Things, keyset: Keyset, size: int) -> Iterator[Page[Document]]:
    """Yield all pages from the first on, with `hasNextPage` checked."""
    page = read(things, keyset, PageRequest(first=size))
    assert not page.has_previous
    yield page
    while page.has_next:
        assert len(page.items) == size
        page = read(things, keyset, PageRequest(first=size, after=page.cursors[-1]))
        assert page.has_previous
        yield page


def backwards(things: Things, keyset: Keyset, size: int) -> Iterator[Page[Document]]:
    """Yield all pages from the last on, the last page first."""
    page = read(things, keyset, PageRequest(last=size))
    assert not page.has_next
    yield page
    while page.has_previous:
        assert len(page.items) == size
        page = read(things, keyset, PageRequest(last=size, before=page.cursors[0]))
        assert page.has_next
        yield page


def ids_of(page: Page[Document]) -> list[Any]:
    return [each["_id"] for each in page.items]


@DRAWN
@given(drawn=DOCUMENTS, keys=ORDERS, size=st.integers(1, 6))
@example(
    drawn=[{"one": Regex("a")}, {"one": Code("x")}, {}], keys=(("one", -1), ("_id", 1)), size=1
)
def test_walks_visit_each_document_once_in_order(
    things: Things, drawn: list[Document], keys: tuple[tuple[str, int], ...], size: int
) -> None:
    """Both directions work with values of all types, nulls and missing fields."""
    documents = stored(things, drawn, lambda number: number)
    expected = [each["_id"] for each in in_order(documents, keys)]
    keyset = Keyset("things", keys)
    assert [id_ for page in forwards(things, keyset, size) for id_ in ids_of(page)] == expected
    pages = [ids_of(page) for page in backwards(things, keyset, size)]
    assert [id_ for page in reversed(pages) for id_ in page] == expected


@DRAWN
@given(
    ids=st.lists(VALUES.filter(may_be_an_id)).map(distinct),
    direction=DIRECTION,
    size=st.integers(1, 4),
)
def test_ids_may_be_of_any_type(things: Things, ids: list[Any], direction: int, size: int) -> None:
    """Pages in id order continue where one type of ids ends and the next begins."""
    documents = stored(things, [{} for _ in ids] or [{}], lambda number: (ids or [1])[number])
    keyset = Keyset("things", (("_id", direction),))
    expected = [sort_key(each["_id"]) for each in in_order(documents, keyset.keys)]
    for walk in (forwards, backwards):
        pages = [ids_of(page) for page in walk(things, keyset, size)]
        if walk is backwards:
            pages.reverse()
        assert [sort_key(id_) for page in pages for id_ in page] == expected


@DRAWN
@given(drawn=DOCUMENTS, keys=ORDERS, bounds=st.tuples(st.integers(0, 24), st.integers(0, 24)))
def test_two_cursors_limit_a_page(
    things: Things,
    drawn: list[Document],
    keys: tuple[tuple[str, int], ...],
    bounds: tuple[int, int],
) -> None:
    """The page is the slice of the list strictly between two cursors."""
    expected = in_order(stored(things, drawn, lambda number: number), keys)
    low, high = (min(each, len(expected) - 1) for each in bounds)
    keyset = Keyset("things", keys)
    after, before = keyset.cursor(expected[low]), keyset.cursor(expected[high])
    between = [each["_id"] for each in expected[low + 1 : high]]
    found = read(things, keyset, PageRequest(first=30, after=after, before=before))
    assert ids_of(found) == between
    found = read(things, keyset, PageRequest(last=30, after=after, before=before))
    assert ids_of(found) == between


@DRAWN
@given(
    drawn=DOCUMENTS,
    odd=st.lists(st.lists(FEW | st.lists(FEW), max_size=3), min_size=1, max_size=3),
    keys=ORDERS,
    size=st.integers(1, 3),
)
def test_documents_with_lists_in_sort_fields_hide_no_other(
    things: Things, drawn: list[Document], odd: list[Any], keys: Any, size: int
) -> None:
    """Such documents may be skipped; no others are, and none is repeated."""
    whole = stored(things, drawn, lambda number: number)
    things.insert_many([{"_id": 100 + n, "one": each} for n, each in enumerate(odd)])
    inside = [[{"ner": value} for value in each] for each in odd]
    things.insert_many([{"_id": 200 + n, "in": each} for n, each in enumerate(inside)])
    keyset = Keyset("things", keys)
    for walk in (forwards, backwards):
        seen = [id_ for page in walk(things, keyset, size) for id_ in ids_of(page)]
        assert len(seen) == len(set(seen))
        assert {each["_id"] for each in whole} <= set(seen)


def test_writes_do_not_shift_pages(things: Things) -> None:
    """Insertions and deletions before a cursor do not move the documents after it."""
    stored(things, [{"one": number // 3} for number in range(20)], lambda number: number)
    keyset = Keyset("things", (("one", 1), ("_id", 1)))
    seen: list[Any] = []
    for number, page in enumerate(forwards(things, keyset, 4)):
        seen += ids_of(page)
        things.delete_one({"_id": page.items[0]["_id"]})
        # Even the document of the cursor.
        things.delete_one({"_id": page.items[-1]["_id"]})
        things.insert_one({"_id": 100 + number, "one": -1})
    assert seen == list(range(20))


def test_the_cost_of_a_page_by_index_depends_on_its_size_only(
    client: MongoClient[Document], things: Things
) -> None:
    """A page in the middle reads one key per document, and a few more, in both directions."""
    things.insert_many([{"_id": n, "one": n // 7 if n % 5 else None} for n in range(2000)])
    things.create_index([("one", 1), ("_id", 1)])
    for keys in ((("one", 1), ("_id", 1)), (("one", -1), ("_id", -1))):
        keyset = Keyset("things", keys)
        cursor = keyset.cursor({"_id": 1001, "one": 143})
        for request in (
            PageRequest(first=10, after=cursor),
            PageRequest(last=10, before=cursor),
        ):
            window = Window(keyset, request)
            explained = client[things.database.name].command(
                {
                    "explain": {
                        "find": things.name,
                        "filter": window.limited_to({}),
                        "projection": window.projected({"_id": 1}) | window.placing,
                        "sort": window.sort,
                        "limit": window.limit,
                    },
                    "verbosity": "executionStats",
                }
            )["executionStats"]
            assert explained["nReturned"] == 11
            assert explained["totalKeysExamined"] <= 20


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize("uniform", [True, False])
def test_a_forged_cursor_gets_a_page_or_an_error(things: Things, uniform: bool) -> None:
    """No content of a cursor leads to a query that MongoDB refuses."""
    keyset = Keyset("things", (("_id", 1),), uniform=uniform)
    things.insert_one({"_id": "a"})
    deep = [nested(100), nested(300), Code("x", nested(300)), [nested(300)]]
    values = [MinKey(), MaxKey(), Regex("a"), Code("x"), Code("x", {"a": 1}), {"$where": 1}, *deep]
    values += [None, [], [[]], 1, "a", b"a", Timestamp(1, 1), {"$ref": "a", "$id": 1}]
    refused = 0
    for value in values:
        try:
            query = keyset.query_after(keyset.cursor_of([value]), "after")
        except BadUserInput:
            refused += 1
            continue
        list(things.find(query))
    assert refused == (6 if uniform else 3)
