"""References by lists of ids, in both directions, now and as of moments, against plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from bson import ObjectId
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pymongo import MongoClient

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.operation_budget import OperationLimits
from revstream.gql.runtime.asgi_app import context_of
from revstream.gql.schema import build_schema
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import ANONYMOUS
from revstream.streams.core import resume_tokens
from tests.support.editing import Shop, open_shop
from tests.support.exhaustive import examples

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = read_model(
    """
    type Post @collection(name: "posts") {
      id: ID! tagIds: [ID!] tags: [Tag!]! @reference(by: "tagIds")
    }
    type Tag @collection(name: "tags") @access(rows: "{hidden: {ne: true}}") {
      id: ObjectID! name: String hidden: Boolean posts: [Post!]! @referencedBy(field: "tagIds")
    }
    """
)
TAGS = [ObjectId(f"{n:024x}") for n in range(4)]
STATES = """
query($at: TimePoint) {
  posts: postStates(asOf: $at) { nodes { id tags { id } } }
  tags: tagStates(asOf: $at) { nodes { ...tag } }
  token: tagStates(asOf: $at, first: 0) { resumeToken }
}
fragment tag on TagState { id name posts { totalCount nodes { id } } }
"""
PAGES = """
query($at: TimePoint, $id: ID!, $first: Int, $after: String, $last: Int, $before: String) {
  postState(asOf: $at, id: $id) {
    tagsConnection(first: $first, after: $after, last: $last, before: $before) {
      totalCount resumeToken edges { cursor node { documentId } }
      pageInfo { hasNextPage hasPreviousPage startCursor endCursor }
    }
  }
}
"""
State = tuple[dict[str, list[ObjectId]], dict[ObjectId, bool]]
WRITES = st.lists(
    st.tuples(st.sampled_from("abc"), st.none() | st.lists(st.sampled_from(TAGS), max_size=5))
    | st.tuples(st.sampled_from(TAGS), st.sampled_from([None, False, True])),
    min_size=1,
    max_size=12,
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def posts(mongo_uri: str, client: MongoClient[dict[str, Any]]) -> AsyncIterator[Shop]:
    """Run a gateway over posts and tags."""
    async with open_shop(client, mongo_uri, f"posts_{uuid4().hex[:8]}", model=MODEL) as shop:
        yield shop


async def ask(shop: Shop, text: str, **variables: Any) -> Any:
    context = context_of(shop.gateway, caller=ANONYMOUS)
    result = await shop.schema.execute(text, variables, context)
    assert result.errors is None
    return result.data


def expected(state: State) -> dict[str, Any]:
    """Return what both directions show, with the tags that the caller may see."""
    written, tags = state
    seen = {each for each, hidden in tags.items() if not hidden}
    return {
        "posts": {
            key: [TAGS.index(each) for each in ids if each in seen] for key, ids in written.items()
        },
        "tags": {
            TAGS.index(tag): sorted(key for key, ids in written.items() if tag in ids)
            for tag in seen
        },
    }


def shown(data: dict[str, Any], then: str = "") -> dict[str, Any]:
    """Return a response in the form of `expected`."""
    posts, tags = (
        [each["document"] if then else each for each in data[name]["nodes"]]
        for name in (f"posts{then}", f"tags{then}")
    )
    found: dict[int, Any] = {}
    for each in tags:
        assert each["posts"]["totalCount"] == len(each["posts"]["nodes"])
        names = [post["id"].split("@")[0] for post in each["posts"]["nodes"]]
        found[int(each["id"].split("@")[0], 16)] = names
    return {
        "posts": {
            each["id"].split("@")[0]: [int(tag["id"].split("@")[0], 16) for tag in each["tags"]]
            for each in posts
        },
        "tags": found,
    }


async def walked(shop: Shop, key: str, at: Any, size: int, forwards: bool) -> list[int]:
    """Return the tags of a post, read page by page in one direction."""
    found: list[int] = []
    place: dict[str, Any] = {"first": size} if forwards else {"last": size}
    while True:
        data = await ask(shop, PAGES, at=at, id=key, **place)
        page = data["postState"]["tagsConnection"]
        shown = [int(each["node"]["documentId"], 16) for each in page["edges"]]
        found = found + shown if forwards else shown + found
        info = page["pageInfo"]
        if not info["hasNextPage" if forwards else "hasPreviousPage"]:
            assert page["totalCount"] == len(found)
            return found
        assert len(shown) == size
        place = (
            {"first": size, "after": info["endCursor"]}
            if forwards
            else {"last": size, "before": info["startCursor"]}
        )


@settings(
    deadline=None,
    max_examples=examples(10),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    writes=WRITES,
    size=st.integers(1, 3),
    forwards=st.booleans(),
    chosen=st.integers(0, 11),
)
async def test_both_directions_equal_plain_python_at_each_moment(
    posts: Shop, writes: list[tuple[Any, Any]], size: int, forwards: bool, chosen: int
) -> None:
    """The order is that of the list; missing and hidden documents are left out.

    States of documents, by one query for now and for each moment, are the same; so are pages of the
    list, now and at one of the moments.
    """
    database = posts.database
    for name in ("posts", "tags"):
        database[name].delete_many({})
    state: State = ({}, {})
    moments: list[tuple[str, dict[str, Any]]] = []
    for key, value in writes:
        kind = int(isinstance(key, ObjectId))
        collection = database[("posts", "tags")[kind]]
        if value is None:
            collection.delete_one({"_id": key})
            state[kind].pop(key, None)  # type: ignore[call-overload]
        else:
            collection.replace_one(
                {"_id": key}, {"hidden": value} if kind else {"tagIds": value}, upsert=True
            )
            state[kind][key] = value  # type: ignore[index]
        at = await posts.gateway.mongo.operation_time()
        token = resume_tokens.token_from_time(at)
        moments.append((resume_tokens.encode(token, posts.gateway.deployment), expected(state)))
    await posts.recorded()
    fields = "posts { totalCount nodes { id } }"
    now = f"{{ posts {{ nodes {{ id tags {{ id }} }} }} tags {{ nodes {{ id {fields} }} }} }}"
    assert shown(await ask(posts, now)) == moments[-1][1]
    then = (
        "query($t: ResumeToken!) { postsAsOf(asOf: {token: $t}) { nodes { document { id tags { id }"
        f" }} }} }} tagsAsOf(asOf: {{token: $t}}) {{ nodes {{ document {{ id {fields} }} }} }} }}"
    )
    for token, right in moments:
        assert shown(await ask(posts, then, t=token), "AsOf") == right
        states = await ask(posts, STATES, at={"token": token})
        assert states.pop("token") == {"resumeToken": token}
        assert shown(states) == right
    states = await ask(posts, STATES)
    del states["token"]
    assert shown(states) == moments[-1][1]
    token, right = moments[chosen % len(moments)]
    for at, state in (({"token": token}, right), (None, moments[-1][1])):
        for key, ids in state["posts"].items():
            assert await walked(posts, key, at, size, forwards) == ids


async def test_lists_of_many_documents_are_one_read(
    posts: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Documents that occur in several lists are read once."""
    database = posts.database
    for name in ("posts", "tags"):
        database[name].delete_many({})
    database["tags"].insert_many({"_id": each, "name": str(n)} for n, each in enumerate(TAGS))
    database["posts"].insert_many({"_id": f"p{n}", "tagIds": TAGS} for n in range(10))
    current = type(context_of(posts.gateway, caller=ANONYMOUS).services.current)
    read, asked = current.by_ids, []

    async def listening(self: Any, entity: Any, ids: Any, *rest: Any, **more: Any) -> Any:
        asked.append((entity.name, len(ids)))
        return await read(self, entity, ids, *rest, **more)

    monkeypatch.setattr(current, "by_ids", listening)
    data = await ask(posts, "{ posts { nodes { tags { name } } } }")
    assert [len(each["tags"]) for each in data["posts"]["nodes"]] == [4] * 10
    assert [name for name, _ in asked] == ["Tag"]


