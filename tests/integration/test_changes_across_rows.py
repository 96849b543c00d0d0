"""Changes after a version that a row rule hides from the caller.

A document that enters the caller's rows is shown as new, and nothing reveals the fields that differ
from the hidden state.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from pymongo import MongoClient

from revstream.gql.runtime.asgi_app import context_of
from revstream.model.compiler.loader import read_model
from revstream.resolvers.access.principal import Principal
from tests.support.editing import Row, Shop, open_shop

pytestmark = pytest.mark.asyncio(loop_scope="module")


def model(storage: str) -> str:
    return f"""
    type Invoice @collection(name: "invoices", version: null, storage: {storage})
      @access(rows: "{{ owner: {{ eq: $sub }} }}") {{
      id: ID! owner: String! title: String amount: Int note: String
    }}
    """


ANN, BOB = Principal(name="ann"), Principal(name="bob")
# Ann owns it, then bob, with a new title and amount; then ann again, with a new note.
STORY: tuple[dict[str, Any], ...] = (
    {"owner": "bob"},
    {"title": "what bob wrote", "amount": 7},
    {"owner": "ann"},
    {"note": "n"},
)
EVERYTHING = ["amount", "owner", "title"]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["FULL", "DELTA"])
async def shop(
    request: pytest.FixtureRequest, mongo_uri: str, client: MongoClient[Row]
) -> AsyncIterator[Shop]:
    """Run a gateway over one invoice, which goes from ann to bob and back."""
    name = f"across_{uuid4().hex[:8]}"
    async with open_shop(client, mongo_uri, name, model=read_model(model(request.param))) as opened:
        invoices = opened.database.invoices
        invoices.insert_one({"_id": "x", "owner": "ann", "title": "t1", "amount": 1})
        for each in STORY:
            invoices.update_one({"_id": "x"}, {"$set": each})
        await opened.recorded()
        yield opened
    client.drop_database(name)


async def ask(shop: Shop, caller: Principal, text: str) -> Any:
    result = await shop.schema.execute(text, {}, context_of(shop.gateway, caller=caller))
    assert not result.errors, result.errors
    assert result.data is not None
    (found,) = result.data.values()
    return found


SHOWN = "version changedFields diff { path kind }"


def check(versions: list[dict[str, Any]]) -> None:
    """Check ann's versions 1, 4 and 5: in the fourth all fields are new to her."""
    changed = {each["version"]: sorted(each["changedFields"]) for each in versions}
    assert changed == {1: EVERYTHING, 4: EVERYTHING, 5: ["note"]}
    for each in versions:
        assert sorted(change["path"] for change in each["diff"]) == changed[each["version"]]


@pytest.mark.parametrize(
    "text",
    [
        f'{{ invoice(id: "x") {{ history {{ nodes {{ {SHOWN} }} }} }} }}',
        f'{{ invoice(id: "x") {{ history(first: 50) {{ totalCount nodes {{ {SHOWN} }} }} }} }}',
        f"{{ invoiceVersions {{ totalCount nodes {{ {SHOWN} }} }} }}",
    ],
    ids=["history", "history with total", "trail"],
)
async def test_after_a_hidden_version_all_fields_count_as_changed(shop: Shop, text: str) -> None:
    """changedFields and diff agree, also for a compiled query."""
    for _ in range(3):
        found = await ask(shop, ANN, text)
        check(found.get("history", found)["nodes"])


async def test_pages_that_begin_or_end_at_a_hidden_version_agree(shop: Shop) -> None:
    """The result does not depend on `diff` or other fields that load the version before."""
    text = '{ invoice(id: "x") { history(first: 1, where: {version: {eq: 4}}) { nodes { %s } } } }'
    found = await ask(shop, ANN, text % "changedFields")
    assert sorted(found["history"]["nodes"][0]["changedFields"]) == EVERYTHING
    one = '{ invoiceVersion(id: "x", version: 4) { changedFields previous { version } } }'
    found = await ask(shop, ANN, one)
    assert (sorted(found["changedFields"]), found["previous"]) == (EVERYTHING, None)


@pytest.mark.parametrize(
    ("field", "numbers"), [("title", [4, 1]), ("amount", [4, 1]), ("owner", [4, 1]), ("note", [5])]
)
async def test_a_filter_by_changed_field_agrees_with_changed_fields(
    shop: Shop, field: str, numbers: list[int]
) -> None:
    """Versions and total agree."""
    where = f'where: {{changedField: "{field}"}}'
    text = f"{{ invoiceVersions({where}) {{ totalCount nodes {{ version }} }} }}"
    found = await ask(shop, ANN, text)
    assert [each["version"] for each in found["nodes"]] == numbers
    assert found["totalCount"] == len(numbers)


async def test_blame_uses_visible_versions_only(shop: Shop) -> None:
    """Fields of a document that entered the rows are blamed on that version."""
    text = '{ invoice(id: "x") { blame { path value version { version changedFields } } } }'
    found = await ask(shop, ANN, text)
    told = {each["path"]: each["version"]["version"] for each in found["blame"]}
    assert told == {"owner": 4, "title": 4, "amount": 4, "note": 5}


async def test_the_other_owner_sees_the_versions_between(shop: Shop) -> None:
    """Bob sees the two versions between; in the first of them all fields are new."""
    found = await ask(shop, BOB, f"{{ invoiceVersions {{ nodes {{ {SHOWN} }} }} }}")
    changed = {each["version"]: sorted(each["changedFields"]) for each in found["nodes"]}
    assert changed == {2: EVERYTHING, 3: ["amount", "title"]}
