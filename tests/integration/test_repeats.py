"""Idempotency keys: a mutation that is sent again is not done again, and answers as it did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient

from tests.support.editing import MODEL_TEXT, Failed, Row, Shop, lamp, tell
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

pytestmark = pytest.mark.asyncio(loop_scope="module")

Client = MongoClient[dict[str, Any]]


async def twice(shop: Shop, name: str, **given: Any) -> list[Row]:
    key = uuid4().hex
    return [await shop.mutate(name, key=key, **given) for _ in range(2)]


async def test_a_created_document_is_created_once(shop: Shop) -> None:
    """Also where the id is made up: the second answer has the first one's."""
    sku = shop.fresh_id()
    first, second = await twice(shop, "createProduct", document=lamp(sku), comment="new")
    assert second == {**first, "resumeToken": second["resumeToken"]}
    assert shop.database["products"].count_documents({"sku": sku}) == 1


async def test_an_update_is_made_once(shop: Shop) -> None:
    """And answers with what the first one left, whatever has been written since."""
    id_, key = await shop.made(), uuid4().hex
    given = {"id": id_, "increment": {"stock": 1}}
    first = await shop.mutate("updateProduct", key=key, **given)
    await shop.mutate("updateProduct", id=id_, patch={"name": "later"})
    second = await shop.mutate("updateProduct", key=key, **given)
    assert (second["version"], second["product"]) == (2, first["product"])
    assert tell(await shop.history(id_), "version") == [1, 2, 3]


async def test_a_compared_update_is_no_conflict_with_itself(shop: Shop) -> None:
    """The version expected is not there any more the second time, because of the first."""
    id_ = await shop.made()
    first, second = await twice(
        shop, "updateProduct", id=id_, expectedVersion=1, patch={"name": "x"}
    )
    assert (first["__typename"], second["version"]) == ("ProductWritten", 2)


async def test_a_deletion_is_made_once(shop: Shop) -> None:
    """The second time there is nothing to delete, and that is no refusal."""
    id_ = await shop.made()
    first, second = await twice(shop, "deleteProduct", id=id_, comment="gone")
    assert (first["version"], second["version"]) == (2, 2)
    assert (second["__typename"], second["product"]) == ("ProductWritten", None)


async def test_a_deletion_does_not_delete_what_came_after_it(shop: Shop) -> None:
    """A document that was restored meanwhile stays."""
    id_, key = await shop.made(), uuid4().hex
    await shop.mutate("deleteProduct", key=key, id=id_)
    await shop.mutate("restoreProduct", id=id_, version=1)
    result = await shop.mutate("deleteProduct", key=key, id=id_)
    assert (result["version"], result["product"]) == (2, None)
    assert await shop.present(id_) is not None


async def test_a_draft_is_proposed_published_and_rejected_once(shop: Shop) -> None:
    """The second answers are the first ones."""
    id_ = await shop.made()
    first, second = await twice(shop, "proposeProduct", id=id_, patch={"name": "x"})
    assert first == second
    first, second = await twice(shop, "publishProduct", id=id_, draft=1)
    assert (first["version"], second["version"]) == (2, 2)
    await shop.mutate("proposeProduct", id=id_, patch={"name": "y"})
    first, second = await twice(shop, "rejectProduct", id=id_, draft=2)
    assert first == second
    assert tell(await shop.drafts(id_), "status") == ["PUBLISHED", "REJECTED"]
    assert tell(await shop.history(id_), "version") == [1, 2]


async def test_a_comment_is_made_once(shop: Shop) -> None:
    """The second answer is the first one."""
    id_ = await shop.made()
    first, second = await twice(shop, "commentOnProduct", id=id_, version=1, text="hm")
    assert first == second
    assert tell(await shop.history(id_), "comments") == [[{"text": "hm"}]]


async def test_a_refused_mutation_is_tried_anew(shop: Shop) -> None:
    """It has changed nothing, so that its key is as good as new."""
    id_, key = shop.fresh_id(), uuid4().hex
    given = {"id": id_, "patch": {"name": "x"}}
    refused = await shop.mutate("updateProduct", key=key, **given)
    assert refused["__typename"] == "DocumentNotFound"
    await shop.mutate("createProduct", id=id_, document=lamp(id_))
    result = await shop.mutate("updateProduct", key=key, **given)
    assert (result["__typename"], result["version"]) == ("ProductWritten", 2)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("updateProduct", {"increment": {"stock": 2}}),
        ("updateProduct", {"increment": {"stock": 1}, "comment": "other"}),
        ("deleteProduct", {}),
        ("commentOnProduct", {"version": 1, "text": "x"}),
    ],
)
async def test_another_mutation_under_the_same_key_is_bad_input(
    shop: Shop, name: str, given: Row
) -> None:
    """Another one is one with other arguments, too; nothing is written."""
    id_, key = await shop.made(), uuid4().hex
    await shop.mutate("updateProduct", key=key, id=id_, increment={"stock": 1})
    with pytest.raises(Failed) as caught:
        await shop.mutate(name, key=key, id=id_, **given)
    assert caught.value.code == "BAD_USER_INPUT"
    assert tell(await shop.history(id_), "version", "comments") == [(1, []), (2, [])]


