"""The product's surface is that of the snapshots (tests/snapshots/README.md)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import surface
from tests.support.gateway import ROOT
from tests.support.snapshots import SNAPSHOTS, assert_snapshot

SHOP = ROOT / "schema.graphql"
MODELS = {each.stem: each for each in sorted((SNAPSHOTS / "models").glob("*.graphql"))}


def test_the_sdl_of_the_shop_is_the_snapshot() -> None:
    """The whole SDL of the example model is committed."""
    assert_snapshot("schema/shop.graphql", surface.sdl(SHOP))


@pytest.mark.parametrize(("name", "model"), MODELS.items(), ids=MODELS)
def test_the_sdl_of_a_model_is_the_snapshot(name: str, model: Path) -> None:
    """Every directive, layout and scalar of the model language is in one of the models."""
    assert_snapshot(
        f"schema/{name}.graphql", surface.sdl_beside(surface.sdl(SHOP), surface.sdl(model))
    )


def test_the_sdl_with_relay_naming_is_the_snapshot() -> None:
    """The option `--relay` renames ids, and nothing else."""
    relay = surface.sdl(SHOP, relay=True)
    assert_snapshot("schema/shop_relay.graphql", surface.sdl_beside(surface.sdl(SHOP), relay))


@pytest.mark.parametrize(
    ("name", "collect"),
    [
        ("help.txt", surface.help_pages),
        ("error_codes.txt", surface.error_codes),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_texts_for_operators_are_the_snapshot(name: str, collect: Callable[[], str]) -> None:
    """Help and error codes change only on purpose."""
    assert_snapshot(name, collect())
