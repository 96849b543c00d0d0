"""Request context: the services that resolvers use, and the data read for one response."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeAlias
from weakref import ref

from bson import Timestamp
from graphql import GraphQLError, GraphQLResolveInfo

from revstream.gql.auth.sessions import Session, Sessions
from revstream.gql.engine.limits.filter_conditions import count_conditions
from revstream.gql.engine.limits.subscription_filters import SubscriptionFilters
from revstream.gql.engine.request.loaders import Loaders
from revstream.gql.engine.request.plan import Plan, Plans
from revstream.gql.engine.request.reference_targets import find_targets
from revstream.gql.engine.request.selection import Nodes, Selections
from revstream.gql.engine.request.services import Services
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.server.fair_scheduler import FairScheduler
from revstream.gql.subscriptions.broadcast_group import BroadcastGroups
from revstream.model.definition import Entity, Model
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.expression import Refers
from revstream.resolvers.filters.parser import Condition, parse_where
from revstream.resolvers.filters.reference_filters import resolve_references
from revstream.resolvers.filters.search_filter import with_search
from revstream.resolvers.mutations.result import Author
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.core.traceparent import TRACEPARENT

__all__ = ["RequestContext", "ResolveInfo", "SubscriptionPosition"]

_LONGEST_KEY = 255
# Number of conditions that take about 1 ms to parse.
_MANY_CONDITIONS = 50


@dataclass(slots=True)
class SubscriptionPosition:
    """Position of a subscription, for transports whose clients resume by themselves.

    Tokens are in the API's form.

    Args:
        after: the token to resume from, instead of the operation's own argument.
        token: the token of the last event sent; None if the subscription cannot be resumed.
    """

    after: str | None = None
    token: str | None = None


@dataclass(kw_only=True, eq=False, slots=True)
class RequestContext:
    """Context of one request. Each response gets a `fresh` one, as a WebSocket shares one.

    Args:
        services: of the caller.
        deployment: the tag at the end of resume tokens.
        scope: access rights of the caller, to which the services are restricted.
        caller: the authenticated caller.
        principal: its name, if known: the author of writes.
        account: see `Principal`.
        sessions: WebSocket sessions of this process.
        session: the session of this request's WebSocket.
        idempotency_key: key of this request's mutations.
        position: of the only subscription of this request.
        broadcast_groups: of the callers with these access rights.
        executor: of this operation; a weak reference, since the executor refers to the context.
        plans: of the executed document.
        plan: of the operation.
        subscription_filters: budget of the filters of all subscriptions of this process.
        filter_turns: scheduler of this process for parsing large filters.

    Attributes:
        loads: loaders of this response.
        known: referenced documents that were read ahead, by type and fields, then by `_id`.
        problems: errors of documents that were left out of a page, for the response.
        assumes_valid: documents are not checked against the model; generated code falls back where
            one does not fit.
        root_results: results or errors of root fields, if a compiled query has run before the
            executor.
        variables: coerced variables of a compiled query.
    """

    services: Services
    deployment: str
    scope: Scope
    caller: Principal = ANONYMOUS
    sessions: Sessions | None = None
    session: Session | None = None
    principal: str | None = None
    account: str | None = None
    idempotency_key: str | None = None
    position: SubscriptionPosition | None = None
    broadcast_groups: BroadcastGroups = field(default_factory=BroadcastGroups)
    executor: ref[Any] | None = None
    plans: Plans | None = None
    plan: Plan | None = None
    subscription_filters: SubscriptionFilters = field(default_factory=SubscriptionFilters)
    filter_turns: FairScheduler = field(default_factory=partial(FairScheduler, 1))
    loads: Loaders = field(init=False, repr=False)
    known: dict[tuple[str, frozenset[str]], dict[Any, CurrentDocument | None]] = field(
        init=False, repr=False
    )
    problems: list[GraphQLError] = field(init=False, repr=False)
    assumes_valid: bool = field(init=False, default=False)
    root_results: dict[str, Any] | None = field(init=False, default=None)
    variables: Mapping[str, Any] = field(init=False, default_factory=dict)
    _prefetched: dict[tuple[int, ...], dict[Any, Any]] = field(init=False, repr=False)
    _conditions: dict[tuple[str, int], tuple[object, Condition]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.clear_loaded()
        self.problems = []

    def fresh(self, plan: Plan) -> RequestContext:
        """Return a context with the same services and no data, for one operation or one event."""
        # Field by field: `replace` takes three times as long, for each request.
        made = object.__new__(RequestContext)
        for name in _GIVEN:
            setattr(made, name, getattr(self, name))
        made.plan, made.executor = plan, None
        made.assumes_valid, made.root_results, made.variables = False, None, {}
        made.__post_init__()
        return made

    def for_session(self, session: Session) -> RequestContext:
        """Return the context of all operations of a WebSocket; each takes a `fresh` one."""
        return replace(self, session=session)

    def clear_loaded(self) -> None:
        """Discard all data loaded for this response."""
        self.known = {}
        self._prefetched = {}
        self._conditions = {}
        self.loads = Loaders(self.services)

    def keep_prefetched(self, nodes: Nodes, ids: Sequence[Any], found: Sequence[Any]) -> None:
        """Store a field's values, or errors, for the documents with these `_id`s.

        Args:
            nodes: selections of the field.
        """
        kept = self._prefetched.setdefault(tuple(map(id, nodes)), {})
        kept.update(zip(map(identity, ids), found, strict=True))

    def prefetched(self, nodes: Nodes, id_: Any) -> Any:
        """Return the stored value or error; None if there is none."""
        kept = self._prefetched.get(tuple(map(id, nodes)))
        return None if kept is None else kept.get(identity(id_))

    def selections(self, info: ResolveInfo) -> Selections:
        """Return the selections of this operation."""
        assert self.plan is not None
        if self.plan.selections is None:
            self.plan.selections = Selections(info)
        return self.plan.selections

    @property
    def owner(self) -> str:
        """The name under which the caller's data is stored; "" for a caller without a name."""
        return self.account or self.principal or ""

    def author_of(self, info: ResolveInfo, given: Mapping[str, Any]) -> Author:
        """Return the author of a mutation, with reason, trace and idempotency key.

        Args:
            given: arguments of the mutation.

        Raises:
            BadUserInput: the idempotency key is invalid.
        """
        key = self.idempotency_key
        if key is not None and not 0 < len(key) <= _LONGEST_KEY:
            raise BadUserInput(
                f"idempotency key: {len(key):,} characters, expected 1 to {_LONGEST_KEY}"
            )
        asked = repr((info.field_name, sorted(given.items()))).encode()
        return Author(
            by=self.principal,
            owner=self.account or self.principal,
            why=given.get("comment"),
            traceparent=TRACEPARENT.get(),
            # A request may have several mutations.
            repeat=None if key is None else f"{self.owner}\n{key}\n{info.path.key}",
            fingerprint=hashlib.sha256(asked).hexdigest(),
        )

    async def parse_filter(
        self, model: Model, entity: Entity, where: Mapping[str, Any] | None, at: Timestamp | None
    ) -> Condition:
        """Parse a filter, and read the ids of the documents that its references may lead to.

        Args:
            at: the cluster time of the read that the filter is for; None for the present.

        Raises:
            BadUserInput, Forbidden: see `parse_where`.
            LimitExceeded: too many references, or documents to which they may lead.
        """
        return await self.resolve_references(await self.parse_unresolved(model, entity, where), at)

    async def resolve_references(self, condition: Condition, at: Timestamp | None) -> Condition:
        """Return the condition with ids in place of references; itself, if it has none."""

        def find(reference: Refers, inner: Condition) -> Awaitable[Sequence[Any]]:
            return find_targets(self.services, reference, inner, at)

        return await resolve_references(condition, find)

    def searched(
        self, model: Model, entity: Entity, search: str | None, where: Condition
    ) -> Condition:
        """Return the filter, limited to documents with the words of a search.

        Raises:
            BadUserInput, Forbidden: see `with_search`.
        """
        return with_search(model, entity, search, where, self.scope.check_read)

    async def parse_unresolved(
        self, model: Model, entity: Entity, where: Mapping[str, Any] | None
    ) -> Condition:
        """Parse a filter as `condition` does; large ones one at a time, in turn with other tasks.

        Raises:
            BadUserInput, Forbidden: see `parse_where`.
        """
        known = not where or (entity.name, id(where)) in self._conditions
        if not known and count_conditions(where) > _MANY_CONDITIONS:
            await self.filter_turns.next()
        return self.condition(model, entity, where)

    def condition(self, model: Model, entity: Entity, where: Mapping[str, Any] | None) -> Condition:
        """Parse a filter, once per operation if several fields use the same variable.

        Raises:
            BadUserInput, Forbidden: see `parse_where`.
        """
        key = entity.name, id(where)
        found = self._conditions.get(key)
        if found is None:
            parsed = parse_where(model, entity, where, self.scope.check_read)
            # The filter is stored too, so that no other object gets its identity.
            found = self._conditions[key] = where, parsed
        return found[1]

    def token_out(self, token: str) -> str:
        """Return the API's form of a resume token."""
        return resume_tokens.encode(token, self.deployment)

    def token_in(self, text: str) -> str:
        """Return the internal form of a resume token.

        Raises:
            ResumeTokenInvalid: it is malformed, or of another deployment.
        """
        return resume_tokens.decode(text, self.deployment)


_GIVEN = tuple(each.name for each in fields(RequestContext) if each.init)

ResolveInfo: TypeAlias = GraphQLResolveInfo[RequestContext]
"""The info that graphql-core passes to a field's function."""
