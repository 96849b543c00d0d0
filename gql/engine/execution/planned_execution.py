"""State of one execution that field steps and generated code use."""

from __future__ import annotations

from revstream.gql.engine.internals.graphql_core import CoreExecutor
from revstream.gql.engine.internals.strawberry import strawberry_schema
from revstream.gql.engine.request.context import RequestContext
from revstream.gql.engine.request.plan import Plan
from revstream.gql.observability.fallback_metrics import FallbackCounter

__all__ = ["PlannedExecution"]


class PlannedExecution(CoreExecutor):
    """graphql-core's execution context, with the plan of the operation.

    Attributes:
        context_value: the request context of this execution; None in a query of the schema alone.
    """

    context_value: RequestContext
    plan: Plan

    @property
    def fallbacks(self) -> FallbackCounter:
        """The counter of the schema that is executed."""
        counter: FallbackCounter = strawberry_schema(self.schema).operations.fallbacks
        return counter
