"""Idempotency keys: a repeated mutation is not executed again and has the same result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from pymongo import MongoClient

from tests.support.editing import MODEL_TEXT, Failed, Row, Shop, lamp, pick
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import LEGACY, TRANSPORT, Protocol, open_socket

pytestmark = pytest.mark.asyncio(loop_scope="module")

Client = MongoClient[dict[str, Any]]


async def twice(shop: Shop, name: str, **given: Any) -> list[Row]:
    key = uuid4().hex
    return [await shop.mutate(name, key=key, **given) for _ in range(2)]


async def test_a_created_document_is_created_once(shop: Shop) -> None:
    """A generated id is the same in the second result."""
    sku = shop.fresh_id()
    first, second = await twice(shop, "createProduct", document=lamp(sku), comment="new")
    assert second == {**first, "resumeToken": second["resumeToken"]}
    assert shop.database["products"].count_documents({"sku": sku}) == 1


async def test_an_update_is_executed_once(shop: Shop) -> None:
    """The second result is the first state, whatever was written since."""
    id_, key = await shop.create(), uuid4().hex
    given = {"id": id_, "increment": {"stock": 1}}
    first = await shop.mutate("updateProduct", key=key, **given)
    await shop.mutate("updateProduct", id=id_, patch={"name": "later"})
    second = await shop.mutate("updateProduct", key=key, **given)
    assert (second["version"], second["product"]) == (2, first["product"])
    assert pick(await shop.history(id_), "version") == [1, 2, 3]


async def test_a_repeated_update_with_an_expected_version_is_no_conflict(shop: Shop) -> None:
    """The first execution has replaced the expected version."""
    id_ = await shop.create()
    first, second = await twice(
        shop, "updateProduct", id=id_, expectedVersion=1, patch={"name": "x"}
    )
    assert (first["__typename"], second["version"]) == ("ProductWritten", 2)


async def test_a_deletion_is_executed_once(shop: Shop) -> None:
    """The second time the document is missing, and that is not a refusal."""
    id_ = await shop.create()
    first, second = await twice(shop, "deleteProduct", id=id_, comment="gone")
    assert (first["version"], second["version"]) == (2, 2)
    assert (second["__typename"], second["product"]) == ("ProductWritten", None)


async def test_a_repeated_deletion_keeps_a_restored_document(shop: Shop) -> None:
    """A document that was restored meanwhile stays."""
    id_, key = await shop.create(), uuid4().hex
    await shop.mutate("deleteProduct", key=key, id=id_)
    await shop.mutate("restoreProduct", id=id_, version=1)
    result = await shop.mutate("deleteProduct", key=key, id=id_)
    assert (result["version"], result["product"]) == (2, None)
    assert await shop.present(id_) is not None


async def test_a_draft_is_proposed_published_and_rejected_once(shop: Shop) -> None:
    """The second results equal the first ones."""
    id_ = await shop.create()
    first, second = await twice(shop, "proposeProduct", id=id_, patch={"name": "x"})
    assert first == second
    first, second = await twice(shop, "publishProduct", id=id_, draft=1)
    assert (first["version"], second["version"]) == (2, 2)
    await shop.mutate("proposeProduct", id=id_, patch={"name": "y"})
    first, second = await twice(shop, "rejectProduct", id=id_, draft=2)
    assert first == second
    assert pick(await shop.drafts(id_), "status") == ["PUBLISHED", "REJECTED"]
    assert pick(await shop.history(id_), "version") == [1, 2]


async def test_a_comment_is_created_once(shop: Shop) -> None:
    """The second result equals the first one."""
    id_ = await shop.create()
    first, second = await twice(shop, "commentOnProduct", id=id_, version=1, text="hm")
    assert first == second
    assert pick(await shop.history(id_), "comments") == [[{"text": "hm"}]]


async def test_a_refused_mutation_is_executed_again(shop: Shop) -> None:
    """It has changed nothing, so its key stays unused."""
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
    """Other arguments make another mutation, too; nothing is written."""
    id_, key = await shop.create(), uuid4().hex
    await shop.mutate("updateProduct", key=key, id=id_, increment={"stock": 1})
    with pytest.raises(Failed) as caught:
        await shop.mutate(name, key=key, id=id_, **given)
    assert caught.value.code == "BAD_USER_INPUT"
    assert pick(await shop.history(id_), "version", "comments") == [(1, []), (2, [])]


async def test_another_authors_key_is_another_key(shop: Shop) -> None:
    """A caller can neither use up another caller's key nor read its result."""
    id_, key = await shop.create(), uuid4().hex
    for author in ("ann", "bob", None):
        given = {"id": id_, "increment": {"stock": 1}}
        await shop.mutate("updateProduct", author=author, key=key, **given)
    assert pick(await shop.history(id_), "author") == ["ann", "ann", "bob", None]


@pytest.mark.parametrize("expected", [{}, {"expectedVersion": 1}], ids=["any", "compared"])
async def test_one_of_several_concurrent_mutations_with_one_key_is_executed(
    shop: Shop, expected: Row
) -> None:
    """All of them get its result."""
    id_, key = await shop.create(), uuid4().hex
    given = {"id": id_, "increment": {"stock": 1}, **expected}
    results = await asyncio.gather(
        *(shop.mutate("updateProduct", key=key, **given) for _ in range(4))
    )
    assert [each["version"] for each in results] == [2] * 4
    assert pick(await shop.history(id_), "version") == [1, 2]


async def test_several_mutations_of_one_request_share_a_key(shop: Shop) -> None:
    """The key is for the request, and each mutation is executed once."""
    id_, key = await shop.create(), uuid4().hex
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
    """Start the real command with a header for the author."""
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
    # With a version field: the number is known before the archive has it.
    document = {"_id": id_, "version": 1, "sku": id_, "name": "n", "price": 1, "stock": 0}
    products.insert_one({**document, "tags": []})
    return id_


@pytest.mark.parametrize("way", ["header", "extensions"])
async def test_a_key_is_sent_over_http(served: tuple[RunningGateway, Any], way: str) -> None:
    """It is a header, or an extension of the request."""
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
    """It is an extension; the next mutation on the socket has none, or its own."""
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
