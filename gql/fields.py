"""The fields of types made at run time, and the plain functions of ours that give their values.

`Read` is for what lies in the source already, `Resolve` for what takes arguments or is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from graphql import GraphQLResolveInfo
from strawberry.types.field import StrawberryField
from strawberry.types.info import Info
from strawberry.types.unset import UNSET

from model.entities import Field

__all__ = ["Argument", "FieldInfo", "InputField", "Read", "Resolve"]


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


class Read(StrawberryField):
    """A field whose value lies in the source already.

    Args:
        read: the source -> the value as the API shows it.
        stored: the field of the model whose value in the source's `values` it is.
    """

    def __init__(
        self,
        name: str,
        type_: str,
        description: str | None,
        read: Callable[[Any], Any],
        stored: Field | None = None,
    ) -> None:
        super().__init__(python_name=name, graphql_name=name, description=description)
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
            context that gives the value where it is there without waiting, else GIVEN_UP
            (`gql.generated`).
        stream: true for fields of Subscription, whose function returns an async generator.
    """

    def __init__(
        self,
        name: str,
        type_: str,
        description: str | None,
        resolve: Callable[..., Any],
        arguments: Iterable[Argument] = (),
        *,
        ready: Callable[[Any, Any], Callable[[Any, Any], Any]] | None = None,
        stream: bool = False,
    ) -> None:
        super().__init__(
            python_name=name, graphql_name=name, description=description, is_subscription=stream
        )
        self.type_text = type_
        self.resolve = resolve
        self.ready = ready
        self.declared = tuple(arguments)

    @property
    def is_basic_field(self) -> bool:
        return False

    def get_result(self, source: Any, info: Info | None, args: Any, kwargs: Any) -> Any:
        assert isinstance(info, FieldInfo)
        return self.resolve(source, info.graphql, **kwargs)
