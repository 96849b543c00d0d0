"""Limits of one request's document and variables.

Guarantees: a refusal is cheap: tokens are counted before the text is parsed, and the document's
cost is calculated before it is validated (`gql.engine.limits.query_cost`). A message has the actual
value and the maximum.

Source: docs/decisions/0025.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from revstream.gql.engine.limits.query_cost import DocumentCost, OperationCost
from revstream.resolvers.errors import BadUserInput, LimitExceeded

__all__ = ["MAX_REPORTED", "Limits", "check_cost", "check_text", "check_variables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits by setting; `gql.runtime.configuration.settings` describes each; 0: no limit.

    Attributes:
        introspection: queries of the schema are allowed.
    """

    max_document_bytes: int = 100_000
    max_tokens: int = 3000
    max_operations: int = 20
    max_depth: int = 20
    max_fields: int = 2000
    max_root_fields: int = 50
    max_aliases: int = 100
    max_directives: int = 100
    max_cost: int = 10_000
    max_values: int = 100_000
    max_filter_conditions: int = 500
    max_nested: int = 100
    max_list_items: int = 20_000
    max_variable_values: int = 200_000
    max_response_bytes: int = 16 * 1024 * 1024
    introspection: bool = True


# Tokens of graphql-core's lexer; comments are not counted. An unterminated string extends to the
# end of the text, so that nothing is read twice. Only single characters are repeated possessively:
# possessive groups are wrong before CPython 3.11.5 (its issue 106052).
_TOKEN = re.compile(
    r"""[#][^\n\r]*+
    |(-?\d++(?:[.]\d++)?(?:[eE][+-]?\d++)? | \w++ | [.]{3}
      | \"{3}[^"\\]*+(?:(?:\\++(?:\"{3})? | "(?!""))[^"\\]*+)*(?:\"{3} | \Z)
      | "[^"\\\n\r]*+(?:\\.[^"\\\n\r]*+)*"? | [^\s\w,\ufeff])""",
    re.VERBOSE | re.DOTALL,
)
MAX_REPORTED = 10**12
"""Largest number that is reported exactly; JSON has no integers beyond 64 bits."""


def check_text(text: str, limits: Limits) -> None:
    """Refuse a document that would take long to parse.

    Raises:
        LimitExceeded: it is too long, or has too many tokens.
    """
    if len(text) * 4 > limits.max_document_bytes:
        size = len(text.encode("utf-8", "replace"))
        _check("max_document_bytes", size, limits, "bytes of the document", "shorten it")
    if len(text) > limits.max_tokens > 0:
        tokens = sum(map(bool, _TOKEN.findall(text)))
        _check("max_tokens", tokens, limits, "tokens of the document", "shorten it")


def check_cost(
    cost: DocumentCost, operation: str | None, limits: Limits, *, known: bool = False
) -> None:
    """Refuse a document that would take long to validate or to execute.

    Args:
        operation: the name of the operation to be executed.
        known: the document was validated before, so that only limits that depend on variables are
            checked.

    Raises:
        LimitExceeded: a limit is exceeded.
        BadUserInput: it is an introspection query, and introspection is disabled.
    """
    if not known:
        count = len(cost.operations)
        _check("max_operations", count, limits, "operations of the document", "send fewer")
        fields = sum(each.fields for each in cost.operations.values())
        _check(
            "max_fields",
            fields,
            limits,
            "fields of the document, with each spread of a fragment",
            "select fewer",
        )
        for each in cost.operations.values():
            _check_shape(each, limits)
    chosen = cost.operation(operation)
    if chosen is not None:
        _check(
            "max_filter_conditions",
            chosen.conditions,
            limits,
            "conditions of a filter",
            "list values in one condition (in)",
        )
        _check(
            "max_cost",
            chosen.cost,
            limits,
            "cost of the operation, in documents and versions to read and conditions to evaluate",
            "request smaller pages (first, last), or fewer nested ones",
        )
        _check(
            "max_values",
            chosen.values,
            limits,
            "values in the response",
            "request smaller pages (first, last), or fewer fields",
        )


def _check_shape(weight: OperationCost, limits: Limits) -> None:
    if weight.introspects and not limits.introspection:
        raise BadUserInput("__schema and __type: introspection is disabled; remove these fields")
    _check("max_depth", weight.depth, limits, "depth of the operation, in fields", "nest fewer")
    _check(
        "max_root_fields",
        weight.root_fields,
        limits,
        "root fields of the operation",
        "select fewer",
    )
    _check(
        "max_aliases",
        weight.aliases,
        limits,
        "aliases of the operation, with each spread of a fragment",
        "select fewer",
    )
    _check(
        "max_directives",
        weight.directives,
        limits,
        "directives of the operation, with each spread of a fragment",
        "use fewer",
    )
    _check("max_nested", weight.nested, limits, "depth of an argument's value", "nest it less")


def check_variables(variables: Mapping[str, Any] | None, limits: Limits) -> None:
    """Refuse variables that would take long to coerce.

    Raises:
        LimitExceeded: a value is nested too deep, a list is too long, or there are too many values.
    """
    count = 0
    for name, given in (variables or {}).items():
        waiting: list[Iterator[Any]] = [iter((given,))]
        while waiting:
            each = next(waiting[-1], waiting)
            if each is waiting:
                waiting.pop()
                continue
            count += 1
            if isinstance(each, Mapping):
                waiting.append(iter(each.values()))
            elif isinstance(each, list):
                _check(
                    "max_list_items",
                    len(each),
                    limits,
                    f"items of a list in variable ${name[:40]}",
                    "send several lists",
                )
                waiting.append(iter(each))
            else:
                continue
            _check(
                "max_nested",
                len(waiting) - 1,
                limits,
                f"depth of variable ${name[:40]}",
                "nest it less",
            )
    _check("max_variable_values", count, limits, "values in the variables", "send fewer at once")


def _check(limit: str, asked: int, limits: Limits, subject: str, advice: str) -> None:
    bound: int = getattr(limits, limit)
    if not 0 < bound < asked:
        return
    actual = f"{asked:,}" if asked < MAX_REPORTED else f"over {MAX_REPORTED:,}"
    message = f"{subject}: {actual}, maximum is {bound:,}; {advice}"
    raise LimitExceeded(message, limit=limit, asked=min(asked, MAX_REPORTED), bound=bound)
