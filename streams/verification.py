"""Check an archive: each document's versions against one another, and the last ones against the
present.

Reads the present as of the place that the recorder has reached, document by document in `_id`
order, and beside it the versions of the same documents. While others write, and without a recorder
too: then what it has not come to is told, and the rest is checked.

Does not see: a version whose content was changed together with what the two around it say of it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from streams import tokens
from streams.archive import Archive, span
from streams.bootstrap import read_documents
from streams.checkpoints import Checkpoint
from streams.differences import differences, same
from streams.documents import Document
from streams.errors import DatabaseError
from streams.events import identity
from streams.mongo import Mongo
from streams.versions import CHANGE_FIELD, changed_paths, next_number

__all__ = ["Finding", "Verification", "Verified"]

Report = Callable[[int], None]

_CHUNK = 1000
# SnapshotTooOld, SnapshotUnavailable: the place that the recorder has reached is too long ago.
_TOO_OLD = frozenset({239, 246})


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something is wrong.

    `kind`: MISSING (a version), INTERVAL (hole or overlap), NUMBER, CONTENT, PRESENT (it differs
    from the last version), BEHIND (not checked).
    """

    collection: str
    kind: str
    problem: str
    document: Any = None
    version: int | None = None


@dataclass(slots=True)
class Verified:
    """What was looked at."""

    documents: int = 0
    versions: int = 0
    gaps: int = 0
    findings: list[Finding] = field(default_factory=list)


