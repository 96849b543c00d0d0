"""What is done with a document before it is executed: weighed, validated, and kept where it was
found valid. Clients send the same ones again and again, and this is most of what a small query
costs.

Guarantees: only documents that were found valid are kept; no more of them than so many, and so many
characters in all. What is beyond the limits is refused before it is validated. One `Documents`
serves one schema, whose rules they were validated by.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from graphql import DocumentNode, GraphQLError, GraphQLSchema, OperationDefinitionNode, validate
from graphql.execution.values import get_variable_values
from strawberry.extensions import SchemaExtension
from strawberry.schema.validation_rules.maybe_null import MaybeNullValidationRule
from strawberry.schema.validation_rules.one_of import OneOfInputValidationRule
from strawberry.types.graphql import OperationType

from revstream.gql.engine.definitions.arguments import Given
from revstream.gql.engine.execution.compiled_query import Coerce, coercion_of
from revstream.gql.engine.execution.executor import unstorable_text
from revstream.gql.engine.limits.document_limits import (
    COUNTED,
    Limits,
    check_text,
    check_variables,
    check_weight,
)
from revstream.gql.engine.limits.field_merging import RULES
from revstream.gql.engine.limits.persisted_documents import Persisted
from revstream.gql.engine.limits.query_cost import CostCalculator, DocumentCost
from revstream.gql.engine.limits.schema_only import asks_schema_only
from revstream.gql.engine.request.plan import Plans
from revstream.streams.core.errors import GatewayError
from revstream.streams.core.lru_cache import LruCache

__all__ = ["CheckedDocuments", "Documents", "KnownDocument", "KnownOperation"]

# A document with more mistakes than anybody reads: to find names that are meant takes its time.
_MOST_ERRORS = 20
_RULES = (*RULES, MaybeNullValidationRule, OneOfInputValidationRule)


@dataclass(slots=True)
class KnownOperation:
    """An operation of a document that is known.

    Attributes:
        name: its own. kind_name: its kind as GraphQL writes it.
        coerce: see `gql.engine.execution.compiled_query`.
        fits: it was found to be within the limits, whatever the variables.
        schema_only: it asks for nothing but the schema.
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
        # Python takes its time to look them up, for each request.
        self.name = None if self.node.name is None else self.node.name.value
        self.kind_name = self.kind.value
        self.schema_only = asks_schema_only(self.document.document, self.node)

    def given(self, schema: GraphQLSchema, variables: Mapping[str, Any]) -> Given | None:
        """The variables, coerced, where `coerce` does not know; None where they cannot be."""
        if unstorable_text(variables) is not None:
            return None
        found = get_variable_values(schema, self.node.variable_definitions or (), dict(variables))
        return None if isinstance(found, list) else found.coerced


class KnownDocument:
    """Attributes:
    weighed: None where that depends on variables.
    operations: by their names; by None, where it is the only one.
    """

    __slots__ = ("document", "operations", "plans", "weighed")

    def __init__(self, document: DocumentNode, weighed: DocumentCost | None) -> None:
        self.document = document
        self.weighed = weighed
        self.plans = Plans(document)
        self.operations: dict[str | None, KnownOperation] = {}
        every = [each for each in document.definitions if isinstance(each, OperationDefinitionNode)]
        for each in every:
            kind = OperationType(each.operation.value)
            known = KnownOperation(self, kind, each, coercion_of(each))
            if known.name is not None:
                self.operations[known.name] = known
            if len(every) == 1:
                self.operations[None] = known


class Documents:
    """Those of one schema that were found valid, and the limits that all are held to.

    Args:
        persisted: those that clients name instead of sending.
        most_characters: of all texts together; a syntax tree takes some fifty times as many bytes.
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

    def asked(
        self, query: str | None, extensions: Mapping[str, Any] | None
    ) -> tuple[str | None, KnownDocument | None]:
        """The text that a request means, and the document that is known under it, if one is.

        Args:
            query: what it has sent.

        Raises:
            LimitExceeded: it is not known, and would take long to parse.
            PersistedQueryNotFound, BadUserInput, Forbidden: see `Persisted.text_of`.
        """
        text = self._persisted.text_of(query, extensions)
        if text is None:
            return None, None
        found = self.known.get(text)
        if found is None:
            check_text(text, self.limits)
        return text, found

    def weighed(
        self,
        document: KnownDocument | DocumentNode,
        variables: Mapping[str, Any] | None,
        scales: CostCalculator,
    ) -> DocumentCost:
        """What it weighs with these variables.

        Raises:
            LimitExceeded: the variables are too many, or too deep. Others as
            `CostCalculator.weigh`.
        """
        check_variables(variables, self.limits)
        if not isinstance(document, KnownDocument):
            return scales.weigh(document, variables or {})
        return document.weighed or scales.weigh(document.document, variables or {})


class CheckedDocuments(SchemaExtension):
    """Spares an operation the parsing and validation of a document that is known, and refuses what
    is beyond the limits.

    Who asks for it with `{"cost": true}` among the `extensions` of the request is told there what
    the operation costs.
    """

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._known: KnownDocument | None = None
        self._weighed: DocumentCost | None = None

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
        try:
            self._check(document)
        except GatewayError as exc:
            errors = [GraphQLError(exc.message, original_error=exc)]
        else:
            errors = [] if self._known else self._validate(document)
        # Not None: validation has been done.
        context.pre_execution_errors = errors
        if self._known is not None and context.context is not None:
            context.context = replace(context.context, plans=self._known.plans)
        yield

    def _check(self, document: DocumentNode) -> None:
        context, documents = self.execution_context, self._documents
        scales: CostCalculator = context.schema.scales  # type: ignore[attr-defined]
        known = self._known
        self._weighed = documents.weighed(known or document, context.variables, scales)
        name = context.operation_name
        check_weight(self._weighed, name, documents.limits, known=known is not None)

    def _validate(self, document: DocumentNode) -> list[GraphQLError]:
        context = self.execution_context
        errors = validate(
            context.schema._schema,
            document,
            _RULES,
            max_errors=_MOST_ERRORS,
            hide_suggestions=not self._documents.limits.introspection,
        )
        if not errors:
            weighed = self._weighed
            if weighed is not None and weighed.varies:
                weighed = None
            text = context.query or ""
            self._known = KnownDocument(document, weighed)
            self._documents.known.put(text, self._known, len(text))
        return errors

    def get_results(self) -> dict[str, Any]:
        asked = self.execution_context.operation_extensions
        if not isinstance(asked, Mapping) or asked.get("cost") is not True:
            return {}
        weight = self._weighed and self._weighed.of(self.execution_context.operation_name)
        if not weight:
            return {}
        limits = self._documents.limits
        return {
            "cost": {
                "cost": min(weight.cost, COUNTED),
                "maxCost": limits.max_cost,
                "values": min(weight.values, COUNTED),
                "maxValues": limits.max_values,
            }
        }
