"""What is kept of an operation once it was executed, so that the next time it need not be found out
again.

Guarantees: a plan belongs to one operation of one document under one choice of the flags that @skip
and @include look at; nothing in it depends on other variables, or on who asks.

Source: docs/decisions/0027-compiled-operations.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from graphql import DocumentNode, VariableNode, Visitor, visit
from graphql.execution.collect_fields import FieldDetails
from graphql.pyutils import Path

from revstream.gql.engine.request.selection import Selections

__all__ = ["Details", "Plan", "Plans", "Step"]

Details: TypeAlias = list[FieldDetails]


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
    """Query that is answered without an executor."""

    async def answer(self, context: Any, given: Any, fallbacks: Any, /) -> dict[str, Any] | None:
        """Return the data of the response; None where the executor has to find it."""
        ...

    def is_short(self, most_bytes: int, /) -> bool:
        """Return whether the response is surely within so many bytes."""
        ...


@dataclass(eq=False, slots=True)
class Plan:
    """Of one operation; filled as it is executed.

    Attributes:
        sub_fields: graphql-core's memory of the fields that it has collected.
        root: the fields collected of the root.
        steps: by the identity of fields collected, which are kept alive beside them.
        selections: what the operation selects.
        starts: variables that say where a subscription begins, and nothing else. chooses: these,
            and those that only say which changes concern it.
        direct: the query without an executor; None where there is no such thing, or not yet.
        tried: whether that was looked into.
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
    """Those of one document: one per operation and choice of its flags.

    Args:
        most: flags double their number.
    """

    def __init__(self, document: DocumentNode, *, most: int = 16) -> None:
        self._flags = _flags(document)
        self._plans: dict[tuple[str | None, tuple[bool, ...]], Plan] = {}
        self._most = most

    def of(self, operation: str | None, variables: Mapping[str, Any]) -> Plan:
        """Args:
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
    """The variables that @skip and @include look at."""
    flags = _Flags()
    visit(document, flags)
    return sorted(flags.names)
