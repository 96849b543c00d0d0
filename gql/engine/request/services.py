"""Services that resolve the fields of a request."""

from __future__ import annotations

from dataclasses import dataclass, replace

from revstream.gql.engine.request.mutation_services import MutationServices
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.admin.stream_status import Status
from revstream.resolvers.current.documents import Current
from revstream.resolvers.drafts.changes import ProposalChanges
from revstream.resolvers.history.time_point import TimePointResolver
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.subscriptions.stream import Changes

__all__ = ["Services"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """Services of one process, or of one caller: see `within`."""

    current: Current
    history: VersionHistory
    moments: TimePointResolver
    live: Changes
    proposals: ProposalChanges
    status: Status
    editing: MutationServices

    def within(self, scope: Scope) -> Services:
        """Return the services restricted to a caller's access rights.

        `moments` and `status` are the same for all callers: they return no content of documents.
        """
        editing = self.editing.within(scope)
        return replace(
            self,
            current=self.current.within(scope),
            history=self.history.within(scope),
            live=self.live.within(scope),
            proposals=self.proposals.within(scope, editing.drafts, editing.comments),
            editing=editing,
        )
