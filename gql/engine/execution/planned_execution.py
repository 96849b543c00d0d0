"""State of one execution that field steps and generated code use."""

from __future__ import annotations

from typing import Any

from strawberry.schema.schema import StrawberryGraphQLCoreExecutionContext

from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.plan import Plan
from revstream.gql.observability.fallback_metrics import FallbackCounter

__all__ = ["PlannedExecution"]


class PlannedExecution(StrawberryGraphQLCoreExecutionContext):
    """graphql-core's execution context, with the plan of the operation.

    Attributes:
        context_value: the request context of this execution; None in a query of the schema alone.
    """

    context_value: RequestContext
    plan: Plan

    @property
    def fallbacks(self) -> FallbackCounter:
        """The counter of the schema that is executed."""
        schema: Any = self.schema
        counter: FallbackCounter = schema._strawberry_schema.operations.fallbacks
        return counter
