"""Saved cursors: a client's resume token, stored on the server under a name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.editing import Failed, Shop, lamp

pytestmark = pytest.mark.asyncio(loop_scope="module")

SAVE = "mutation($name: String!, $token: ResumeToken!) { saveCursor(name: $name, token: $token) }"
CHANGES = """
  subscription($id: ID, $cursor: String) {
    productChanges(id: $id, cursor: $cursor) { kind version resumeToken }
  }
"""


async def tokens_of(shop: Shop, id_: str) -> list[str]:
    """Return the resume token of each version of a document, the oldest first."""
    await shop.recorded()
    text = (
        "query($id: ID!) { productVersions(where: {documentId: {eq: $id}}) {"
        " nodes { resumeToken } } }"
    )
    found = await shop.ask(text, id=id_)
    return [each["resumeToken"] for each in found["productVersions"]["nodes"]][::-1]


async def versions_after(shop: Shop, id_: str, cursor: str, count: int) -> list[int]:
    async with shop.changes(CHANGES, id=id_, cursor=cursor) as events:
        found: list[Any] = []
        while len(found) < count:
            event = await anext(events)
            if event["kind"] == "CHANGE":
                found.append(event["version"])
        return found


async def written(shop: Shop) -> tuple[str, list[str]]:
    """Write a product with four versions; returns its id and their tokens."""
    id_ = shop.fresh_id()
    await shop.mutate("createProduct", id=id_, document=lamp(id_))
    for _ in range(3):
        await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
    return id_, await tokens_of(shop, id_)


async def test_a_subscription_resumes_from_a_saved_cursor(shop: Shop) -> None:
    """It starts from the new token once the cursor is saved again."""
    id_, places = await written(shop)
    name = f"mine-{id_}"
    assert await shop.ask(SAVE, name=name, token=places[1]) == {"saveCursor": places[1]}
    assert await versions_after(shop, id_, name, 2) == [3, 4]
    await shop.ask(SAVE, name=name, token=places[2])
    assert await versions_after(shop, id_, name, 1) == [4]


async def test_cursors_of_different_principals_are_independent(shop: Shop) -> None:
    """The same name of another principal is another cursor."""
    id_, places = await written(shop)
    name = f"mine-{id_}"
    await shop.ask(SAVE, name=name, token=places[0])
    await shop.ask(SAVE, author="bob", name=name, token=places[2])
    assert await versions_after(shop, id_, name, 3) == [2, 3, 4]


async def test_an_unknown_cursor_name_is_bad_input(shop: Shop) -> None:
    """A cursor that another principal saved is unknown, too."""
    id_, places = await written(shop)
    await shop.ask(SAVE, author="bob", name=f"bobs-{id_}", token=places[0])
    with pytest.raises(Failed, match="expected the name of a saved cursor"):
        await versions_after(shop, id_, f"bobs-{id_}", 1)


async def test_an_anonymous_caller_has_no_cursors(shop: Shop) -> None:
    """A caller with an empty name has none either: all of them would share their cursors."""
    _, places = await written(shop)
    for nobody in (None, ""):
        for text in (
            f'mutation {{ saveCursor(name: "n", token: "{places[0]}") }}',
            'mutation { removeCursor(name: "n") }',
            "{ savedCursors { name } }",
        ):
            with pytest.raises(Failed) as failed:
                await shop.ask(text, author=nobody)
            assert failed.value.code == "UNAUTHENTICATED"


async def test_names_have_1_to_255_characters(shop: Shop) -> None:
    """Other names are refused, with their length."""
    _, places = await written(shop)
    for name in ("n", "ü" * 255):
        await shop.ask(SAVE, author="len", name=name, token=places[0])
    for name in ("", "z" * 256):
        with pytest.raises(Failed, match=f"{len(name)} characters, expected 1 to 255") as failed:
            await shop.ask(SAVE, author="len", name=name, token=places[0])
        assert failed.value.code == "BAD_USER_INPUT"


async def test_a_caller_lists_and_removes_its_own_cursors(shop: Shop) -> None:
    """Cursors of other principals are not listed."""
    _, places = await written(shop)
    for name, token in (("b", places[1]), ("a", places[0])):
        await shop.ask(SAVE, author="lister", name=name, token=token)
    await shop.ask(SAVE, author="lister2", name="a", token=places[2])
    text = "{ savedCursors { name resumeToken at } }"
    found = (await shop.ask(text, author="lister"))["savedCursors"]
    expected = [("a", places[0]), ("b", places[1])]
    assert [(each["name"], each["resumeToken"]) for each in found] == expected
    remove = 'mutation { removeCursor(name: "a") }'
    assert await shop.ask(remove, author="lister") == {"removeCursor": True}
    assert await shop.ask(remove, author="lister") == {"removeCursor": False}
    found = (await shop.ask(text, author="lister"))["savedCursors"]
    assert [each["name"] for each in found] == ["b"]
    found = (await shop.ask(text, author="lister2"))["savedCursors"]
    assert [each["name"] for each in found] == ["a"]


async def test_the_number_of_cursors_per_caller_is_limited(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Existing cursors can still be moved."""
    monkeypatch.setattr("revstream.resolvers.subscriptions.saved_cursors._MOST", 2)
    _, places = await written(shop)
    for name in ("one", "two", "one"):
        await shop.ask(SAVE, author="many", name=name, token=places[0])
    with pytest.raises(Failed, match="maximum is 2") as failed:
        await shop.ask(SAVE, author="many", name="three", token=places[0])
    assert failed.value.code == "LIMIT_EXCEEDED"
    await shop.ask(SAVE, author="few", name="three", token=places[0])