async def test_one_fragment_shows_documents_now_and_then(posts: Shop) -> None:
    """Objects of the two states have different types and ids, also where the query is compiled."""
    database = posts.database
    database["tags"].delete_many({})
    # An earlier test has left versions of the others.
    tag = ObjectId()
    database["tags"].insert_one({"_id": tag, "name": "old", "version": 1})
    at = await posts.gateway.mongo.operation_time()
    database["tags"].update_one({"_id": tag}, {"$set": {"name": "new", "version": 2}})
    await posts.recorded()
    token = resume_tokens.encode(resume_tokens.token_from_time(at), posts.gateway.deployment)
    text = """
    query($at: TimePoint, $id: ID!) {
      page: tagStates(asOf: $at, where: {name: {in: ["old", "new"]}}, orderBy: [{name: DESC}]) {
        __typename
        edges { cursor node { ...row } }
        pageInfo { hasNextPage }
        totalCount
      }
      one: tagState(id: $id, asOf: $at) { ...row }
      none: tagState(id: "ffffffffffffffffffffffff", asOf: $at) { id }
    }
    fragment row on TagState { __typename id documentId version name }
    """
    id_ = str(tag)
    now = {"__typename": "Tag", "id": id_, "documentId": id_, "version": 2, "name": "new"}
    then = {
        "__typename": "TagSnapshot",
        "id": f"{id_}@1",
        "documentId": id_,
        "version": 1,
        "name": "old",
    }
    for _ in range(3):
        for moment, row in [(None, now), ({"token": token}, then)]:
            data = await ask(posts, text, at=moment, id=id_)
            page = data["page"]
            assert [each["node"] for each in page["edges"]] == [row]
            assert page["__typename"] == f"{row['__typename']}Connection"
            assert (page["totalCount"], page["pageInfo"]) == (1, {"hasNextPage": False})
            assert (data["one"], data["none"]) == (row, None)
    # The version of a document by id is awaited, as that of `tag` is.
    assert {place for place, _ in posts.schema.operations.fallbacks.counts} <= {"object"}


