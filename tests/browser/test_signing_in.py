"""The front page of a gateway that requires authentication and refuses introspection."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect
from pymongo import MongoClient

from tests.conftest import ServedShop
from tests.support.gateway import running_gateway
from tests.support.issuer import Issuer

pytestmark = pytest.mark.asyncio(loop_scope="module")

MODEL = """
type Note @collection(name: "notes") @access(read: ["reader"]) { id: ID! name: String n: Int }
"""
KEY = "0123456789abcdef"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


@pytest.fixture(scope="module", params=[True, False], ids=["introspection", "no introspection"])
def gateway(
    request: pytest.FixtureRequest,
    mongo_uri: str,
    client: MongoClient[dict[str, Any]],
    issuer: Issuer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ServedShop]:
    """Start a gateway with one note, which only readers may see."""
    folder = tmp_path_factory.mktemp("guarded")
    model, keys = folder / "schema.graphql", folder / "keys.toml"
    model.write_text(MODEL)
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    keys.write_text(f'[[keys]]\nsha256 = "{digest}"\nprincipal = "bob"\nroles = ["reader"]\n')
    name = f"signing_{uuid4().hex[:8]}"
    options = [*issuer.options(), "--api-keys", str(keys)]
    options += [] if request.param else ["--no-introspection"]
    with running_gateway(mongo_uri, name, model, *options) as running:
        client[name]["notes"].insert_one({"_id": "a", "name": "First", "n": 1})
        yield ServedShop(running.address, client[name])
    client.drop_database(name)


@pytest.fixture
def expected_error() -> str:
    """Return the pattern of the refused requests, which the browser reports."""
    return r"40[01] \((Unauthorized|Bad Request)\)|WebSocket connection to .* failed"


@pytest.mark.parametrize("kind", ["Bearer token", "API key"])
async def test_a_signed_in_user_sees_the_timeline_and_its_changes(
    page: Page, gateway: ServedShop, issuer: Issuer, kind: str
) -> None:
    """A token or an API key signs in; an invalid one is refused and requested again."""
    secret = KEY if kind == "API key" else issuer.token(roles=["reader"])
    await page.goto("/#/note/a")
    form = page.get_by_role("form", name="Sign in")
    await expect(form).to_be_visible()
    await form.get_by_label("Sign in with").select_option(kind)
    for text in ("nonsense", secret):
        await expect(form).to_be_visible()
        await form.locator("input").fill(text)
        await form.get_by_role("button", name="Sign in").click()
    await expect(page.locator(".versions > li").last).to_contain_text("insert")
    await expect(form).to_have_count(0)
    await expect(page.get_by_text("live", exact=True)).to_be_visible()
    before = await page.locator(".versions > li").count()
    gateway.database["notes"].update_one({"_id": "a"}, {"$inc": {"n": 1}})
    await expect(page.locator(".versions > li")).to_have_count(before + 1)
    kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])"
    assert secret not in await page.evaluate(kept)
    await page.reload()
    await expect(form).to_be_visible()


async def test_an_entity_is_found_by_its_name_without_introspection(
    page: Page, issuer: Issuer, request: pytest.FixtureRequest
) -> None:
    """Without introspection an entity is opened by the name of its root field, else by a tab."""
    await page.goto("/")
    form = page.get_by_role("form", name="Sign in")
    await form.locator("input").fill(issuer.token(roles=["reader"]))
    await form.get_by_role("button", name="Sign in").click()
    if "no introspection" in request.node.name:
        await page.get_by_label("Entity").fill("note")
        await page.get_by_role("button", name="Show").click()
    await (
        page.locator("aside a")
        .filter(has_text="a" if "no intro" in request.node.name else "First")
        .click()
    )
    await expect(page.locator(".versions > li").last).to_contain_text("insert")
