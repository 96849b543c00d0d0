"""What the resolvers of one request can reach: the services of this gateway, and what was read for
this response."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeAlias
from weakref import ref

from graphql import GraphQLError, GraphQLResolveInfo

from revstream.gql.auth.sessions import Session, Sessions
from revstream.gql.engine.limits.filter_conditions import conditions_in
from revstream.gql.engine.limits.subscription_filters import SubscriptionFilters
from revstream.gql.engine.request.loaders import Loaders
from revstream.gql.engine.request.mutation_services import Editing
from revstream.gql.engine.request.plan import Plan, Plans
from revstream.gql.engine.request.selection import Nodes, Selections
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.server.fair_scheduler import FairScheduler
from revstream.gql.subscriptions.broadcast_group import BroadcastGroups
from revstream.model.definition import Entity, Model
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.admin.stream_status import Status
from revstream.resolvers.current.documents import Current
from revstream.resolvers.drafts.changes import ProposalChanges
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.filters.parser import Condition, parse_where
from revstream.resolvers.history.time_point import TimePointResolver
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.mutations.result import Author
from revstream.resolvers.subscriptions.stream import Changes
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens

__all__ = ["RequestContext", "ResolveInfo", "SubscriptionPosition"]

_LONGEST_KEY = 255
# About a millisecond.
_MANY_CONDITIONS = 50


@dataclass(slots=True)
class SubscriptionPosition:
    """Where a subscription stands, for a transport that lets its clients resume by itself.

    Tokens are as the API shows them.

    Args:
        after: where to begin, whatever the operation itself says.
        token: behind the event that was handed out last; None where nobody can resume from there.
    """

    after: str | None = None
    token: str | None = None


@dataclass(kw_only=True, eq=False, slots=True)
class RequestContext:
    """One per request; Strawberry shares it among the operations of a WebSocket, so each response
    gets a `fresh` one of it.

    Args:
        deployment: the tag that resume tokens end with on the wire.
        scope: what the one who asks may see and change; the services are within it.
        caller: who asks, as he has signed in. principal: his name, where that is known: the author
            of what is written. account: see `Principal`.
        sessions: who is connected to this process. session: the socket that this is asked over.
        idempotency_key: under which the mutations of this request may be sent again.
        place: of the only subscription of this request.
        audiences: of subscriptions that this caller's are told the same in. executor: of this
            operation; weakly, since that knows of its context.
        plans: of the document that is executed. plan: of its operation.
        subscription_filters: those of all subscriptions of this process. filter_turns: in which
            large filters are parsed, of this process, too.
    Attributes:
        loads: what is read for this response.
        known: what was read ahead of the fields that refer to it, by type and fields, by `_id`.
        problems: errors of documents that were left out of a page, for the response to name.
        trusting: what is read is taken to fit the model; whoever makes the response of it gives up
            where it does not.
        begun: what root fields have given before the executor came to them, or raised.
        given: the variables, where the response is made without an executor.
        ahead: what was read ahead of fields with arguments, or the error of it: by the places where
            they are selected, by `_id`.
    """

    current: Current
    history: VersionHistory
    moments: TimePointResolver
    live: Changes
    proposals: ProposalChanges
    status: Status
    editing: Editing
    deployment: str
    scope: Scope
    caller: Principal = ANONYMOUS
    sessions: Sessions | None = None
    session: Session | None = None
    principal: str | None = None
    account: str | None = None
    idempotency_key: str | None = None
    place: SubscriptionPosition | None = None
    audiences: BroadcastGroups = field(default_factory=BroadcastGroups)
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
    trusting: bool = field(init=False, default=False)
    begun: dict[str, Any] | None = field(init=False, default=None)
    given: Mapping[str, Any] = field(init=False, default_factory=dict)
    ahead: dict[tuple[int, ...], dict[Any, Any]] = field(init=False, repr=False)
    _conditions: dict[tuple[str, int], tuple[object, Condition]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.forget()
        self.problems = []

    def fresh(self, plan: Plan) -> RequestContext:
        """The same services with nothing read yet: for one operation, or one event of a
        subscription."""
        # Field by field: `replace` takes three times as long, of each request.
        made = object.__new__(RequestContext)
        for name in _GIVEN:
            setattr(made, name, getattr(self, name))
        made.plan, made.executor = plan, None
        made.trusting, made.begun, made.given = False, None, {}
        made.__post_init__()
        return made

    def over(self, session: Session) -> RequestContext:
        """The same for all that is asked over a socket, each with a `fresh` one of it."""
        return replace(self, session=session)

    def forget(self) -> None:
        """What was read is not so any more."""
        self.known = {}
        self.ahead = {}
        self._conditions = {}
        self.loads = Loaders(self.current, self.history, self.moments, self.editing)

    def keep_ahead(self, nodes: Nodes, ids: Sequence[Any], found: Sequence[Any]) -> None:
        """What was read for the field at these places, of documents with these `_id`s, or the
        error."""
        kept = self.ahead.setdefault(tuple(map(id, nodes)), {})
        kept.update(zip(map(identity, ids), found, strict=True))

    def read_ahead(self, nodes: Nodes, id_: Any) -> Any:
        """None where nothing was."""
        kept = self.ahead.get(tuple(map(id, nodes)))
        return None if kept is None else kept.get(identity(id_))

    def selections(self, info: ResolveInfo) -> Selections:
        """What this operation selects."""
        assert self.plan is not None
        if self.plan.selections is None:
            self.plan.selections = Selections(info)
        return self.plan.selections

    @property
    def owner(self) -> str:
        """Whose names are kept apart from others'."""
        return self.account or self.principal or ""

    def author_of(self, info: ResolveInfo, given: Mapping[str, Any]) -> Author:
        """Who makes a mutation, and why.

        Args:
            given: its arguments.

        Raises:
            BadUserInput: an idempotency key that is none.
        """
        key = self.idempotency_key
        if key is not None and not 0 < len(key) <= _LONGEST_KEY:
            raise BadUserInput(
                f"an idempotency key has 1 to {_LONGEST_KEY} characters, got {len(key)}"
            )
        asked = repr((info.field_name, sorted(given.items()))).encode()
        return Author(
            by=self.principal,
            owner=self.account or self.principal,
            why=given.get("comment"),
            # One request may make several mutations.
            repeat=None if key is None else f"{self.owner}\n{key}\n{info.path.key}",
            fingerprint=hashlib.sha256(asked).hexdigest(),
        )

    async def parse_filter(
        self, model: Model, entity: Entity, where: Mapping[str, Any] | None
    ) -> Condition:
        """Parse a filter as `condition` does; large ones one by one, with turns for others between.

        Raises:
            BadUserInput, Forbidden: see `parse_where`.
        """
        known = not where or (entity.name, id(where)) in self._conditions
        if not known and conditions_in(where) > _MANY_CONDITIONS:
            await self.filter_turns.next()
        return self.condition(model, entity, where)

    def condition(self, model: Model, entity: Entity, where: Mapping[str, Any] | None) -> Condition:
        """Parse a filter, once per operation where several places name the same variable.

        Raises:
            BadUserInput, Forbidden: see `parse_where`.
        """
        key = entity.name, id(where)
        found = self._conditions.get(key)
        if found is None:
            parsed = parse_where(model, entity, where, self.scope.check_read)
            # With the filter itself, so that its identity is not used again.
            found = self._conditions[key] = where, parsed
        return found[1]

    def token_out(self, token: str) -> str:
        """A resume token as the API shows it."""
        return resume_tokens.encode(token, self.deployment)

    def token_in(self, text: str) -> str:
        """Raises:
        ResumeTokenInvalid: malformed, or of another deployment.
        """
        return resume_tokens.decode(text, self.deployment)


_GIVEN = tuple(each.name for each in fields(RequestContext) if each.init)

ResolveInfo: TypeAlias = GraphQLResolveInfo[RequestContext]
"""What graphql-core hands to a field's function."""
