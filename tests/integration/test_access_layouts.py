"""Row rules for collections that store their versions themselves.

Every read of current documents and of history is compared, for each caller, with one sequence of
writes in which documents change their owner.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.history import row_filtered_pages
from revstream.streams.core import resume_tokens
from tests.support.editing import Row, Shop, open_shop
from tests.support.eventually import eventually
from tests.support.layouts import LAYOUTS, program

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = """
type Note @collection(name: "notes", history: HISTORY, version: "v")
  @access(rows: "{ owner: { eq: $sub } }") { id: ID! owner: String title: String n: Int }
"""
CALLERS = ("ann", "bob")
# Each write of a document: its owner then, None deletes it. `n` is its position.
STORY: list[tuple[str, str | None]] = [
    *(("a", "ann"), ("b", "bob"), ("a", "ann"), ("c", "ann"), ("a", "bob"), ("b", "bob")),
    *(("d", "bob"), ("a", "ann"), ("b", "ann"), ("a", None), ("d", "bob"), ("c", "bob")),
    *(("a", "ann"), ("d", None), ("b", "ann"), ("c", "bob"), ("a", "ann"), ("end", "ann")),
    ("end", "bob"),
]


@dataclass(frozen=True)
class OwnedVersion:
    """One version of the sequence; `before`: the owner before it."""

    key: str
    number: int
    owner: str | None
    before: str | None
    n: int

    @property
    def body(self) -> Row | None:
        return None if self.owner is None else {"owner": self.owner, "title": self.title}

    @property
    def title(self) -> str:
        return f"{self.owner}'s {self.n}"


def story() -> Iterator[OwnedVersion]:
    numbers: dict[str, int] = {}
    owners: dict[str, str | None] = {}
    for n, (key, owner) in enumerate(STORY):
        numbers[key] = numbers.get(key, 0) + 1
        yield OwnedVersion(key, numbers[key], owner, owners.get(key), n)
        owners[key] = owner


VERSIONS = list(story())


@dataclass(kw_only=True, eq=False)
class OwnershipHistory:
    """The running gateway and its subscribers.

    `moments`: the time of each version. `live`: the events of each caller.
    """

    shop: Shop
    began: str
    moments: list[str]
    live: dict[str, list[Row]]

    async def ask(self, caller: str, text: str, **variables: Any) -> Row:
        """Return the data; there may be no errors."""
        context = context_of(self.shop.gateway, caller=Principal(name=caller))
        result = await self.shop.schema.execute(text, variables, context)
        assert not result.errors, result.errors
        assert result.data is not None
        return result.data


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=LAYOUTS)
async def owned(
    request: pytest.FixtureRequest, mongo_uri: str, client: MongoClient[Row]
) -> AsyncIterator[OwnershipHistory]:
    """Write the sequence as another program, recorded and followed by both callers."""
    name = f"told_{uuid4().hex[:8]}"
    model = read_model(MODEL.replace("HISTORY", request.param))
    settings = Settings(quiet_s=0.2)
    async with open_shop(client, mongo_uri, name, settings, model=model) as shop:
        deployment = shop.gateway.deployment
        now = resume_tokens.token_from_time(await shop.gateway.mongo.operation_time())
        following = [asyncio.ensure_future(followed(shop, each)) for each in CALLERS]
        await eventually(lambda: shop.gateway.services.live.following["notes"] == len(CALLERS))
        others = program(request.param, shop.database, "notes")
        for each in VERSIONS:
            others.write(each.key, each.body and {**each.body, "n": each.n})
        live = dict(zip(CALLERS, await asyncio.gather(*following), strict=True))
        await shop.recorded()
        records = {(r["doc"], r["v"]): r["_id"] for r in shop.database["notes.versions"].find()}
        yield OwnershipHistory(
            shop=shop,
            began=resume_tokens.encode(now, deployment),
            moments=[resume_tokens.encode(records[v.key, v.number], deployment) for v in VERSIONS],
            live=live,
        )
    client.drop_database(name)


CHANGES = """subscription($after: ResumeToken) { noteChanges(after: $after) {
  kind transition documentId note { title } before { title } version } }"""


async def followed(shop: Shop, caller: str, after: str | None = None) -> list[Row]:
    """Return the caller's events up to the end of the sequence."""
    context = context_of(shop.gateway, caller=Principal(name=caller))
    results: Any = await shop.schema.subscribe(CHANGES, {"after": after}, context)
    found: list[Row] = []
    count = len(changes(caller))
    async with aclosing(results) as events:
        while len(found) < count:
            result = await anext(events)
            assert not result.errors, result.errors
            if result.data["noteChanges"]["kind"] == "CHANGE":
                found.append(result.data["noteChanges"])
    return found


