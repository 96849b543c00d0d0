"""Publishing of a draft: its changes become the document's next version.

The changes of the draft, and of the drafts that it is based on, are applied to the present document
in one compare-and-swap write. If the same fields have changed since, it is a conflict. The same
transaction marks the drafts, so that a draft is published once.
Source: docs/decisions/0014-drafts.md.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from revstream.model.definition import Entity, Model
from revstream.resolvers.access.permissions import OPEN, Scope
from revstream.resolvers.drafts.draft import PROPOSED, PUBLISHED, REJECTED, Draft, decided
from revstream.resolvers.drafts.store import Drafts, decide
from revstream.resolvers.mutations.expected_version import (
    ExpectedVersions,
    conflict_error,
    not_found_error,
)
from revstream.resolvers.mutations.merge_patch import REMOVED, merge_from_paths
from revstream.resolvers.mutations.result import (
    AlreadyExists,
    Author,
    InvalidDocument,
    VersionConflict,
    Written,
)
from revstream.resolvers.mutations.update_pipeline import DocumentUpdate, attribution
from revstream.resolvers.mutations.write_executor import ATTEMPTS, too_many_conflicts
from revstream.resolvers.mutations.writes import DocumentWrites, ExtraWrite
from revstream.resolvers.values.field_diff import hidden_fields
from revstream.resolvers.values.field_path import union_path
from revstream.resolvers.values.json_value import json_value
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.transactions import WriteSession
from revstream.streams.raw_bson.diff import Difference, DifferenceKind, find_differences
from revstream.streams.versioning.version import CHANGE_FIELD, LastVersion

__all__ = ["Publishing"]


class _Decided(Exception):
    """Another one has published or rejected it meanwhile."""


class Publishing:
    def __init__(
        self,
        model: Model,
        drafts: Drafts,
        expected_versions: ExpectedVersions,
        writes: DocumentWrites,
    ) -> None:
        self._model = model
        self._drafts = drafts
        self._expected_versions = expected_versions
        self._writes = writes
        self._scope = OPEN

    def within(
        self,
        scope: Scope,
        drafts: Drafts,
        expected_versions: ExpectedVersions,
        writes: DocumentWrites,
    ) -> Publishing:
        """Return the service limited to one caller, which needs permission to write the changed
        fields.

        Args:
            drafts, expected_versions, writes: limited to the same caller.
        """
        limited = copy.copy(self)
        limited._scope, limited._drafts = scope, drafts
        limited._expected_versions, limited._writes = expected_versions, writes
        return limited

    async def publish(self, entity: Entity, key: Any, number: int, author: Author) -> Written:
        """Publish a draft and the drafts that it is based on, as one version.

        Raises:
            DocumentNotFound: No such document, or draft.
            VersionConflict: The same fields have changed since.
            InvalidDocument: The draft is decided already, or is based on a rejected one.
            AlreadyExists: A value of a unique field.
            Forbidden: A changed field, or the document would leave the caller's rows.
        """
        self._scope.write_rows(entity)

        async def publishing() -> Written:
            for _ in range(ATTEMPTS):
                chain = await self._chain(entity, key, number)
                last = await self._expected_versions.now(entity, key)
                new = chain[0].is_new
                if last is None or last.full is None:
                    if not new:
                        raise not_found_error(entity, key)
                    try:
                        return await self._create(entity, key, chain, last, author)
                    except _Decided:
                        continue
                if new:
                    raise AlreadyExists(
                        f"{entity.name} {json_value(key)}: exists, expected none, since draft "
                        f"{number} creates it; propose a change of the document",
                        path="id",
                    )
                base, content = await self._joint(entity, key, chain[0])
                wanted = self._allowed_changes(entity, chain, author)
                if last.number != base:
                    moved = _changes(entity, content, last.full)
                    if self._overlap(entity, wanted, list(moved)):
                        # By this very draft, perhaps, since it was read: then it is decided.
                        await self._chain(entity, key, number)
                        raise conflict_error(entity, key, base, last.number)
                merge = merge_from_paths(
                    [
                        (e.path, REMOVED if e.kind is DifferenceKind.REMOVED else e.after)
                        for e in wanted
                    ]
                )
                try:
                    return await self._writes.alter(
                        entity,
                        key,
                        DocumentUpdate.publication(merge, number),
                        last.number,
                        author,
                        beside=self._marking(entity, chain, author),
                    )
                except (VersionConflict, _Decided):
                    # Another write was faster; the draft may still be publishable.
                    continue
            raise too_many_conflicts(entity, key)

        return await self._writes.once(entity, author, publishing)

    def _overlap(
        self, entity: Entity, one: Sequence[Difference], other: Sequence[Difference]
    ) -> bool:
        """Return whether both sides changed the same field, or one around or inside of it.

        A document of a union that became another type was changed as a whole.
        """
        ours, others = (
            [union_path(entity, self._model, each.path) for each in side] for side in (one, other)
        )
        return any(a[: len(b)] == b or b[: len(a)] == a for a in ours for b in others)

    def _allowed_changes(
        self, entity: Entity, chain: Sequence[Draft], author: Author
    ) -> list[Difference]:
        """Return the changes of a chain of drafts.

        Raises:
            Forbidden: The caller's own draft, if the model requires another publisher, or a field
            that the caller may not write.
        """
        for draft in chain:
            self._scope.check_publisher(entity, draft.by, own=draft.owner == author.owner)
        wanted = list(_changes(entity, chain[0].base, chain[-1].full))
        for each in wanted:
            self._scope.check_path(entity, each.path)
        return wanted

    async def _create(
        self,
        entity: Entity,
        key: Any,
        chain: Sequence[Draft],
        last: LastVersion | None,
        author: Author,
    ) -> Written:
        """Insert a document that was proposed as new; its numbers continue after a deletion."""
        self._allowed_changes(entity, chain, author)
        number = 1 if last is None else last.number + 1
        change = attribution(author, entity, key, draft=chain[-1].number)
        whole: Document = {**chain[-1].full, CHANGE_FIELD: change}
        del whole["_id"]
        if entity.version is not None:
            whole[entity.version] = number
        marking = self._marking(entity, chain, author)
        return await self._writes.insert(entity, key, whole, change, author, number, beside=marking)

    async def restore(
        self, entity: Entity, key: Any, number: int, expected: int | None, author: Author
    ) -> Written:
        """Make a new version with the content of a draft, whole, also where the same fields were
        changed since, or it was rejected.

        Raises:
            DocumentNotFound: no such document, or draft.
            VersionConflict: the document is at another version than the one expected.
            InvalidDocument: it was published already: that version can be restored.
            AlreadyExists: a value of a unique field.
            Forbidden: the caller may not publish it, or may not write every field.
        """
        self._scope.write_rows(entity)
        self._scope.check_whole(entity)

        async def restoring() -> Written:
            for _ in range(ATTEMPTS):
                draft = await self._drafts.one(entity, key, number)
                if draft.status == PUBLISHED:
                    raise decided(draft)
                self._scope.check_publisher(entity, draft.by, own=draft.owner == author.owner)
                last = await self._expected_versions.now(entity, key)
                if last is None or last.full is None:
                    raise not_found_error(entity, key)
                if expected is not None and expected != last.number:
                    raise conflict_error(entity, key, expected, last.number)
                try:
                    return await self._writes.alter(
                        entity,
                        key,
                        DocumentUpdate.restoration_of_draft(draft.full, number),
                        last.number,
                        author,
                        beside=self._marking(entity, [draft], author),
                    )
                except (VersionConflict, _Decided):
                    if expected is not None:
                        raise
                    continue
            raise too_many_conflicts(entity, key)

        return await self._writes.once(entity, author, restoring)

    async def _chain(self, entity: Entity, key: Any, number: int) -> list[Draft]:
        """Return the draft, last, after the unpublished drafts that it is based on."""
        chain = [await self._drafts.one(entity, key, number)]
        if chain[0].status != PROPOSED:
            raise decided(chain[0])
        while chain[0].based_on_draft is not None:
            # One after the other: it takes the right to write them, and not that to read them.
            earlier = await self._drafts.one(entity, key, chain[0].based_on_draft)
            if earlier.status == REJECTED:
                raise InvalidDocument(
                    f"draft {number}: based on draft {earlier.number}, which is rejected, expected "
                    "an open or published draft; propose the change again",
                    path="draft",
                )
            if earlier.status == PUBLISHED:
                break
            chain.insert(0, earlier)
        return chain

    async def _joint(self, entity: Entity, key: Any, first: Draft) -> tuple[int, Mapping[str, Any]]:
        """Return the version on which a chain of drafts is based, and its content."""
        number = first.based_on
        if first.based_on_draft is not None:
            earlier = await self._drafts.one(entity, key, first.based_on_draft)
            number = earlier.published_as or number
        content = await self._drafts.content(entity, key, number)
        return number, first.base if content is None else content

    def _marking(self, entity: Entity, chain: Sequence[Draft], author: Author) -> ExtraWrite:
        async def mark(writing: WriteSession, version: int) -> None:
            for each in chain:
                published = {"status": PUBLISHED, "publishedAs": version}
                key, number = each.document, each.number
                if not await decide(
                    writing, entity, key, number, author, published, status=each.status
                ):
                    raise _Decided

        return mark


def _changes(
    entity: Entity, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[Difference]:
    hidden = hidden_fields(entity)
    return (each for each in find_differences(before, after) if each.path[0] not in hidden)
