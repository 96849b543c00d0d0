"""Cache of validated documents, and the checks before execution: limits, cost, validation.

Clients send the same documents repeatedly, and these checks take most of the time of a small query.

Guarantees: only valid documents are stored, with a maximum number and a maximum of characters. A
document beyond the limits is refused before validation. One `Documents` serves one schema, whose
rules its documents were validated by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from graphql import DocumentNode, GraphQLError, GraphQLSchema, OperationDefinitionNode, validate
from strawberry.extensions import SchemaExtension
from strawberry.types.graphql import OperationType

from revstream.gql.engine.definitions.arguments import CoercedVariables
from revstream.gql.engine.execution.compiled_query import Coerce, compile_coercion
from revstream.gql.engine.execution.executor import unstorable_text
from revstream.gql.engine.hints.errors import hint_in_document
from revstream.gql.engine.internals.graphql_core import coerce_variables
from revstream.gql.engine.internals.strawberry import VALIDATION_RULES, graphql_schema
from revstream.gql.engine.limits.document_limits import (
    MAX_REPORTED,
    Limits,
    check_cost,
    check_text,
    check_variables,
)
from revstream.gql.engine.limits.field_merging import RULES
from revstream.gql.engine.limits.persisted_documents import Persisted
from revstream.gql.engine.limits.query_cost import CostCalculator, DocumentCost
from revstream.gql.engine.limits.schema_only import asks_schema_only
from revstream.gql.engine.request.plan import Plans
from revstream.gql.observability.operation_metrics import kind_of
from revstream.gql.observability.tracing import describe_operation
from revstream.streams.core import tracing
from revstream.streams.core.errors import GatewayError
from revstream.streams.core.lru_cache import LruCache

__all__ = ["CheckedDocuments", "Documents", "KnownDocument", "KnownOperation"]

# Maximum number of validation errors: finding suggestions for each takes time.
_MOST_ERRORS = 20
_RULES = (*RULES, *VALIDATION_RULES)


@dataclass(slots=True)
class KnownOperation:
    """An operation of a stored document.

    Attributes:
        name: its name, or None.
        kind_name: `query`, `mutation` or `subscription`.
        coerce: see `gql.engine.execution.compiled_query`.
        fits: it is within the limits for all variables.
        schema_only: it selects nothing but the schema.
    """

    document: KnownDocument
    kind: OperationType
    node: OperationDefinitionNode
    coerce: Coerce
    fits: bool = False
    name: str | None = field(init=False)
    kind_name: str = field(init=False)
    schema_only: bool = field(init=False)

    def __post_init__(self) -> None:
        # Precomputed: looking these up takes time in each request.
        self.name = None if self.node.name is None else self.node.name.value
        self.kind_name = self.kind.value
        self.schema_only = asks_schema_only(self.document.document, self.node)

    def given(self, schema: GraphQLSchema, variables: Mapping[str, Any]) -> CoercedVariables | None:
        """Coerce the variables by graphql-core; None if they are invalid."""
        if unstorable_text(variables) is not None:
            return None
        return coerce_variables(schema, self.node.variable_definitions or (), variables)


class KnownDocument:
    """A validated document.

    Attributes:
        cost: None if it depends on variables.
        operations: by name; the only operation also by None.
    """

    __slots__ = ("cost", "document", "operations", "plans")

    def __init__(self, document: DocumentNode, cost: DocumentCost | None) -> None:
        self.document = document
        self.cost = cost
        self.plans = Plans(document)
        self.operations: dict[str | None, KnownOperation] = {}
        every = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
        for each in every:
            kind = OperationType(each.operation.value)
            known = KnownOperation(self, kind, each, compile_coercion(each))
            if known.name is not None:
                self.operations[known.name] = known
            if len(every) == 1:
                self.operations[None] = known


class Documents:
    """Validated documents of one schema, and the limits for all documents.

    Args:
        persisted: documents that clients name instead of sending them.
        most: maximum number of stored documents.
        most_characters: maximum characters of all their texts; a syntax tree takes about 50 times
            as many bytes.
    """

    def __init__(
        self,
        limits: Limits,
        persisted: Persisted,
        *,
        most: int = 500,
        most_characters: int = 500_000,
    ) -> None:
        self.limits = limits
        self._persisted = persisted
        self.known = LruCache[str, KnownDocument](most=most, most_size=most_characters)

    def find(
        self, query: str | None, extensions: Mapping[str, Any] | None
    ) -> tuple[str | None, KnownDocument | None]:
        """Return the text of a request's document, and the stored document, if there is one.

        Args:
            query: the text that was sent.

        Raises:
            LimitExceeded: it is not stored, and would take long to parse.
            PersistedQueryNotFound, BadUserInput, Forbidden: see `Persisted.text_of`.
        """
        text = self._persisted.text_of(query, extensions)
        if text is None:
            return None, None
        found = self.known.get(text)
        if found is None:
            check_text(text, self.limits)
        return text, found

    def cost(
        self,
        document: KnownDocument | DocumentNode,
        variables: Mapping[str, Any] | None,
        calculator: CostCalculator,
    ) -> DocumentCost:
        """Return the cost of a document with these variables.

        Raises:
            LimitExceeded: the variables are too many, or nested too deep.
            BadUserInput: see `CostCalculator.calculate`.
        """
        check_variables(variables, self.limits)
        if not isinstance(document, KnownDocument):
            return calculator.calculate(document, variables or {})
        return document.cost or calculator.calculate(document.document, variables or {})


class CheckedDocuments(SchemaExtension):
    """Strawberry extension that checks limits, and parses and validates new documents only.

    A request with `{"cost": true}` in its `extensions` gets the operation's cost in the response.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._known: KnownDocument | None = None
        self._cost: DocumentCost | None = None

    def on_parse(self) -> Iterator[None]:
        context = self.execution_context
        if context.query is not None:
            self._known = self._documents.known.get(context.query)
            if self._known is not None:
                context.graphql_document = self._known.document
        yield

    def on_validate(self) -> Iterator[None]:
        context = self.execution_context
        document = context.graphql_document
        assert document is not None
        if tracing.installed() is not None:
            describe_operation(kind_of(context), context.operation_name)
        try:
            self._check(document)
        except GatewayError as exc:
            errors = [GraphQLError(exc.message, original_error=exc)]
        else:
            errors = [] if self._known else self._validate(document)
        # A list, even if it is empty, tells Strawberry that validation is done.
        context.pre_execution_errors = errors
        if self._known is not None and context.context is not None:
            context.context = replace(context.context, plans=self._known.plans)
        yield

    def _check(self, document: DocumentNode) -> None:
        context, documents = self.execution_context, self._documents
        calculator: CostCalculator = context.schema.cost_calculator  # type: ignore[attr-defined]
        known = self._known
        self._cost = documents.cost(known or document, context.variables, calculator)
        name = context.operation_name
        check_cost(self._cost, name, documents.limits, known=known is not None)

    def _validate(self, document: DocumentNode) -> list[GraphQLError]:
        context = self.execution_context
        schema, suggests = graphql_schema(context.schema), self._documents.limits.introspection
        errors = validate(
            schema,
            document,
            _RULES,
            max_errors=_MOST_ERRORS,
            hide_suggestions=not suggests,
        )
        if not errors:
            cost = self._cost
            if cost is not None and cost.varies:
                cost = None
            text = context.query or ""
            self._known = KnownDocument(document, cost)
            self._documents.known.put(text, self._known, len(text))
        elif suggests:
            hint_in_document(schema, document, errors)
        return errors

    def get_results(self) -> dict[str, Any]:
        asked = self.execution_context.operation_extensions
        if not isinstance(asked, Mapping) or asked.get("cost") is not True:
            return {}
        weight = self._cost and self._cost.operation(self.execution_context.operation_name)
        if not weight:
            return {}
        limits = self._documents.limits
        return {
            "cost": {
                "cost": min(weight.cost, MAX_REPORTED),
                "maxCost": limits.max_cost,
                "values": min(weight.values, MAX_REPORTED),
                "maxValues": limits.max_values,
            }
        }