def changes(caller: str) -> list[Row]:
    """Return the expected events of a caller."""
    made: list[Row] = []
    titles: dict[str, str] = {}
    for each in VERSIONS:
        was, is_ = each.before == caller, each.owner == caller
        if not was and not is_:
            continue
        made.append(
            {
                "kind": "CHANGE",
                "transition": "LEAVE" if not is_ else "STAY" if was else "ENTER",
                "documentId": each.key,
                "note": {"title": each.title} if is_ else None,
                "before": {"title": titles[each.key]} if was and is_ else None,
                "version": each.number if is_ else None,
            }
        )
        titles[each.key] = each.title
    return made


@pytest.mark.parametrize("caller", CALLERS)
async def test_a_subscriber_receives_its_own_rows_live_and_replayed(
    owned: OwnershipHistory, caller: str
) -> None:
    """A document that leaves the rows is a LEAVE without its new content."""
    assert owned.live[caller] == changes(caller)
    assert await followed(owned.shop, caller, owned.began) == changes(caller)


@pytest.mark.parametrize("caller", CALLERS)
async def test_pages_of_versions_hold_the_callers_versions(
    owned: OwnershipHistory, caller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions of one document and of all, page by page, with totals."""
    monkeypatch.setattr(row_filtered_pages, "_PORTION", 3)
    monkeypatch.setattr(row_filtered_pages, "_FEWEST", 2)
    hers = [each for each in VERSIONS if each.owner == caller][::-1]
    shown = """totalCount nodes { documentId version document { title } }
      pageInfo { hasNextPage endCursor }"""
    trail = f"query($after: String) {{ page: noteVersions(first: 2, after: $after) {{ {shown} }} }}"
    assert await walked(owned, caller, trail) == (expected(hers), len(hers))
    present = {each.key: each for each in VERSIONS}
    for key in present:
        text = f"""query($after: String) {{
          note(id: "{key}") {{ page: history(first: 2, after: $after) {{ {shown} }} }} }}"""
        if present[key].owner != caller:
            assert await owned.ask(caller, text) == {"note": None}
            continue
        own = [each for each in hers if each.key == key]
        assert await walked(owned, caller, text) == (expected(own), len(own))


def expected(versions: list[OwnedVersion]) -> list[Row]:
    return [
        {"documentId": each.key, "version": each.number, "document": {"title": each.title}}
        for each in versions
    ]


async def walked(owned: OwnershipHistory, caller: str, text: str) -> tuple[list[Row], int]:
    """Return the items of all pages, and the total of each page."""
    nodes: list[Row] = []
    totals: set[int] = set()
    after = None
    while True:
        data = await owned.ask(caller, text, after=after)
        page = data.get("page") or data["note"]["page"]
        nodes += page["nodes"]
        totals.add(page["totalCount"])
        if not page["pageInfo"]["hasNextPage"]:
            (total,) = totals
            return nodes, total
        after = page["pageInfo"]["endCursor"]


@pytest.mark.parametrize("caller", CALLERS)
async def test_as_of_reads_hold_the_rows_of_the_caller_at_that_time(
    owned: OwnershipHistory, caller: str
) -> None:
    """One document, a page in id order, and one with filter and order."""
    text = """query($id: ID!, $number: Int!, $at: TimePoint!) {
      one: noteVersion(id: $id, asOf: $at) { version document { title } }
      numbered: noteVersion(id: $id, version: $number) { version document { title } }
      all: notesAsOf(asOf: $at, first: 50) { totalCount nodes { documentId } }
      first: notesAsOf(asOf: $at, first: 1) { totalCount nodes { documentId } }
      some: notesAsOf(asOf: $at, where: {n: {gte: 2}}, orderBy: [{n: DESC}]) {
        totalCount nodes { documentId document { title } } } }"""
    standing: dict[str, OwnedVersion] = {}
    for each, moment in zip(VERSIONS, owned.moments, strict=True):
        standing[each.key] = each
        at = {"token": moment}
        found = await owned.ask(caller, text, id=each.key, number=each.number, at=at)
        his = each.owner == caller
        one = {"version": each.number, "document": {"title": each.title}} if his else None
        assert (found["one"], found["numbered"]) == (one, one)
        hers = sorted(key for key, v in standing.items() if v.owner == caller)
        assert [e["documentId"] for e in found["all"]["nodes"]] == hers
        assert [e["documentId"] for e in found["first"]["nodes"]] == hers[:1]
        assert found["all"]["totalCount"] == found["first"]["totalCount"] == len(hers)
        some = [v for v in standing.values() if v.owner == caller and v.n >= 2]
        some.sort(key=lambda v: -v.n)
        assert found["some"] == {
            "totalCount": len(some),
            "nodes": [{"documentId": v.key, "document": {"title": v.title}} for v in some],
        }


@pytest.mark.parametrize("caller", CALLERS)
async def test_diffs_compare_the_callers_versions(owned: OwnershipHistory, caller: str) -> None:
    """A diff and `previous` use the version before, if the caller may see it."""
    text = """query($id: ID!, $number: Int!) { noteVersion(id: $id, version: $number) {
      diff { path before after } changedFields previous { version } } }"""
    for before, each in pairwise(sorted(VERSIONS, key=lambda v: (v.key, v.n))):
        if each.owner != caller:
            continue
        found = (await owned.ask(caller, text, id=each.key, number=each.number))["noteVersion"]
        known = before.key == each.key and before.owner == caller
        assert found["previous"] == ({"version": before.number} if known else None)
        values = {e["path"]: (e["before"], e["after"]) for e in found["diff"] or ()}
        if known:
            assert values == {"title": (before.title, each.title), "n": (before.n, each.n)}
            assert sorted(found["changedFields"]) == ["n", "title"]
        else:
            other = next(name for name in CALLERS if name != caller)
            assert f"{other}'s" not in str(found)


async def test_current_documents_and_writes_follow_the_row_rule(owned: OwnershipHistory) -> None:
    """Hidden documents are not found, none is transferred, and refused writes change nothing."""
    for caller in CALLERS:
        last = {each.key: each for each in VERSIONS}
        hers = sorted(key for key, each in last.items() if each.owner == caller)
        found = await owned.ask(caller, "{ notes { totalCount nodes { id } } }")
        assert found["notes"] == {"totalCount": len(hers), "nodes": [{"id": k} for k in hers]}
    told_so = "__typename ... on WriteError { message }"
    for mutation in (
        'deleteNote(id: "end"{})',
        'updateNote(id: "end", patch: {{title: "x"}}{})',
        'replaceNote(id: "end", document: {{owner: "ann"}}{})',
        'restoreNote(id: "end", version: 1{})',
    ):
        for more in ("", ", expectedVersion: 2"):
            text = f"mutation {{ done: {mutation.format(more)} {{ {told_so} }} }}"
            found = await owned.ask("ann", text)
            assert found["done"]["__typename"] == "DocumentNotFound", (text, found)
    context = context_of(owned.shop.gateway, caller=Principal(name="ann"))
    text = 'mutation { updateNote(id: "a", patch: {owner: "bob"}) { __typename } }'
    result = await owned.shop.schema.execute(text, {}, context)
    assert [(e.extensions or {})["code"] for e in result.errors or ()] == ["FORBIDDEN"]
    text = '{ note(id: "ID") { version title } }'
    assert (await owned.ask("bob", text.replace("ID", "end")))["note"]["version"] == 2
    assert (await owned.ask("ann", text.replace("ID", "a")))["note"]["version"] == 7


async def test_a_document_is_deleted_by_its_owner(owned: OwnershipHistory) -> None:
    """The write itself checks the rule, without waiting for the recorder."""
    made = 'mutation { createNote(id: "ID", document: {owner: "ann"}) { __typename } }'
    gone = 'mutation { done: deleteNote(id: "ID") { __typename } }'
    key = f"made-{uuid4().hex[:6]}"
    await owned.ask("ann", made.replace("ID", key))
    for caller, outcome in (("bob", "DocumentNotFound"), ("ann", "NoteWritten")):
        found = await owned.ask(caller, gone.replace("ID", key))
        assert found["done"]["__typename"] == outcome
    assert (await owned.ask("ann", f'{{ note(id: "{key}") {{ id }} }}'))["note"] is None
