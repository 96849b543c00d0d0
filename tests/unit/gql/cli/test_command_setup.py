"""Reading of a model by the commands."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from revstream.gql.cli.command_setup import load_model


def test_a_row_rule_that_fits_no_caller_stops_the_start(tmp_path: Path) -> None:
    """The message names the file, the type, the value and what is expected."""
    model = tmp_path / "schema.graphql"
    rule = "{ at: { near: { point: { longitude: 9, latitude: 8 }, maxDistance: 0 } } }"
    model.write_text(
        f'type Note @collection(name: "notes") @access(rows: "{rule}") {{ id: ID! at: Point }}'
    )
    with pytest.raises(click.UsageError) as refused:
        load_model(model)
    assert refused.value.message == (
        f"model: {model}: Note: @access(rows:) Note.at.near.maxDistance: 0, expected metres above "
        "0, at most 20,037,392; correct the rule"
    )