class Verification:
    """Of one collection.

    Args:
        checkpoint: of its recorder; None where none has ever run.
        version_field: as the model says.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        checkpoint: Checkpoint | None,
        *,
        version_field: str | None,
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._checkpoint = checkpoint
        self._version_field = version_field
        self._verified = Verified()
        self._position = ""

    async def run(self, report: Report = lambda documents: None) -> Verified:
        """Args:
        report: given the number of documents that were looked at, now and then.
        """
        if self._checkpoint is None:
            self._tell("BEHIND", "no recorder has ever run for it; start `revstream serve`")
            return self._verified
        # What it has written behind its checkpoint is there too, without a hole.
        newest = await self._mongo.find(
            self._archive.name, {}, sort=[("_id", -1)], limit=1, projection={"_id": 1}
        )
        self._position = max([self._checkpoint.token, *(each["_id"] for each in newest)])
        at = tokens.cluster_time(self._position)
        after: tuple[Any] | None = None
        while True:
            present = await self._present(after, at)
            if present is None:
                await self._check_range(after, None, at, None)
                return self._verified
            documents, end = present
            last = None if end else (documents[-1]["_id"],)
            await self._check_range(after, last, at, documents)
            report(self._verified.documents)
            if end:
                return self._verified
            after = last

    async def _present(
        self, after: tuple[Any] | None, at: Timestamp
    ) -> tuple[list[RawBSONDocument], bool] | None:
        """The next documents, and whether they are the last; None where they cannot be read as of
        that time."""
        try:
            return await read_documents(
                self._mongo, self._archive.collection, after, size=_CHUNK, at=at
            )
        except DatabaseError as exc:
            if exc.number not in _TOO_OLD:
                raise
        self._tell(
            "BEHIND",
            f"its recorder has reached {at.as_datetime():%F %T}Z, which is too long ago to read "
            "the present as of then; the versions alone were checked",
        )
        return None

    async def _check_range(
        self,
        after: tuple[Any] | None,
        last: tuple[Any] | None,
        at: Timestamp,
        present: Sequence[RawBSONDocument] | None,
    ) -> None:
        there = {identity(each["_id"]): each for each in present or ()}
        differing: list[tuple[Document, str]] = []
        async for versions in self._versions(after, last, at):
            self._verified.documents += 1
            self._check_chain(versions, at)
            newest = versions[0]
            if present is not None:
                problem = _difference(newest, there.pop(identity(newest["doc"]), None))
                if problem is not None:
                    differing.append((newest, problem))
        unknown = list(there.values()) if self._first_reading_done else []
        before = await self._just_before(at, differing, unknown)
        for newest, problem in differing:
            key = identity(newest["doc"])
            if newest["at"] == at or key not in before or _difference(newest, before[key]):
                self._about(newest, "PRESENT", problem)
        for document in unknown:
            if before.get(identity(document["_id"]), document) is not None:
                self._tell("MISSING", "is there, and has no version", document["_id"])

    async def _just_before(
        self,
        at: Timestamp,
        differing: Sequence[tuple[Document, str]],
        unknown: Sequence[RawBSONDocument],
    ) -> Mapping[Any, RawBSONDocument | None]:
        """Of documents that differ from their last version, what they were one moment earlier.

        The recorder may stand in the middle of a transaction: what that did to other documents at
        the same cluster time, it has yet to come to. Where it does not, nothing is asked.
        """
        keys = [newest["doc"] for newest, _ in differing] + [each["_id"] for each in unknown]
        if not keys or self._position.endswith("~"):
            return {}
        earlier = Timestamp(at.time, at.inc - 1) if at.inc else Timestamp(at.time - 1, 2**32 - 1)
        found = await self._mongo.find(
            self._archive.collection, {"_id": {"$in": keys}}, at=earlier, raw=True
        )
        documents = {identity(each["_id"]): each for each in found}
        return {identity(each): documents.get(identity(each)) for each in keys}

    async def _versions(
        self, after: tuple[Any] | None, last: tuple[Any] | None, at: Timestamp
    ) -> AsyncIterator[list[Document]]:
        """Document by document its versions, the newest first, up to a time."""
        bounds = [
            # In expressions values of all types are in one order, as in the index.
            {operator: ["$doc", {"$literal": bound[0]}]}
            for operator, bound in (("$gt", after), ("$lte", last))
            if bound is not None
        ]
        query = {"at": {"$lte": at}, "$expr": {"$and": bounds}}
        found: list[Document] = []
        pages = self._mongo.pages(
            self._archive.name, query, sort=[("doc", 1), ("v", -1)], size=_CHUNK
        )
        async with aclosing(pages) as opened:
            async for page in opened:
                for record in page:
                    self._verified.versions += 1
                    self._verified.gaps += record.get("gap", False)
                    if found and identity(found[0]["doc"]) != identity(record["doc"]):
                        yield found
                        found = []
                    found.append(record)
        if found:
            yield found

    def _check_chain(self, versions: Sequence[Document], at: Timestamp) -> None:
        """Args:
        versions: of one document, the newest first.
        """
        newest, oldest = versions[0], versions[-1]
        until = newest.get("until")
        if until is not None and until <= at:
            self._about(newest, "MISSING", "was replaced by a version that is not there")
        for newer, older in pairwise(versions):
            self._check_pair(older, newer)
        if oldest["prev"] is not None or not oldest.get("first"):
            self._about(oldest, "MISSING", "the versions before it are not there")
        else:
            self._check_content(None, oldest)

    def _check_pair(self, older: Document, newer: Document) -> None:
        if newer["prev"] != older["_id"]:
            self._about(
                newer, "MISSING", f"does not follow version {older['v']}, which is the one before"
            )
            return
        expected = (newer["at"], newer["wall"], span(older["at"], newer["at"]))
        found = (older.get("until"), older.get("untilWall"), older.get("span"))
        # Behind its checkpoint a recorder that was killed may have left it open: it mends that when
        # it starts.
        assert self._checkpoint is not None
        left_open = newer["_id"] > self._checkpoint.token and older.get("until") is None
        if (found != expected and not left_open) or newer["_id"] <= older["_id"]:
            self._about(
                older,
                "INTERVAL",
                f"stands until {older.get('untilWall')}, and version {newer['v']} stands from "
                f"{newer['wall']}",
            )
        number = next_number(older["v"], newer["full"], self._version_field)
        if newer["v"] != number:
            self._about(newer, "NUMBER", f"should be version {number}")
        self._check_content(older, newer)

    def _check_content(self, older: Document | None, newer: Document) -> None:
        """What a version says it has changed is what differs from the one before."""
        full = newer["full"]
        if (full is None) != (newer["op"] == "DELETE"):
            has = "no content" if full is None else "content"
            self._about(newer, "CONTENT", f"is a {newer['op']} and has {has}")
            return
        before = None if older is None else older["full"]
        changed = changed_paths(before, full, self._version_field)
        if list(newer["changed"]) != changed:
            self._about(
                newer,
                "CONTENT",
                f"says that it changed {newer['changed']}, and {changed} differs",
            )

    @property
    def _first_reading_done(self) -> bool:
        return self._checkpoint is not None and self._checkpoint.baseline.done

    def _about(self, record: Mapping[str, Any], kind: str, problem: str) -> None:
        self._tell(kind, problem, record["doc"], record["v"])

    def _tell(
        self, kind: str, problem: str, document: Any = None, version: int | None = None
    ) -> None:
        self._verified.findings.append(
            Finding(
                collection=self._archive.collection,
                kind=kind,
                problem=problem,
                document=document,
                version=version,
            )
        )


def _difference(newest: Document, document: RawBSONDocument | None) -> str | None:
    """What is wrong between a document and its last version."""
    full = newest["full"]
    if document is None:
        return None if full is None else "is the last version, and the document is gone"
    if full is None:
        return "is a deletion, and the document is there"
    content = {k: v for k, v in document.items() if k != CHANGE_FIELD}
    if same(full, content):
        return None
    paths = [each.dotted for each in differences(full, content)]
    return f"differs from the document in {', '.join(paths)}"
