"""Contract test of undocumented members of graphql-core that gql/engine/internals uses."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from graphql import build_schema, parse, pyutils
from graphql.execution import collect_fields, values
from graphql.execution.executor import Executor
from graphql.type import definition

from tests.support.members import check_members

SCHEMA = build_schema("type Query { a: Int } type Subscription { a: Int }")


def test_graphql_core_has_the_members_of_an_executor() -> None:
    """CoreExecutor overrides and calls them."""
    check_members(
        "graphql-core",
        Executor,
        *("build", "build_per_event_executor", "build_resolve_info", "build_response"),
        *("collect_and_execute_subfields", "collect_subfields", "execute_field"),
        *("execute_fields", "execute_operation", "execute_root_grouped_field_set"),
        *("gather_async_work", "handle_field_error", "settle_in_background", "track_async_work"),
    )
    executor: Any = Executor.build(SCHEMA, parse("{ a }"))
    check_members(
        "graphql-core",
        executor,
        *("abort_signal", "async_helpers", "async_work_finished_hook_task", "collected_errors"),
        *("context_value", "hide_suggestions", "hooks", "middleware_manager", "operation"),
        *("_relevant_sub_fields", "schema", "variable_values"),
    )
    check_members("graphql-core", executor.collected_errors, "errors")
    check_members("graphql-core", executor.variable_values, "coerced")


def test_graphql_core_has_the_functions_of_execution() -> None:
    """gql/engine/execution compiles operations with them."""
    check_members(
        "graphql-core",
        import_module("graphql.execution.execute"),
        "create_source_event_stream",
        "map_source_to_response_event",
    )
    check_members("graphql-core", collect_fields, "FieldDetails")
    check_members("graphql-core", values, "VariableValues", "get_argument_values")
    check_members("graphql-core", definition, "GraphQLResolveInfoHelpers")
    helpers: Any = definition.GraphQLResolveInfoHelpers(gather=len, track=len)
    check_members("graphql-core", helpers, "gather", "track")
    check_members("graphql-core", pyutils, "Path", "gather_with_cancel")
    assert pyutils.Path(None, "a", "Query").key == "a"
    check_members(
        "graphql-core", import_module("graphql.utilities.sort_value_node"), "sort_value_node"
    )
