"""A refused EventSource: it cannot send an Authorization header, and sees no status."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Browser
from pymongo import MongoClient

from tests.support.beginning import begin_new
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.issuer import Issuer

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'
# Settled once it is open, or closed for good.
LISTEN = """path => new Promise(resolve => {
  const source = new EventSource(path)
  const heard = []
  source.addEventListener("next", event => {
    heard.push(JSON.parse(event.data))
    source.close()
    resolve([source.readyState, heard.length])
  })
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) resolve([source.readyState, heard.length])
  }
})"""
CLOSED = 2
PATH = "/graphql?query=subscription{thingChanges{kind}}"


@pytest.fixture
def guarded(
    mongo_uri: str, client: MongoClient[dict[str, Any]], tmp_path: Path
) -> Iterator[RunningGateway]:
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    name = f"event_source_{uuid4().hex[:8]}"
    begin_new(mongo_uri, name, model)
    options = Issuer(tmp_path / "jwks.json").options()
    with running_gateway(mongo_uri, name, model, *options) as running:
        yield running
    client.drop_database(name)


async def test_a_refused_event_source_does_not_reconnect(
    browser: Browser, guarded: RunningGateway
) -> None:
    """A refused EventSource stays closed after a 401 of the gateway and after a 503 of a proxy.

    An interruption of a stream that is open is another matter.
    """
    page = await browser.new_page(base_url=guarded.address)
    statuses: list[int] = []
    page.on("response", lambda it: statuses.append(it.status) if PATH[:8] in it.url else None)
    await page.goto("/livez")
    assert await page.evaluate(LISTEN, PATH) == [CLOSED, 0]
    await page.route(
        "**/graphql*", lambda route: route.fulfill(status=503, headers={"retry-after": "1"})
    )
    assert await page.evaluate(LISTEN, PATH) == [CLOSED, 0]
    assert statuses == [401, 503]
    await page.context.close()
