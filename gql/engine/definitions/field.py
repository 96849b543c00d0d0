"""The fields of types made at run time, and the plain functions of ours that give their values.

`Read` is for what lies in the source already, `Resolve` for what takes arguments or is fetched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from graphql import GraphQLField, GraphQLResolveInfo
from strawberry.types.field import StrawberryField
from strawberry.types.info import Info
from strawberry.types.unset import UNSET

from revstream.model.definition import Field

__all__ = [
    "Argument",
    "CompiledRootField",
    "CompleteValue",
    "FieldInfo",
    "IdOnlyField",
    "InputField",
    "Read",
    "Resolve",
    "computed_field",
    "field_of",
    "internal_name",
]


@dataclass(frozen=True, slots=True)
class Argument:
    """Of a field. Given to its function under the name in snake case, `from` as `from_`; left out
    where it was not given."""

    name: str
    type: str
    description: str
    default: object = UNSET


@dataclass(frozen=True, slots=True)
class InputField:
    """Of an input type."""

    name: str
    type: str
    description: str


class FieldInfo(Info[Any, Any]):
    """Strawberry's Info, with graphql-core's, which knows the syntax tree."""

    @property
    def graphql(self) -> GraphQLResolveInfo[Any]:
        return self._raw_info


class IdOnlyField(Protocol):
    """A field of documents whose value takes no more than their `_id`, at one place of a query: it
    is read for many at once, and beside the documents."""

    @property
    def nodes(self) -> Sequence[Any]:
        """Where it is selected."""

    @property
    def read(self) -> Callable[[Any, Sequence[Any]], Awaitable[Sequence[Any]]]:
        """(context, `_id`s) -> for each what `ready` then has, or the error."""


class CompiledRootField(Protocol):
    """A root field with what is selected below it, compiled
    (`gql.engine.execution.compiled_query`).

    Attributes:
        growth: bytes that the response has at most for each byte that is read for the field; None
            where that is not known.
    """

    @property
    def growth(self) -> float | None: ...

    @property
    def read(self) -> Callable[..., Awaitable[Any]]:
        """(graphql-core's info, arguments by keyword) -> what it takes to answer; None: null.
        Raises as the field's own function."""

    @property
    def made(self) -> Callable[[Any, Any], Any]:
        """(what was read, context) -> what the response has, or FALLBACK
        (`gql.engine.execution.compiled_object`)."""

    def record(self, found: Any, info: Any) -> Any:
        """What the field's own function would have given, for the executor to go on with."""


@dataclass(frozen=True, slots=True)
class CompleteValue:
    """Of a field that is there without waiting: a function of the source and the context that gives
    what the response has of it, or FALLBACK (`gql.engine.execution.compiled_object`)."""

    make: Callable[[Any, Any], Any]


class Read(StrawberryField):
    """A field whose value lies in the source already.

    Args:
        read: the source -> the value as the API shows it.
        stored: the field of the model whose value in the source's `values` it is.
        shown_as: its name in the API, where that is another one (`gql.schema.common.id_naming`).
    """

    def __init__(
        self,
        name: str,
        type_: str,
        description: str | None,
        read: Callable[[Any], Any],
        stored: Field | None = None,
        *,
        shown_as: str | None = None,
    ) -> None:
        super().__init__(python_name=name, graphql_name=shown_as or name, description=description)
        self.type_text = type_
        self.read = read
        self.stored = stored

    def get_result(self, source: Any, info: Info | None, args: Any, kwargs: Any) -> Any:
        return self.read(source)


class Resolve(StrawberryField):
    """A field that takes arguments, or whose value has to be fetched.

    Args:
        resolve: the source, graphql-core's info, arguments by keyword -> the value, or an awaitable
            of it.
        ready: the executor, where the field is selected -> a function of the source and the
            context that gives the value where it is there without waiting, else FALLBACK
            (`gql.engine.execution.compiled_object`); or one that gives the whole of it.
        prepare: of a field of Query: the executor, where the field is selected -> what is left to
            do for each request; None where there is no short way.
        beside: what the operation selects, where of it the field is, and what its arguments are
            made by (`gql.engine.definitions.arguments`).
        stream: true for fields of Subscription, whose function returns an async generator.
        cost: how many documents it counts as, where it is no page.
    """

    def __init__(
        self,
        name: str,
        type_: str,
        description: str | None,
        resolve: Callable[..., Any],
        arguments: Iterable[Argument] = (),
        *,
        ready: Callable[[Any, Any], Callable[[Any, Any], Any] | CompleteValue] | None = None,
        prepare: Callable[[Any, Any], CompiledRootField | None] | None = None,
        beside: Callable[[Any, Any, Any], IdOnlyField] | None = None,
        stream: bool = False,
        cost: int = 1,
    ) -> None:
        super().__init__(
            python_name=name, graphql_name=name, description=description, is_subscription=stream
        )
        self.cost = cost
        self.type_text = type_
        self.resolve = resolve
        self.ready = ready
        self.prepare = prepare
        self.beside = beside
        self.declared = tuple(arguments)

    @property
    def is_basic_field(self) -> bool:
        return False

    def get_result(self, source: Any, info: Info | None, args: Any, kwargs: Any) -> Any:
        assert isinstance(info, FieldInfo)
        return self.resolve(source, info.graphql, **kwargs)


def field_of(definition: GraphQLField | None) -> Any:
    """Strawberry's field that graphql-core's was made of: a `Read` or a `Resolve`, but for
    introspection's."""
    return None if definition is None else definition.extensions.get("strawberry-definition")


def internal_name(type_: Any, name: str) -> str:
    """Return the name that code knows a field of an object type by, whatever the API calls it."""
    made = field_of(type_.fields.get(name))
    return name if made is None else str(made.python_name)


def computed_field(
    name: str, type_: str, description: str | None, tell: Callable[[Any, Any], Any]
) -> Resolve:
    """A field whose value is made of the source and the context, without waiting."""
    return Resolve(
        name,
        type_,
        description,
        lambda source, info: tell(source, info.context),
        ready=lambda executor, details: tell,
    )
