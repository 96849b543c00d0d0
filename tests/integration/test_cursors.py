"""A client's place in the stream, kept on the server under a name of its own."""

from __future__ import annotations

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
    """Where each version of a document stands, the oldest first."""
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
    """A product with four versions, and where they stand."""
    id_ = shop.fresh_id()
    await shop.mutate("createProduct", id=id_, document=lamp(id_))
    for _ in range(3):
        await shop.mutate("updateProduct", id=id_, increment={"stock": 1})
    return id_, await tokens_of(shop, id_)


async def test_a_subscription_goes_on_where_the_name_was_left(shop: Shop) -> None:
    """And from the new place once it is saved again."""
    id_, places = await written(shop)
    name = f"mine-{id_}"
    assert await shop.ask(SAVE, name=name, token=places[1]) == {"saveCursor": places[1]}
    assert await versions_after(shop, id_, name, 2) == [3, 4]
    await shop.ask(SAVE, name=name, token=places[2])
    assert await versions_after(shop, id_, name, 1) == [4]


async def test_names_of_different_people_are_different_places(shop: Shop) -> None:
    """What another one saves under the same name moves nobody else."""
    id_, places = await written(shop)
    name = f"mine-{id_}"
    await shop.ask(SAVE, name=name, token=places[0])
    await shop.ask(SAVE, author="bob", name=name, token=places[2])
    assert await versions_after(shop, id_, name, 3) == [2, 3, 4]


async def test_a_name_that_nobody_saved_is_bad_input(shop: Shop) -> None:
    """Also where somebody else did."""
    id_, places = await written(shop)
    await shop.ask(SAVE, author="bob", name=f"bobs-{id_}", token=places[0])
    with pytest.raises(Failed, match="no cursor named"):
        await versions_after(shop, id_, f"bobs-{id_}", 1)


async def test_a_place_that_is_none_is_not_saved(shop: Shop) -> None:
    """Neither a broken token nor one of another deployment."""
    with pytest.raises(Failed, match="is not a resume token"):
        await shop.ask(SAVE, name="mine", token="x")
    with pytest.raises(Failed, match="was made by deployment"):
        await shop.ask(SAVE, name="mine", token="6B01733600000004~.elsewhere")
