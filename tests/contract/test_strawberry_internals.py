"""Contract test of undocumented members of Strawberry.

The packages gql/engine, gql/schema and gql/endpoint use them.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import strawberry
from strawberry.annotation import StrawberryAnnotation
from strawberry.asgi import GraphQL
from strawberry.http import async_base_view, websocket_origin
from strawberry.schema import schema as schema_module
from strawberry.schema.validation_rules import maybe_null, one_of
from strawberry.subscriptions.protocols.graphql_transport_ws import handlers as transport
from strawberry.subscriptions.protocols.graphql_ws import handlers as legacy
from strawberry.types import ExecutionContext
from strawberry.types.base import StrawberryObjectDefinition
from strawberry.types.enum import EnumValue, StrawberryEnumDefinition
from strawberry.types.field import StrawberryField
from strawberry.types.info import Info
from strawberry.types.union import StrawberryUnion

from tests.support.members import check_members


@strawberry.type
class Query:
    a: int = 1


@strawberry.input(one_of=True)
class OneOf:
    a: int | None = strawberry.UNSET


def test_strawberry_has_the_members_of_a_schema() -> None:
    """Known documents are executed with them, and validated by Strawberry's rules."""
    schema: Any = strawberry.Schema(query=Query)
    check_members(
        "strawberry-graphql",
        schema,
        *("_schema", "execute", "stream", "get_extensions", "process_errors"),
    )
    check_members("strawberry-graphql", schema._schema, "_strawberry_schema")
    check_members("strawberry-graphql", schema_module, "StrawberryGraphQLCoreExecutionContext")
    check_members("strawberry-graphql", maybe_null, "MaybeNullValidationRule")
    check_members("strawberry-graphql", one_of, "OneOfInputValidationRule")
    fields: Any = schema._schema.query_type.fields
    assert "strawberry-definition" in fields["a"].extensions
    given: Any = strawberry.Schema(query=Query, types=[OneOf])
    assert given._schema.type_map["OneOf"].extensions["strawberry-definition"].is_one_of
    context: Any = ExecutionContext(
        query="{ a }",
        schema=schema,
        allowed_operations=[],
        provided_operation_name=None,
    )
    check_members("strawberry-graphql", context, "_provided_operation_name", "operation_extensions")


def test_strawberry_has_the_members_of_an_info() -> None:
    """Field resolvers of the gateway receive graphql-core's info."""
    check_members("strawberry-graphql", SimpleNamespace(**Info.__annotations__), "_raw_info")


def test_strawberry_has_the_members_of_types_built_at_run_time() -> None:
    """gql/schema/common/type_builder.py creates definitions without decorators."""
    check_members("strawberry-graphql", Query, "__strawberry_definition__")
    check_members("strawberry-graphql", StrawberryUnion, "get_type_resolver")
    check_members("strawberry-graphql", StrawberryAnnotation, "evaluate")
    check_members("strawberry-graphql", StrawberryAnnotation("Int"), "raw_annotation")
    check_members("strawberry-graphql", StrawberryField, "get_result", "is_basic_field")
    definition = StrawberryObjectDefinition(
        name="A", is_input=False, is_interface=False, origin=Query, description=None,
        interfaces=[], extend=False, directives=(), is_type_of=None, resolve_type=None,
        fields=[], from_input=None,
    )  # fmt: skip
    check_members("strawberry-graphql", definition, "fields", "interfaces", "from_input")
    values = [EnumValue("A", "A", description=None)]
    enum_definition: Any = StrawberryEnumDefinition(
        wrapped_cls=Query,  # type: ignore[arg-type]
        name="E",
        values=values,
        description=None,
    )
    check_members("strawberry-graphql", enum_definition, "values")


def test_strawberry_has_the_members_of_socket_handlers() -> None:
    """gql/endpoint/websocket.py overrides and calls them."""
    check_members(
        "strawberry-graphql",
        transport.BaseGraphQLTransportWSHandler,
        *("_get_pre_execution_close_reason", "_task_done", "cleanup_operation", "forget_id"),
        *("handle", "handle_connection_init", "handle_task_exception"),
        *("handle_invalid_message", "handle_message", "handle_ping", "handle_subscribe"),
        *("on_request_accepted", "run_operation", "send_message"),
    )
    check_members(
        "strawberry-graphql",
        legacy.BaseGraphQLWSHandler,
        *("handle", "handle_async_results", "handle_connection_init", "handle_message"),
        *("handle_start", "send_message"),
    )
    given: dict[str, Any] = {
        "view": None, "websocket": None, "context": None, "root_value": None,
        "schema": strawberry.Schema(query=Query), "max_subscriptions_per_connection": 1,
    }  # fmt: skip
    modern: Any = transport.BaseGraphQLTransportWSHandler(
        **given, connection_init_wait_timeout=None
    )
    check_members(
        "strawberry-graphql",
        modern,
        *("connection_acknowledged", "connection_init_received", "connection_timed_out"),
        *("connection_init_timeout_task", "connection_init_wait_timeout", "operations"),
        *("max_subscriptions_per_connection", "schema", "websocket"),
    )
    old: Any = legacy.BaseGraphQLWSHandler(**given, keep_alive=False, keep_alive_interval=1)
    check_members(
        "strawberry-graphql",
        old,
        *("connection_acknowledged", "tasks", "schema", "view", "websocket"),
        "max_subscriptions_per_connection",
    )


def test_strawberry_refuses_sockets_of_other_origins() -> None:
    """gql/endpoint/http.py counts them, and settings normalize the allowed origins."""
    check_members("strawberry-graphql", GraphQL, "is_websocket_origin_allowed")
    check_members(
        "strawberry-graphql", async_base_view.AsyncBaseHTTPView, "is_websocket_origin_allowed"
    )
    check_members("strawberry-graphql", websocket_origin, "normalize_allowed_origins")
    found = websocket_origin.normalize_allowed_origins(["https://Example.com:443"])
    assert found == frozenset({"https://example.com"})
