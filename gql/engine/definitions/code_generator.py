"""Generator of Python functions for parts of a response.

All generated code of the engine is compiled here. A generated function returns `FALLBACK` for a
value that it does not handle (`gql.engine.definitions.value_tests`).

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from bson.errors import BSONError
from graphql import GraphQLError

from revstream.streams.core.errors import GatewayError

__all__ = ["UNUSUAL", "CodeGenerator", "RowGenerator", "compile_function"]

UNUSUAL = (
    ArithmeticError,
    AttributeError,
    BSONError,
    GatewayError,
    GraphQLError,
    LookupError,
    TypeError,
    ValueError,
)
"""Exceptions that unusual data raises in generated code.

Any other one is a fault of the code: it is logged and counted
(`gql.observability.fallback_metrics`)."""


def compile_function(parameters: str, lines: Sequence[str], names: Mapping[str, Any]) -> Any:
    """Compile a function from the lines of its body.

    Args:
        parameters: its parameters, as in `def`.
        lines: its body, indented from column 0.
        names: the objects that the body names.
    """
    body = "\n".join(f"    {line}" for line in lines)
    text = f"def generated({parameters}):\n{body}\n"
    # Only names of a request are in the text, as literals; GraphQL's grammar bounds them.
    scope = {**names, "UNUSUAL": UNUSUAL}
    exec(compile(text, "<generated>", "exec"), scope)  # noqa: S102
    return scope["generated"]


class CodeGenerator:
    """Builder of one function that returns a dict, line by line.

    Args:
        names: the objects that the function names; more are added as it is built.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.names = dict(names)
        self._items: list[str] = []
        self._lines: list[str] = []
        self._space = ""

    def item(self, key: str, expression: str) -> None:
        """Add an entry of the returned dict."""
        self._items.append(f"{key!r}: {expression}")

    def line(self, text: str) -> None:
        """Add a line at the current indentation."""
        self._lines.append(self._space + text)

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Indent the lines that are added inside the block."""
        self._space += "    "
        try:
            yield
        finally:
            self._space = self._space[4:]

    @property
    def _dict(self) -> str:
        return f"{{{', '.join(self._items)}}}"

    def compile(self, parameters: str) -> Any:
        """Compile the function. It returns `FALLBACK` where a line raises one of `UNUSUAL`."""
        lines = [
            "try:",
            *(f"    {line}" for line in self._lines),
            f"    return {self._dict}",
            "except UNUSUAL:",
            "    return FALLBACK",
        ]
        return compile_function(parameters, lines, self.names)


class RowGenerator(CodeGenerator):
    """Builder of one function that returns a list of dicts, one per row of a page.

    For each row the lines read values, then the tests decide whether the row is usual. An unusual
    row is rendered by the expression `unusual` instead.

    Args:
        columns: sequences of one entry per row, by the variable that holds the row's entry.
    """

    def __init__(self, names: Mapping[str, Any], columns: Mapping[str, str]) -> None:
        super().__init__(names)
        self._columns = dict(columns)
        self._tests: list[str] = []
        self._head: list[str] = []

    def column(self, prefix: str, expression: str) -> str:
        """Add a sequence that is computed once for all rows.

        Returns:
            The variable of the row's entry.
        """
        var = f"{prefix}{len(self._columns)}"
        self._columns[var] = expression
        return var

    def value(self, expression: str) -> str:
        """Read a value of the row into a variable, and return the variable's name."""
        var = f"a{len(self._lines)}"
        self.line(f"{var} = {expression}")
        return var

    def test(self, condition: str) -> None:
        """Add a condition that a usual row fulfils."""
        self._tests.append(condition)

    def head(self, line: str) -> None:
        """Add a line that runs once, before the rows."""
        self._head.append(line)

    def compile_rows(self, parameters: str, *, unusual: str) -> Any:
        """Compile the function. It returns `FALLBACK` where an unusual row has no rendering.

        Args:
            unusual: the rendering of an unusual row, or `FALLBACK`.
        """
        each, rows = ", ".join(self._columns), ", ".join(self._columns.values())
        if len(self._columns) > 1:
            rows = f"zip({rows}, strict=True)"
        lines = [
            "rendered = []",
            "add = rendered.append",
            *self._head,
            f"for {each} in {rows}:",
            "    try:",
            *(f"        {line}" for line in self._lines),
            f"        if {' and '.join(self._tests) or 'True'}:",
            f"            add({self._dict})",
            "            continue",
            "    except UNUSUAL:",
            "        pass",
            f"    one = {unusual}",
            "    if one is FALLBACK: return FALLBACK",
            "    add(one)",
            "return rendered",
        ]
        return compile_function(parameters, lines, self.names)
