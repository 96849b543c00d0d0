"""GraphiQL and the checkpoints of a quiet subscription, on a gateway that sends many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from playwright.async_api import Page, WebSocket, expect
from pymongo import MongoClient

from tests.conftest import ServedShop
from tests.support.eventually import eventually
from tests.support.gateway import running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = 'type Note @collection(name: "notes") { id: ID! name: String }'
RESPONSE = ".graphiql-response .view-lines"


@pytest.fixture(scope="module")
def gateway(
    mongo_uri: str, client: MongoClient[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServedShop]:
    """Start a gateway that sends a checkpoint after a third of a second without events."""
    model = tmp_path_factory.mktemp("quiet") / "schema.graphql"
    model.write_text(MODEL)
    name = f"checkpoints_{uuid4().hex[:8]}"
    with running_gateway(mongo_uri, name, model, "--quiet-s", "0.3") as running:
        yield ServedShop(running.address, client[name])
    client.drop_database(name)


async def run(page: Page, query: str) -> None:
    """Open GraphiQL with this query, and run it."""
    await page.goto("/graphql#query=" + quote(query))
    await expect(page.locator(".graphiql-query-editor .view-lines")).to_contain_text("subscription")
    async with page.expect_websocket():
        await page.click(".graphiql-execute-button")


async def test_a_checkpoint_does_not_replace_the_last_change(
    page: Page, gateway: ServedShop
) -> None:
    """It would show null for everything that was selected, since it has a token only."""
    checkpoints: list[str] = []

    def heard(message: str | bytes) -> None:
        if "CHECKPOINT" in str(message):
            checkpoints.append(str(message))

    def opened(socket: WebSocket) -> None:
        socket.on("framereceived", heard)

    page.on("websocket", opened)
    await run(page, "subscription { noteChanges { documentId note { name } } }")
    # The first checkpoint says that the subscription has begun.
    await eventually(lambda: len(checkpoints) > 0)
    gateway.database["notes"].insert_one({"_id": "n1", "name": "A note"})
    await expect(page.locator(RESPONSE)).to_contain_text("A note")
    before = len(checkpoints)
    await eventually(lambda: len(checkpoints) > before + 1)
    await expect(page.locator(RESPONSE)).to_contain_text("A note")
    await expect(page.locator(RESPONSE)).not_to_contain_text("CHANGE")


async def test_a_subscription_that_selects_the_kind_shows_checkpoints(page: Page) -> None:
    """So does one that selects the token."""
    await run(page, "subscription { noteChanges { kind documentId } }")
    await expect(page.locator(RESPONSE)).to_contain_text("CHECKPOINT")
