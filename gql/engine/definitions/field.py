"""Fields of types that are built at run time, with the plain functions that return their values.

`Read` is for values that are in the source object, `Resolve` for values that take arguments or have
to be read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from graphql import GraphQLField, GraphQLInputField
from strawberry.types.unset import UNSET

from revstream.gql.engine.internals.strawberry import FieldInfo, FunctionField, definition_of_field
from revstream.model.definition import Field

__all__ = [
    "Argument",
    "CompiledRootField",
    "CompleteValue",
    "IdOnlyField",
    "InputField",
    "Read",
    "Resolve",
    "computed_field",
    "follows_reference",
    "internal_name",
    "strawberry_field",
]


@dataclass(frozen=True, slots=True)
class Argument:
    """Argument of a field.

    It is passed to the function under its name in snake case (`from` as `from_`), and omitted if
    the query does not pass it.
    """

    name: str
    type: str
    description: str
    default: object = UNSET


@dataclass(frozen=True, slots=True)
class InputField:
    """Field of an input type."""

    name: str
    type: str
    description: str
    follows: bool = False
    """Whether it leads to the documents of a reference, in a filter or in groups."""


class IdOnlyField(Protocol):
    """One selection of a field whose value needs only the document's `_id`.

    It is read for many documents at once, at the same time as the documents' references.
    """

    @property
    def nodes(self) -> Sequence[Any]:
        """The selections of the field."""

    @property
    def read(self) -> Callable[[Any, Sequence[Any]], Awaitable[Sequence[Any]]]:
        """(context, `_id`s) -> for each the value that `ready` uses, or the error."""


class CompiledRootField(Protocol):
    """Root field with its selection, compiled (`gql.engine.execution.compiled_query`).

    Attributes:
        growth: maximum bytes of the response per byte that is read for the field; None if unknown.
    """

    @property
    def growth(self) -> float | None: ...

    @property
    def read(self) -> Callable[..., Awaitable[Any]]:
        """(graphql-core's info, keyword arguments) -> data for `render`; None means null.

        Raises the same errors as the field's function.
        """

    @property
    def render(self) -> Callable[[Any, Any], Any]:
        """(data, context) -> the field's part of the response, or FALLBACK."""

    def record(self, found: Any, info: Any) -> Any:
        """Return the value that the field's function would return, for the executor."""


@dataclass(frozen=True, slots=True)
class CompleteValue:
    """A field whose part of the response a function renders, without awaiting.

    Attributes:
        make: (source, context) -> the part of the response, or FALLBACK.
    """

    make: Callable[[Any, Any], Any]


class Read(FunctionField):
    """A field whose value is in the source object.

    Args:
        read: the source -> the value as the API shows it.
        stored: the field of the model; its value is in the source's `values`.
        shown_as: its name in the API, if it is a different one (`gql.schema.common.id_naming`).
        counted: true for a list whose length an argument of the parent's field bounds; the cost of
            the operation counts its items there.
    """

    takes_info = False

    def __init__(
        self,
        name: str,
        type_: str,
        description: str | None,
        read: Callable[[Any], Any],
        stored: Field | None = None,
        *,
        shown_as: str | None = None,
        counted: bool = False,
    ) -> None:
        super().__init__(python_name=name, graphql_name=shown_as or name, description=description)
        self.type_text = type_
        self.read = read
        self.stored = stored
        self.counted = counted

    def value(self, source: Any, info: FieldInfo | None, arguments: Mapping[str, Any]) -> Any:
        return self.read(source)


class Resolve(FunctionField):
    """A field that takes arguments, or whose value has to be read.

    Args:
        resolve: (source, graphql-core's info, keyword arguments) -> the value, or an awaitable of
            it.
        ready: (executor, selections of the field) -> a function (source, context) that returns the
            value if it is available without awaiting, otherwise FALLBACK; or a `CompleteValue`.
        prepare: of a field of Query: (executor, selections of the field) -> the compiled field;
            None if it cannot be compiled.
        id_only: (selections of the operation, selections of the field, its compiled arguments) ->
            how its values are read ahead.
        stream: true for fields of Subscription, whose function returns an async generator.
        cost: the number of documents that it counts as, if it is not a page.
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
        id_only: Callable[[Any, Any, Any], IdOnlyField] | None = None,
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
        self.id_only = id_only
        self.declared = tuple(arguments)

    def value(self, source: Any, info: FieldInfo | None, arguments: Mapping[str, Any]) -> Any:
        assert info is not None
        return self.resolve(source, info.graphql, **arguments)


def strawberry_field(definition: GraphQLField | None) -> Any:
    """Return the `Read` or `Resolve` of a graphql-core field; None for introspection fields."""
    return None if definition is None else definition_of_field(definition)


def follows_reference(definition: GraphQLInputField) -> bool:
    """Return whether a field of an input type leads to the documents of a reference."""
    return bool(definition_of_field(definition).metadata.get("follows"))


def internal_name(type_: Any, name: str) -> str:
    """Return the internal name of a field of an object type, from its name in the API."""
    made = strawberry_field(type_.fields.get(name))
    return name if made is None else str(made.python_name)


def computed_field(
    name: str, type_: str, description: str | None, tell: Callable[[Any, Any], Any]
) -> Resolve:
    """Create a field whose value is computed from the source and the context, without awaiting."""
    return Resolve(
        name,
        type_,
        description,
        lambda source, info: tell(source, info.context),
        ready=lambda executor, details: tell,
    )
