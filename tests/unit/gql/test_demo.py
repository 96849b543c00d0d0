"""gql.demo: how often the shop is written to."""

from __future__ import annotations

import random
from typing import Any

import click
import pytest
from click.testing import CliRunner

from gql import cli
from gql.demo.writers import Writers


async def test_a_rate_of_none_writes_nothing() -> None:
    """And ends, so that the shop is only served."""
    shop: Any = None
    await Writers(shop, random.Random(1)).run(0)


@pytest.mark.parametrize("rate", ["-1", "nan", "inf", "2000", "much"])
def test_a_rate_that_is_none_is_refused(rate: str) -> None:
    """Before anything is started."""
    command: click.Command = cli.cli.commands["demo"]
    result = CliRunner().invoke(command, ["--rate", rate])
    assert result.exit_code == 2
    assert rate in result.output
