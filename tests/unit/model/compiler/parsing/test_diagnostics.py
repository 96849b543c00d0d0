"""Locations of errors in a model file."""

from __future__ import annotations

import pytest
from graphql.language import ObjectTypeDefinitionNode, Source, parse

from revstream.model.compiler.parsing.diagnostics import Report
from revstream.model.errors import ModelErrors

TEXT = 'type A {\n  "About b."\n  b: Int\n}\n'


def test_an_error_is_located_at_the_start_of_its_node() -> None:
    """Lines and columns count from 1, and the error names its type and field."""
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


def test_a_report_without_errors_raises_nothing() -> None:
    """`raise_if_any` returns when the report is empty."""
    Report(Source(TEXT)).raise_if_any()