async def test_pages_of_a_list_go_on_where_it_was_changed(posts: Shop) -> None:
    """A cursor finds its id again, or the former index of one that is gone."""
    database = posts.database
    for name in ("posts", "tags"):
        database[name].delete_many({})
    database["tags"].insert_many({"_id": each} for each in TAGS)

    async def page(ids: list[ObjectId], **place: Any) -> tuple[list[int], Any]:
        database["posts"].replace_one({"_id": "p"}, {"tagIds": ids}, upsert=True)
        data = await ask(posts, PAGES, id="p", **place)
        found = data["postState"]["tagsConnection"]
        assert found["totalCount"] == len(ids)
        shown = [int(each["node"]["documentId"], 16) for each in found["edges"]]
        return shown, found["pageInfo"]["endCursor"]

    a, b, c, d = TAGS
    shown, cursor = await page([a, b, a, c], first=2)
    assert shown == [0, 1]
    assert (await page([d, a, b, a, c], first=9, after=cursor))[0] == [0, 2]
    assert (await page([a, a, c], first=9, after=cursor))[0] == [0, 2]
    assert (await page([a], first=9, after=cursor))[0] == []
    assert (await page([d, b, a], last=9, before=cursor))[0] == [3]
    context = context_of(posts.gateway, caller=ANONYMOUS)
    for bad in ("x", cursor[:-2]):
        variables = {"id": "p", "first": 1, "after": bad}
        result = await posts.schema.execute(PAGES, variables, context)
        assert result.errors is not None
        assert "expected a cursor of this list" in result.errors[0].message


async def test_pages_of_many_lists_are_one_read(
    posts: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page reads its ids and one more; hidden documents cost further portions."""
    database = posts.database
    for name in ("posts", "tags"):
        database[name].delete_many({})
    database["tags"].insert_many({"_id": each, "hidden": each == TAGS[0]} for each in TAGS)
    database["posts"].insert_many({"_id": f"p{n}", "tagIds": TAGS * 5} for n in range(10))
    current = type(context_of(posts.gateway, caller=ANONYMOUS).services.current)
    read, asked = current.by_ids, []

    async def listening(self: Any, entity: Any, ids: Any, *rest: Any, **more: Any) -> Any:
        asked.append(len(ids))
        return await read(self, entity, ids, *rest, **more)

    monkeypatch.setattr(current, "by_ids", listening)
    text = "{ posts { nodes { tagsConnection(first: 2) { nodes { id } } } } }"
    data = await ask(posts, text)
    assert [len(each["tagsConnection"]["nodes"]) for each in data["posts"]["nodes"]] == [2] * 10
    assert len(asked) == 2


async def test_a_page_of_a_long_list_counts_what_it_reads(posts: Shop) -> None:
    """A total, and ids without documents, take reads that the size of the page does not bound."""
    posts.database["posts"].delete_many({})
    posts.database["posts"].insert_many(
        [{"_id": "a", "tagIds": TAGS}, {"_id": "b", "tagIds": [ObjectId() for _ in range(600)]}]
    )
    limiter = ConcurrencyLimiter(limits=OperationLimits(values=100))
    schema = build_schema(MODEL, limiter=limiter)
    for id_, selection, code in (
        ("a", "totalCount", None),
        ("b", "totalCount", "LIMIT_EXCEEDED"),
        ("b", "nodes { id }", "LIMIT_EXCEEDED"),
    ):
        text = f'{{ post(id: "{id_}") {{ tagsConnection(first: 1) {{ {selection} }} }} }}'
        context = context_of(posts.gateway, caller=ANONYMOUS)
        result = await schema.execute(text, {}, context)
        codes = [(each.extensions or {}).get("code") for each in result.errors or ()]
        assert codes == ([] if code is None else [code])


async def test_a_long_list_of_the_past_is_read_in_portions(posts: Shop) -> None:
    """A task for each id at once would keep other callers waiting."""
    posts.database["posts"].delete_many({})
    ids = [TAGS[0], *(ObjectId() for _ in range(2000)), TAGS[1]]
    for each in TAGS:
        posts.database["tags"].replace_one({"_id": each}, {"hidden": False}, upsert=True)
    posts.database["posts"].insert_one({"_id": "a", "tagIds": ids})
    moment = await posts.gateway.mongo.operation_time()
    token = resume_tokens.encode(resume_tokens.token_from_time(moment), posts.gateway.deployment)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    text = f'{{ postState(id: "a", asOf: {{token: "{token}"}}) {{ tags {{ documentId }} }} }}'
    for _ in range(2):  # by graphql-core, and compiled
        data = await ask(posts, text)
        assert [each["documentId"] for each in data["postState"]["tags"]] == [
            str(TAGS[0]),
            str(TAGS[1]),
        ]
    watching.cancel()
    assert most < 1500