async def test_another_authors_key_is_another_key(shop: Shop) -> None:
    """Nobody can take a key from somebody else, or read what became of theirs."""
    id_, key = await shop.made(), uuid4().hex
    for author in ("ann", "bob", None):
        given = {"id": id_, "increment": {"stock": 1}}
        await shop.mutate("updateProduct", author=author, key=key, **given)
    assert tell(await shop.history(id_), "author") == ["ann", "ann", "bob", None]


@pytest.mark.parametrize("expected", [{}, {"expectedVersion": 1}], ids=["any", "compared"])
async def test_of_several_at_once_with_one_key_one_writes(shop: Shop, expected: Row) -> None:
    """All of them get its answer."""
    id_, key = await shop.made(), uuid4().hex
    given = {"id": id_, "increment": {"stock": 1}, **expected}
    results = await asyncio.gather(
        *(shop.mutate("updateProduct", key=key, **given) for _ in range(4))
    )
    assert [each["version"] for each in results] == [2] * 4
    assert tell(await shop.history(id_), "version") == [1, 2]


async def test_several_mutations_of_one_request_are_told_apart(shop: Shop) -> None:
    """One key is for the request, and each of them is made once."""
    id_, key = await shop.made(), uuid4().hex
    text = """
      mutation($id: ID!) {
        a: updateProduct(id: $id, increment: {stock: 1}) { ... on ProductWritten { version } }
        b: updateProduct(id: $id, increment: {stock: 1}) { ... on ProductWritten { version } }
      }
    """
    for _ in range(2):
        result = await shop.ask(text, key=key, id=id_)
        assert result == {"a": {"version": 2}, "b": {"version": 3}}


@pytest.fixture(scope="module")
def served(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningGateway, Client]]:
    """The real command, which believes a header that says who writes."""
    path = tmp_path_factory.mktemp("model") / "schema.graphql"
    path.write_text(MODEL_TEXT)
    name = f"repeats_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, path, "--author-header", "x-author") as gateway:
        yield gateway, client[name]["products"]  # type: ignore[misc]
    client.drop_database(name)


INCREMENT = """
  mutation($id: ID!) {
    updateProduct(id: $id, increment: {stock: 1}) { ... on ProductWritten { version } }
  }
"""


def stocked(products: Any) -> str:
    id_ = uuid4().hex
    # Counted: what the archive has yet to say of it is then known all the same.
    document = {"_id": id_, "version": 1, "sku": id_, "name": "n", "price": 1, "stock": 0}
    products.insert_one({**document, "tags": []})
    return id_


@pytest.mark.parametrize("way", ["header", "extensions"])
async def test_a_key_is_sent_over_http(served: tuple[RunningGateway, Any], way: str) -> None:
    """As a header, or among the extensions of the request."""
    gateway, products = served
    id_, key = stocked(products), uuid4().hex
    for _ in range(2):
        request: Row = {"query": INCREMENT, "variables": {"id": id_}}
        headers = {"x-author": "ann"}
        if way == "header":
            headers["idempotency-key"] = key
        else:
            request["extensions"] = {"idempotencyKey": key}
        response = await asyncio.to_thread(
            httpx.post, f"{gateway.address}/graphql", json=request, headers=headers, timeout=60
        )
        assert response.json() == {"data": {"updateProduct": {"version": 2}}}
    assert products.find_one({"_id": id_})["stock"] == 1


@pytest.mark.parametrize("protocol", [TRANSPORT, LEGACY])
async def test_a_key_is_sent_over_a_websocket(
    served: tuple[RunningGateway, Any], protocol: Protocol
) -> None:
    """Among the extensions; the mutation after it on the same socket has none, or its own."""
    gateway, products = served
    id_, key = stocked(products), uuid4().hex
    start, data = ("start", "data") if protocol == LEGACY else ("subscribe", "next")
    versions = []
    async with open_socket(gateway.address, protocol) as socket:
        for number, extensions in enumerate(
            ({"idempotencyKey": key}, {"idempotencyKey": key}, None, {"idempotencyKey": key})
        ):
            payload = {"query": INCREMENT, "variables": {"id": id_}}
            if extensions is not None:
                payload["extensions"] = extensions
            await socket.send({"id": str(number), "type": start, "payload": payload})
            answer, end = await socket.receive(), await socket.receive()
            assert (answer["type"], end["type"]) == (data, "complete"), json.dumps(answer)
            versions.append(answer["payload"]["data"]["updateProduct"]["version"])
    assert versions == [2, 2, 3, 2]
    assert products.find_one({"_id": id_})["stock"] == 2
