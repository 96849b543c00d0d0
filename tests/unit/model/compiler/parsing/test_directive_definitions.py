"""Agreement of the model language's definition with the dataclasses it is parsed into."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphql import build_schema, parse
from graphql.language import ScalarTypeDefinitionNode

from revstream.model.compiler.loader import read_model
from revstream.model.compiler.parsing.directive_definitions import DIRECTIVES, ENUMS, LANGUAGE
from revstream.model.compiler.validation.reserved_names import ENTITY_FIELDS, FILTER_WORDS
from revstream.model.definition import HistoryKind, Scalar, Storage

REFERENCE = (Path(__file__).parents[5] / "docs" / "reference" / "model.md").read_text()


def test_the_language_is_valid_graphql() -> None:
    """An editor can load the definition."""
    schema = build_schema(LANGUAGE)
    assert {each.name for each in schema.directives} >= set(DIRECTIVES)


def test_every_directive_is_described() -> None:
    """Each directive has a description, which editors show."""
    assert [name for name, each in DIRECTIVES.items() if each.description is None] == []


def test_the_directives_are_those_of_the_design() -> None:
    """The list of directives is complete and has no other entries."""
    assert list(DIRECTIVES) == [
        "collection",
        "layout",
        "stored",
        "discriminator",
        "variant",
        "reference",
        "referencedBy",
        "copy",
        "fence",
        "index",
        "search",
        "unique",
        "access",
        "sink",
    ]


def test_the_enums_are_those_of_the_dataclasses() -> None:
    """Each enum value that can be written can be parsed."""
    assert ENUMS["History"] == tuple(each.value for each in HistoryKind)
    assert ENUMS["Storage"] == tuple(each.value for each in Storage)


def test_the_scalars_are_those_of_the_dataclasses() -> None:
    """GraphQL itself defines five of the scalars."""
    declared = {
        each.name.value
        for each in parse(LANGUAGE).definitions
        if isinstance(each, ScalarTypeDefinitionNode)
    }
    assert declared | {"ID", "String", "Int", "Float", "Boolean"} == {each.value for each in Scalar}


def test_the_reference_has_every_reserved_name() -> None:
    """Directives, scalars and enums are on the page by themselves: tests/test_reference.py."""
    quoted = [f"`{each}`" for each in (*ENTITY_FIELDS, *FILTER_WORDS)]
    assert [each for each in quoted if each not in REFERENCE] == []


@pytest.mark.parametrize("example", REFERENCE.split("```graphql\n")[1:])
def test_the_examples_of_the_reference_are_models(example: str) -> None:
    """Each example on the reference page is a valid model."""
    assert read_model(example.partition("```")[0]).entities
