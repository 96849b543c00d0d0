"""`@search` on a real MongoDB, compared with a plain model: pages, orders, aggregates, access."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.streams.recording.bootstrap.index_creation import create_indexes
from tests.support.editing import Row, Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Note @collection(name: "notes") @search(fields: ["title", "text", "part.tags"], weights: [10, 1, 2])
      @access(rows: "{ or: [{ hidden: { ne: true } }, { owner: { eq: $sub } }] }") {
      id: ID! title: String text: String part: Part hidden: Boolean owner: String rank: Int
      storyId: ID story: Story @reference(by: "storyId")
    }
    type Part { tags: [String!] }
    type Story @collection(name: "stories", version: null)
      @search(fields: ["title", "secret"], language: "english") {
      id: ID! title: String secret: String @access(read: ["staff"]) language: String
    }
    type Plain @collection(name: "plains") { id: ID! text: String }
    """  # noqa: E501
)
ANN, STAFF = Principal(name="ann"), Principal(name="eve", roles=frozenset({"staff"}))
WORDS = ["lamp", "desk", "oak", "the", "Été", "ete", "LAMP", "lamps"]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map(" ".join)
NOTES = st.fixed_dictionaries(
    {},
    optional={
        "title": TEXTS | st.none(),
        "text": TEXTS,
        "part": st.fixed_dictionaries({"tags": st.lists(TEXTS, max_size=2)}),
        "hidden": st.booleans(),
        "owner": st.sampled_from(["ann", "bob"]),
        "rank": st.integers(0, 2),
    },
)
SEARCHES = st.one_of(
    TEXTS,
    st.tuples(TEXTS, st.sampled_from(WORDS)).map(lambda each: f"{each[0]} -{each[1]}"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(mongo_uri: str, client: MongoClient[Row]) -> AsyncIterator[Shop]:
    """Run a gateway over empty collections, whose indexes it creates at start."""
    name = f"search_{uuid4().hex[:8]}"
    for entity in MODEL.entities:
        client[name].create_collection(entity.collection)
    async with open_shop(client, mongo_uri, name, model=MODEL) as shop:
        yield shop
    client.drop_database(name)


async def ask(shop: Shop, caller: Principal, text: str, **variables: Any) -> Row:
    """Return the data, and the messages and codes of errors."""
    context = context_of(shop.gateway, caller=caller)
    result = await shop.schema.execute(text, variables, context)
    errors = result.errors or ()
    return {
        "data": result.data,
        "messages": [each.message for each in errors],
        "codes": [(each.extensions or {}).get("code") for each in errors],
    }


def words(text: str | None) -> set[str]:
    return set((text or "").lower().replace("é", "e").split())


def matches(note: Row, search: str) -> bool:
    """Return whether a note has one of the words, and none with a minus, in plain Python."""
    there = words(note.get("title")) | words(note.get("text"))
    for tag in note.get("part", {}).get("tags", ()):
        there |= words(tag)
    asked = words(search)
    without = {each.removeprefix("-") for each in asked if each.startswith("-")}
    return bool(there & (asked - {f"-{each}" for each in without})) and not there & without


QUERY = """query($search: String, $where: NoteWhere, $orderBy: [NoteOrder!], $after: String) {
  notes(search: $search, where: $where, orderBy: $orderBy, first: 3, after: $after) {
    totalCount nodes { id } pageInfo { endCursor hasNextPage }
  }
  notesAggregate(search: $search, where: $where) { count }
}"""


async def all_pages(shop: Shop, caller: Principal, **variables: Any) -> list[str]:
    """Return the ids on all pages, and compare the counts with them."""
    ids: list[str] = []
    after, more = None, True
    while more:
        answer = await ask(shop, caller, QUERY, after=after, **variables)
        assert not answer["messages"]
        page = answer["data"]["notes"]
        ids += [each["id"] for each in page["nodes"]]
        after, more = page["pageInfo"]["endCursor"], page["pageInfo"]["hasNextPage"]
    assert page["totalCount"] == answer["data"]["notesAggregate"]["count"] == len(ids)
    return ids


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
@given(notes=st.lists(NOTES, max_size=8), search=SEARCHES, ranked=st.booleans())
async def test_a_search_finds_what_a_plain_model_finds(
    shop: Shop, notes: list[Row], search: str, ranked: bool
) -> None:
    """Pages have each note once, the best matches first, with filters, orders and row rules."""
    collection = shop.database["notes"]
    collection.delete_many({})
    stored = {f"n{number}": {**each, "version": 1} for number, each in enumerate(notes)}
    if stored:
        collection.insert_many([{"_id": id_, **each} for id_, each in stored.items()])
    visible = {
        id_
        for id_, each in stored.items()
        if matches(each, search) and (not each.get("hidden") or each.get("owner") == "ann")
    }
    found = await all_pages(shop, ANN, search=search)
    assert sorted(found) == sorted(visible)
    score = {"score": {"$meta": "textScore"}}
    scored = collection.find({"$text": {"$search": search}}, score)
    scores = {each["_id"]: each["score"] for each in scored}
    assert found == sorted(found, key=lambda each: (-scores[each], each))
    where = {"rank": {"gte": 1}} if ranked else {"not": {"title": {"contains": "desk"}}}
    limited = {
        id_
        for id_ in visible
        if (
            stored[id_].get("rank", 0) >= 1
            if ranked
            else "desk" not in (stored[id_].get("title") or "")
        )
    }
    ordered = await all_pages(shop, ANN, search=search, where=where, orderBy=[{"rank": "DESC"}])
    assert sorted(ordered) == sorted(limited)
    ranks = [stored[each].get("rank", -1) for each in ordered]
    assert ranks == sorted(ranks, reverse=True)


async def test_backward_pages_and_a_resume_token(shop: Shop) -> None:
    """`last` with `before` walks the same order; `resumeToken` reads at one cluster time."""
    collection = shop.database["notes"]
    collection.delete_many({})
    texts = ["oak", "oak oak", "desk", "oak desk", "OAK lamp desk lamp lamp"]
    collection.insert_many(
        [{"_id": f"n{n}", "text": each, "version": 1} for n, each in enumerate(texts)]
    )
    text = """query($before: String, $last: Int, $first: Int) {
      notes(search: "oak", first: $first, last: $last, before: $before) {
        edges { cursor node { id text } } resumeToken
      }
    }"""
    forwards = (await ask(shop, ANN, text, first=9))["data"]["notes"]["edges"]
    assert len(forwards) == 4
    before = forwards[3]["cursor"]
    backwards = (await ask(shop, ANN, text, last=2, before=before))["data"]["notes"]["edges"]
    assert backwards == forwards[1:3]
    other = await ask(shop, ANN, text.replace('"oak"', '"desk"'), last=2, before=before)
    assert "expected a cursor of this list in this order" in other["messages"][0]


async def test_a_search_may_have_an_order_by_related_documents(shop: Shop) -> None:
    """The order is of the found notes alone."""
    shop.database["stories"].insert_many([{"_id": each, "title": each} for each in ("x", "y", "z")])
    notes = shop.database["notes"]
    notes.delete_many({})
    for id_, text, story in (("p", "oak", "z"), ("q", "oak", "x"), ("r", "desk", "y")):
        notes.insert_one({"_id": id_, "text": text, "storyId": story, "version": 1})
    for _ in range(2):
        ordered = await all_pages(shop, ANN, search="oak", orderBy=[{"story": {"title": "ASC"}}])
        assert ordered == ["q", "p"]


async def test_words_are_found_by_their_stems_in_a_language(shop: Shop) -> None:
    """A field `language` of a document means nothing to the index."""
    shop.database["stories"].insert_many(
        [
            {"_id": "a", "title": "The running lamps", "language": "klingon"},
            {"_id": "b", "title": "A lamp ran", "secret": "vault"},
        ]
    )
    text = "query($search: String) { stories(search: $search) { nodes { id } } }"
    for search, found in (("lamp", ["a", "b"]), ("run", ["a"]), ("the", []), ("", [])):
        answer = await ask(shop, STAFF, text, search=search)
        ids = [each["id"] for each in answer["data"]["stories"]["nodes"]]
        assert sorted(ids) == found, search
    answer = await ask(shop, STAFF, text, search='"lamp ran"')
    assert [each["id"] for each in answer["data"]["stories"]["nodes"]] == ["b"]


async def test_a_search_is_refused_with_words(shop: Shop) -> None:
    """Access, length, time points, and filters of the version number."""
    for _ in range(2):
        answer = await ask(shop, ANN, '{ stories(search: "vault") { nodes { id } } }')
        assert answer["codes"] == ["FORBIDDEN"]
    answer = await ask(shop, ANN, '{ storiesAggregate(search: "vault") { count } }')
    assert answer["codes"] == ["FORBIDDEN"]
    answer = await ask(shop, ANN, "{ notes(search: null) { totalCount } notesAggregate { count } }")
    assert answer["data"]["notes"]["totalCount"] == answer["data"]["notesAggregate"]["count"]
    long = "x" * 1001
    answer = await ask(shop, ANN, f'{{ notes(search: "{long}") {{ nodes {{ id }} }} }}')
    assert answer["messages"] == ["search: 1,001 characters, maximum is 1,000; shorten it"]
    answer = await ask(
        shop,
        ANN,
        '{ notesAggregate(search: "a", asOf: {time: "2026-01-01T00:00:00Z"}) { count } }',
    )
    assert answer["messages"] == [
        "search: together with asOf, expected one of them; the text index has current documents "
        "only"
    ]
    for arguments in ("where: {version: {gt: 0}}", "orderBy: [{version: ASC}]"):
        answer = await ask(shop, ANN, f'{{ notes(search: "a", {arguments}) {{ nodes {{ id }} }} }}')
        assert answer["messages"] == [
            "search: with a condition or an order by version, expected other ones; remove it"
        ]
    for field in ("plains", "notesAsOf"):
        answer = await ask(shop, ANN, f'{{ {field}(search: "a") {{ nodes {{ id }} }} }}')
        assert "Unknown argument 'search'" in answer["messages"][0]


async def test_another_text_index_is_not_searched(shop: Shop) -> None:
    """It may have fields that the caller may not read, or know: the error names none of them."""
    collection = shop.database["notes"]
    index = collection.index_information()["revstream_search"]
    assert index["weights"] == {"title": 10, "text": 1, "part.tags": 2}
    assert index["default_language"] == "none"
    collection.drop_index("revstream_search")
    text = '{ notes(search: "a") { nodes { id } } }'
    try:
        answers = [await ask(shop, ANN, text)]
        collection.create_index([("owner", "text")])
        answers.append(await ask(shop, ANN, text))
        for answer in answers:
            assert (answer["codes"], answer["messages"]) == (
                ["UNAVAILABLE"],
                [
                    "search: notes: no text index of the model, expected one; run `revstream "
                    "doctor`, which says why"
                ],
            )
        refused = await create_indexes(shop.gateway.mongo, MODEL, ["notes"], lambda *_: None)
        assert [each.reason.split(",")[0] for each in refused] == [
            'text index "owner_text" with weights {owner: 1} and language english'
        ]
    finally:
        collection.drop_indexes()
        await create_indexes(shop.gateway.mongo, MODEL, ["notes"], lambda *_: None)
    assert not (await ask(shop, ANN, text))["messages"]
