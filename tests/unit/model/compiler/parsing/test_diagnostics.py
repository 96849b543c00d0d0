"""Where a mistake stands."""

from __future__ import annotations

import pytest
from graphql.language import ObjectTypeDefinitionNode, Source, parse

from revstream.model.compiler.parsing.diagnostics import Report
from revstream.model.errors import ModelErrors

TEXT = 'type A {\n  "About b."\n  b: Int\n}\n'


def test_a_mistake_stands_where_its_node_begins() -> None:
    """Line and column count from 1, and the place gives type and field."""
    source = Source(TEXT, "shop.graphql")
    (definition,) = parse(source).definitions
    assert isinstance(definition, ObjectTypeDefinitionNode)
    assert definition.fields
    report = Report(source)
    report.place("A").for_field("b").error(
        definition.fields[0].name, "it is wrong", "make it right"
    )
    with pytest.raises(ModelErrors) as caught:
        report.raise_if_any()
    (error,) = caught.value.errors
    assert (error.filename, error.line, error.column) == ("shop.graphql", 3, 3)
    assert (error.type, error.field) == ("A", "b")


def test_nothing_is_raised_where_nothing_is_wrong() -> None:
    """A report without mistakes is silent."""
    Report(Source(TEXT)).raise_if_any()
