"""The services that mutations need, made of those that a gateway has already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from model.entities import Model
from resolvers.drafts.changes import proposal_topics
from resolvers.drafts.comments import Comments
from resolvers.drafts.images import ProposalImages
from resolvers.drafts.publish import Publishing
from resolvers.drafts.store import Drafts
from resolvers.fences import Fences
from resolvers.own_writes import OwnWrites
from resolvers.repeats import Repeats
from resolvers.restoring import Restoring
from resolvers.saved_cursors import SavedCursors
from resolvers.scopes import Scope
from resolvers.standing import Standing
from resolvers.writes import BeforeInsert, Writes, nothing_to_do
from streams.archive import Archive
from streams.deletions import Deletions
from streams.mongo import Mongo
from streams.progress import Progress

__all__ = ["Editing", "prepare_editing"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Editing:
    writes: Writes
    restoring: Restoring
    fences: Fences
    drafts: Drafts
    publishing: Publishing
    comments: Comments
    cursors: SavedCursors
    standing: Standing

    def within(self, scope: Scope) -> Editing:
        """The same for one caller."""
        standing = self.standing.within(scope)
        writes = self.writes.within(scope, standing)
        proposer, publisher = scope.acting("propose"), scope.acting("publish")
        drafts = self.drafts.within(proposer, self.standing.within(proposer))
        published = self.standing.within(publisher)
        return replace(
            self,
            standing=standing,
            writes=writes,
            drafts=drafts,
            restoring=self.restoring.within(scope, standing, writes),
            fences=self.fences.within(scope, writes),
            publishing=self.publishing.within(
                publisher,
                self.drafts.within(publisher, published),
                published,
                self.writes.within(publisher, published),
            ),
            comments=self.comments.within(scope, drafts),
        )


async def prepare_editing(
    mongo: Mongo,
    model: Model,
    archives: Mapping[str, Archive],
    progress: Progress,
    own_writes: OwnWrites,
    *,
    repeat_window_s: float,
    images: bool = True,
    before_insert: BeforeInsert = nothing_to_do,
) -> Editing:
    """With the indexes of what they keep.

    Args:
        images: whether the server is to keep images of drafts and comments.
        before_insert: see `Writes`.
    """
    repeats = Repeats(mongo, window_s=repeat_window_s)
    standing = Standing(mongo, archives, progress)
    writes = Writes(mongo, model, archives, progress, own_writes, standing, repeats, before_insert)
    kept = ProposalImages(mongo, enabled=images)
    drafts = Drafts(mongo, archives, standing, repeats, kept)
    comments = Comments(mongo, archives, progress, drafts, repeats, kept)
    cursors = SavedCursors(mongo, progress)
    await repeats.prepare()
    await cursors.prepare()
    await Deletions(mongo).prepare()
    await drafts.prepare(model.entities)
    await comments.prepare(model.entities)
    await kept.prepare(proposal_topics(model))
    return Editing(
        writes=writes,
        restoring=Restoring(mongo, archives, own_writes, standing, writes),
        fences=Fences(mongo, archives, writes, own_writes, repeats),
        drafts=drafts,
        publishing=Publishing(drafts, standing, writes),
        comments=comments,
        cursors=cursors,
        standing=standing,
    )
