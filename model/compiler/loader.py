"""Read a schema.graphql: the one way to a `Model`.

Guarantees: either a model that the rest of revstream can rely on without checking again, or every
mistake of the file at once. A syntax error hides what stands after it, so that one comes alone.
"""

from __future__ import annotations

from graphql.error import GraphQLSyntaxError
from graphql.language import DocumentNode, Source, parse

from revstream.model.compiler.builder import build_model
from revstream.model.compiler.parsing.declarations import read_declarations
from revstream.model.compiler.parsing.diagnostics import Report
from revstream.model.compiler.parsing.unions import join_unions
from revstream.model.compiler.validation.access import check_access
from revstream.model.compiler.validation.collections import check_collections
from revstream.model.compiler.validation.copies import check_copies
from revstream.model.compiler.validation.embedding import check_nesting
from revstream.model.compiler.validation.fields import check_fields
from revstream.model.compiler.validation.indexes import check_indexes
from revstream.model.compiler.validation.layouts import check_layouts
from revstream.model.compiler.validation.references import check_relations
from revstream.model.compiler.validation.reserved_names import check_names
from revstream.model.compiler.validation.search import check_search
from revstream.model.compiler.validation.sinks import check_sinks
from revstream.model.definition import Model

__all__ = ["read_model"]


def read_model(text: str, *, filename: str = "schema.graphql") -> Model:
    """The model that `text` describes; `filename` is only named in errors.

    Raises:
        ModelErrors: Everything that is wrong, in the order of the lines.
    """
    report = Report(Source(text, filename))
    document = _parse(report)
    declarations = join_unions(read_declarations(document, report))
    check_names(declarations, report)
    check_collections(declarations)
    check_fields(declarations)
    check_relations(declarations)
    check_copies(declarations)
    check_indexes(declarations)
    check_search(declarations)
    check_layouts(declarations)
    check_access(declarations)
    check_sinks(declarations)
    check_nesting(declarations, report)
    report.raise_if_any()
    return build_model(declarations)


def _parse(report: Report) -> DocumentNode:
    try:
        return parse(report.source)
    except GraphQLSyntaxError as error:
        location = error.locations[0] if error.locations else report.start
        lines = report.source.body.splitlines()
        line = lines[location.line - 1].strip() if location.line <= len(lines) else ""
        problem = error.message.removeprefix("Syntax Error: ").rstrip(".")
        if "<EOF>" in problem:
            problem = "the file ends in the middle of a type"
            if not any(each.partition("#")[0].strip() for each in lines):
                problem = "the file declares nothing"
                location, line = report.start, ""
        report.add(
            location,
            f"{problem[:1].lower()}{problem[1:]}" + (f", in: {line[:60]}" if line else ""),
            _mend_syntax(problem),
        )
        raise report.failure() from None


def _mend_syntax(problem: str) -> str:
    if "declares nothing" in problem:
        return 'declare a type: type Product @collection(name: "products") { id: ID! name: String }'
    if "ends in the middle" in problem:
        return "add the missing bracket, brace or quote"
    if "Expected ':'" in problem:
        return "write a field as name: Type"
    if "Expected Name, found '}'" in problem:
        return "put at least one field or value between { and }"
    return "correct the line; the rest of the file is checked after that"
