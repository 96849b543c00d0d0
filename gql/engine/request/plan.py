"""Query plans: data that is stored of an operation after its first execution.

Guarantees: a plan belongs to one operation of one document, with one set of values of the variables
in @skip and @include. It depends neither on other variables nor on the caller.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from graphql import DocumentNode, VariableNode, Visitor, visit

from revstream.gql.engine.internals.graphql_core import Details, Path
from revstream.gql.engine.request.selection import Selections

__all__ = ["Plan", "Plans", "Step"]


@dataclass(frozen=True, slots=True)
class Step:
    """Compiled resolution of one field.

    Attributes:
        name: the field's name in the response.
        run: (executor, source, path of the source) -> the completed value, or a coroutine of it.
    """

    name: str
    run: Callable[[Any, Any, Path | None], Any]


class CompiledOperation(Protocol):
    """Query that runs without graphql-core's executor."""

    async def answer(self, context: Any, given: Any, fallbacks: Any, /) -> dict[str, Any] | None:
        """Return the data of the response; None if the executor has to finish it."""
        ...

    def is_short(self, most_bytes: int, /) -> bool:
        """Return whether the response is surely within a size."""
        ...


@dataclass(eq=False, slots=True)
class Plan:
    """Query plan of one operation; filled while the operation is executed.

    Attributes:
        sub_fields: graphql-core's cache of collected fields.
        root: collected fields of the root.
        steps: field steps by the identity of the collected fields, which are stored beside them.
        selections: selections of the operation.
        starts: variables that only say where a subscription begins.
        chooses: these, and variables that only filter the changes of a subscription.
        direct: the compiled query; None if there is none, or not yet.
        tried: compilation was tried.
    """

    sub_fields: dict[Any, Any] = field(default_factory=dict)
    steps: dict[int, tuple[Mapping[str, Details], Sequence[Step]]] = field(default_factory=dict)
    root: dict[str, Details] | None = None
    selections: Selections | None = None
    starts: frozenset[str] | None = None
    chooses: frozenset[str] | None = None
    direct: CompiledOperation | None = None
    tried: bool = False


class Plans:
    """Query plans of one document, by operation and values of its flags.

    Args:
        most: maximum number of plans; each flag doubles their number.
    """

    def __init__(self, document: DocumentNode, *, most: int = 16) -> None:
        self._flags = _flags(document)
        self._plans: dict[tuple[str | None, tuple[bool, ...]], Plan] = {}
        self._most = most

    def plan(self, operation: str | None, variables: Mapping[str, Any]) -> Plan:
        """Return the plan of an operation with these variables.

        Args:
            variables: coerced.
        """
        flags = tuple(bool(variables.get(name)) for name in self._flags) if self._flags else ()
        key = operation, flags
        plan = self._plans.get(key)
        if plan is None:
            plan = Plan()
            if len(self._plans) < self._most:
                self._plans[key] = plan
        return plan


class _Flags(Visitor):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def enter_directive(self, node: Any, *_: Any) -> None:
        values = [each.value for each in node.arguments]
        self.names.update(each.name.value for each in values if isinstance(each, VariableNode))


def _flags(document: DocumentNode) -> Sequence[str]:
    """Return the variables that @skip and @include use."""
    flags = _Flags()
    visit(document, flags)
    return sorted(flags.names)