async def test_a_token_in_the_future_is_neither_saved_nor_used(shop: Shop) -> None:
    """It belongs to a history that no longer exists, as after a restore; `after` refuses it,
    too.
    """
    _, places = await written(shop)
    future = f"F0000000FFFFFFFF~.{places[0].rpartition('.')[2]}"
    with pytest.raises(Failed) as failed:
        await shop.ask(SAVE, author="fay", name="f", token=future)
    assert failed.value.code == "RESUME_TOKEN_INVALID"
    await shop.ask(SAVE, author="ann", name="restored", token=places[0])
    shop.database["revstream.cursors"].update_one(
        {"_id": {"owner": "ann", "name": "restored"}}, {"$set": {"token": "F0000000FFFFFFFF~"}}
    )
    with pytest.raises(Failed) as failed:
        await versions_after(shop, shop.fresh_id(), "restored", 1)
    assert failed.value.code == "RESUME_TOKEN_INVALID"


async def test_cursors_expire_a_year_after_their_last_use(shop: Shop) -> None:
    """Saving and using a cursor both start the year again."""
    id_, places = await written(shop)
    await shop.ask(SAVE, name="used", token=places[0])
    cursors = shop.database["revstream.cursors"]
    mine = {"_id": {"owner": "ann", "name": "used"}}
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    (index,) = [each for each in cursors.list_indexes() if "expireAfterSeconds" in each]
    assert (dict(index["key"]), index["expireAfterSeconds"]) == ({"at": 1}, 365 * 24 * 3600)
    cursors.update_one(mine, {"$set": {"at": long_ago}})
    await versions_after(shop, id_, "used", 1)
    stored = cursors.find_one(mine)
    assert stored is not None
    assert stored["at"] > long_ago


async def test_an_invalid_token_is_not_saved(shop: Shop) -> None:
    """Broken tokens and tokens of other deployments are refused."""
    with pytest.raises(Failed, match="expected one of this service"):
        await shop.ask(SAVE, name="mine", token="x")
    with pytest.raises(Failed, match="of deployment"):
        await shop.ask(SAVE, name="mine", token="6B01733600000004~.elsewhere")
