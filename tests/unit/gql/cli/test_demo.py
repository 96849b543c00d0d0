"""`revstream demo`: the rate of writes to the shop."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from revstream.gql.cli import main
from revstream.gql.cli.demo import demo_settings
from revstream.gql.cli.demo.data import beginnings
from revstream.gql.cli.demo.writers import Writers
from revstream.gql.runtime.configuration.settings import Settings


async def test_a_rate_of_zero_writes_nothing() -> None:
    """The writers end, so that the shop is only served."""
    shop: Any = None
    await Writers(shop, random.Random(1)).run(0)


@pytest.mark.parametrize("rate", ["-1", "nan", "inf", "2000", "much"])
def test_an_invalid_rate_is_refused(rate: str) -> None:
    """It is refused before anything starts."""
    command: click.Command = main.cli.commands["demo"]
    result = CliRunner().invoke(command, ["--rate", rate])
    assert result.exit_code == 2
    assert rate in result.output


def test_it_takes_every_option_of_serve() -> None:
    """It has one option of its own."""
    serve, demo = (
        {each.name for each in main.cli.commands[name].params} for name in ("serve", "demo")
    )
    assert demo - serve == {"rate"}
    assert serve <= demo


def test_its_default_settings_are_the_shop() -> None:
    """It starts a MongoDB of its own unless a URI is set."""
    alone = demo_settings(Settings(schema=None, database="shop"))  # type: ignore[arg-type]
    assert (alone.schema.name, alone.mongodb_uri) == ("schema.graphql", None)
    assert alone.embedded is not None
    given = Settings(schema=Path("mine.graphql"), mongodb_uri="mongodb://host/")
    assert demo_settings(given) == given


def test_the_shop_leaves_copies_to_revstream() -> None:
    """A product inserted with its copy has a second version in which no field differs."""
    assert not any("supplierName" in product for product in beginnings()["products"])
