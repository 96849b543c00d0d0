"""Services of mutations, drafts and comments, created from a gateway's other services."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from revstream.model.definition import Model
from revstream.resolvers.access.permissions import Scope
from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.drafts.changes import proposal_topics
from revstream.resolvers.drafts.comments import Comments
from revstream.resolvers.drafts.images import ProposalImages
from revstream.resolvers.drafts.publish import Publishing
from revstream.resolvers.drafts.store import Drafts
from revstream.resolvers.mutations.expected_version import ExpectedVersions
from revstream.resolvers.mutations.fenced_upsert import FencedUpserts
from revstream.resolvers.mutations.idempotency import IdempotencyStore
from revstream.resolvers.mutations.restore import DocumentRestore
from revstream.resolvers.mutations.writes import BeforeInsert, DocumentWrites, skip_preparation
from revstream.resolvers.subscriptions.saved_cursors import SavedCursors
from revstream.streams.archive.store import Archive
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo
from revstream.streams.recording.versions.delete_attribution import DeleteAttributions

__all__ = ["MutationServices", "prepare_mutation_services"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationServices:
    """Services for writes."""

    writes: DocumentWrites
    restoring: DocumentRestore
    fences: FencedUpserts
    drafts: Drafts
    publishing: Publishing
    comments: Comments
    cursors: SavedCursors
    expected_versions: ExpectedVersions

    def within(self, scope: Scope) -> MutationServices:
        """Return the services restricted to a caller's access rights."""
        expected_versions = self.expected_versions.within(scope)
        writes = self.writes.within(scope, expected_versions)
        proposer, publisher = scope.acting("propose"), scope.acting("publish")
        drafts = self.drafts.within(proposer, self.expected_versions.within(proposer))
        published = self.expected_versions.within(publisher)
        return replace(
            self,
            expected_versions=expected_versions,
            writes=writes,
            drafts=drafts,
            restoring=self.restoring.within(scope, expected_versions, writes),
            fences=self.fences.within(scope, writes),
            publishing=self.publishing.within(
                publisher,
                self.drafts.within(publisher, published),
                published,
                self.writes.within(publisher, published),
            ),
            comments=self.comments.within(scope, drafts),
        )


async def prepare_mutation_services(
    mongo: Mongo,
    model: Model,
    archives: Mapping[str, Archive],
    progress: ArchiveProgress,
    own_writes: OwnWrites,
    *,
    repeat_window_s: float,
    images: bool = True,
    before_insert: BeforeInsert = skip_preparation,
) -> MutationServices:
    """Create the services, and the indexes of their collections.

    Args:
        images: the server stores images of drafts and comments.
        before_insert: see `DocumentWrites`.
    """
    repeats = IdempotencyStore(mongo, window_s=repeat_window_s)
    expected_versions = ExpectedVersions(mongo, archives, progress)
    writes = DocumentWrites(
        mongo, model, archives, progress, own_writes, expected_versions, repeats, before_insert
    )
    kept = ProposalImages(mongo, enabled=images)
    drafts = Drafts(mongo, archives, expected_versions, repeats, kept)
    comments = Comments(mongo, archives, progress, drafts, repeats, kept)
    cursors = SavedCursors(mongo, progress)
    await repeats.prepare()
    await cursors.prepare()
    await DeleteAttributions(mongo).prepare()
    await drafts.prepare(model.entities)
    await comments.prepare(model.entities)
    await kept.prepare(proposal_topics(model))
    return MutationServices(
        writes=writes,
        restoring=DocumentRestore(mongo, archives, own_writes, expected_versions, writes),
        fences=FencedUpserts(mongo, archives, writes, own_writes, repeats),
        drafts=drafts,
        publishing=Publishing(model, drafts, expected_versions, writes),
        comments=comments,
        cursors=cursors,
        expected_versions=expected_versions,
    )
