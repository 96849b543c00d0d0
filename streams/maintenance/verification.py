"""Checks of an archive: each document's versions with each other, and the last with the document.

Reads current documents at the recorder's position, one by one in `_id` order, and the versions of
the same documents. It runs while applications write, and without a recorder too: it then reports
what is not recorded, and checks the rest.

Does not detect: a changed version without a checksum, if the records around it agree; nor one after
which all checksums were recomputed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import INEXACT_KEY, identity, is_exact
from revstream.streams.coordination.checkpoint import Checkpoint
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DamagedArchive, DatabaseError, HistoryLost
from revstream.streams.layouts.core.snapshot_scan import SNAPSHOT_REFUSALS
from revstream.streams.maintenance.version_chain import (
    Flaw,
    find_chain_flaws,
    find_link_flaws,
    is_first,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.raw_bson.diff import find_differences, is_same
from revstream.streams.versioning.checksum import checksum_flaws
from revstream.streams.versioning.version import without_reserved

__all__ = ["Verification", "VerificationFinding", "VerificationResult"]

Report = Callable[[int], None]

_CHUNK = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationFinding:
    """A problem in an archive.

    Attributes:
        kind: MISSING (a version), INTERVAL (times that do not follow each other), NUMBER, CONTENT,
            CHECKSUM (it, or its place, is not as recorded), PRESENT (the document differs from its
            last
            version), BEHIND (not checked).
    """

    collection: str
    kind: str
    problem: str
    document: Any = None
    version: int | None = None


@dataclass(slots=True)
class VerificationResult:
    """Result of a verification.

    Attributes:
        unsealed: Number of versions without a checksum.
        mended: Number of documents whose unfinished updates are repaired.
    """

    documents: int = 0
    versions: int = 0
    gaps: int = 0
    unsealed: int = 0
    mended: int = 0
    findings: list[VerificationFinding] = field(default_factory=list)


class Verification:
    """Verification of one collection.

    Args:
        checkpoint: Checkpoint of its recorder, or the joint one of its partitions; None if one of
            them
            has never run.
        version_field: As in the model.
        partitioned: Whether several recorders write the collection, or did recently.
    """

    def __init__(
        self,
        mongo: Mongo,
        archive: Archive,
        checkpoint: Checkpoint | None,
        *,
        version_field: str | None,
        partitioned: bool = False,
    ) -> None:
        self._mongo = mongo
        self._archive = archive
        self._checkpoint = checkpoint
        self._version_field = version_field
        self._partitioned = partitioned
        self._verified = VerificationResult()
        self._position = ""

    async def run(self, report: Report = lambda documents: None) -> VerificationResult:
        """Verify the collection.

        Args:
            report: Called now and then with the number of checked documents.
        """
        if self._checkpoint is None:
            self._add_finding("BEHIND", "never recorded; start `revstream serve`")
            return self._verified
        self._position = self._checkpoint.token
        if not self._partitioned:
            # Versions after its checkpoint exist without a gap. With several recorders, one may be
            # ahead of the others.
            newest = await self._mongo.find(
                self._archive.name,
                {},
                FindOptions(sort=[("_id", -1)], limit=1, projection={"_id": 1}),
            )
            self._position = max([self._position, *(each["_id"] for each in newest)])
        at = resume_tokens.cluster_time(self._position)
        after: tuple[Any] | None = None
        async with aclosing(self._archive.layout.scan_current(size=_CHUNK, at=at)) as pages:
            while (present := await self._next_page(pages, at)) is not None:
                documents, end = present
                exact = [each for each in documents if is_exact(each)]
                for each in documents:
                    if not is_exact(each):
                        self._add_finding("MISSING", f"no versions: {INEXACT_KEY}", each["_id"])
                if end or exact:
                    last = None if end else (exact[-1]["_id"],)
                    await self._check_range(after, last, at, exact)
                    after = last
                report(self._verified.documents)
                if end:
                    return self._verified
        await self._check_range(after, None, at, None)
        return self._verified

    async def _next_page(
        self, pages: AsyncGenerator[tuple[list[RawBSONDocument], bool]], at: Timestamp
    ) -> tuple[list[RawBSONDocument], bool] | None:
        """Return the next documents, and whether they are the last; None if that time is not
        readable.
        """
        try:
            return await anext(pages)
        except DatabaseError as exc:
            if exc.number not in SNAPSHOT_REFUSALS:
                raise
        self._add_finding(
            "BEHIND",
            f"recorded up to {at.as_datetime():%F %T}Z, which is too long ago to read the current "
            "documents at that time; only the versions were checked",
        )
        return None

    async def _check_range(
        self,
        after: tuple[Any] | None,
        last: tuple[Any] | None,
        at: Timestamp,
        present: Sequence[RawBSONDocument] | None,
    ) -> None:
        assert self._checkpoint is not None
        there = {identity(each["_id"]): each for each in present or ()}
        differing: list[tuple[Document, str]] = []
        beheaded: list[Document] = []
        async for packed in self._versions(after, last, at):
            self._verified.documents += 1
            try:
                versions = await self._archive.contents.fill(packed, whole=True, raw=True)
            except DamagedArchive as exc:
                self._add_record_finding(packed[0], "CONTENT", exc.message)
                self._add_flaws(find_link_flaws(packed))
                if not is_first(packed[-1]):
                    beheaded.append(packed[-1])
                there.pop(identity(packed[0]["doc"]), None)
                continue
            except HistoryLost:
                # Truncated while it was read.
                there.pop(identity(packed[0]["doc"]), None)
                continue
            self._add_flaws(find_chain_flaws(versions, version_field=self._version_field))
            for record, reason in checksum_flaws(versions, kept=self._archive.layout.keeps):
                self._add_record_finding(record, "CHECKSUM", reason)
            newest = versions[0]
            if not is_first(versions[-1]):
                beheaded.append(versions[-1])
            if present is not None:
                problem = _difference(newest, there.pop(identity(newest["doc"]), None))
                if problem is not None:
                    differing.append((newest, problem))
        await self._check_beheaded(beheaded)
        unknown = list(there.values()) if self._first_reading_done else []
        before = await self._just_before(at, differing, unknown)
        later = await self._read_later(at, differing, unknown)
        differing = [each for each in differing if identity(each[0]["doc"]) not in later]
        unknown = [each for each in unknown if identity(each["_id"]) not in later]
        for newest, problem in differing:
            key = identity(newest["doc"])
            if newest["at"] == at or key not in before or _difference(newest, before[key]):
                self._add_record_finding(newest, "PRESENT", problem)
        for document in unknown:
            if before.get(identity(document["_id"]), document) is not None:
                self._add_finding("MISSING", "exists, but has no version", document["_id"])

    async def _just_before(
        self,
        at: Timestamp,
        differing: Sequence[tuple[Document, str]],
        unknown: Sequence[RawBSONDocument],
    ) -> Mapping[Any, RawBSONDocument | None]:
        """Return documents that differ from their last version as they were just before `at`.

        The recorder may be in the middle of a transaction whose other writes have the same cluster
        time.
        Returns nothing if that is impossible.
        """
        keys = [newest["doc"] for newest, _ in differing] + [each["_id"] for each in unknown]
        if not keys or self._position.endswith("~"):
            return {}
        earlier = Timestamp(at.time, at.inc - 1) if at.inc else Timestamp(at.time - 1, 2**32 - 1)
        found = await self._archive.layout.find(
            {"_id": {"$in": keys}}, FindOptions(at=earlier, raw=True)
        )
        documents = {identity(each["_id"]): each for each in found}
        return {identity(each): documents.get(identity(each)) for each in keys}

    async def _read_later(
        self,
        at: Timestamp,
        differing: Sequence[tuple[Document, str]],
        unknown: Sequence[RawBSONDocument],
    ) -> set[Any]:
        """Return those of the same documents that a partition has read after the common position.

        They existed before, and are known since.
        """
        keys = [newest["doc"] for newest, _ in differing] + [each["_id"] for each in unknown]
        if not keys or not self._partitioned:
            return set()
        read = {"$or": [{"readAt": {"$exists": True}}, {"gap": True}]}
        found = await self._mongo.find(
            self._archive.name,
            {"doc": {"$in": keys}, "at": {"$gt": at}, **read},
            FindOptions(projection={"doc": 1}),
        )
        return {identity(each["doc"]) for each in found}

    async def _versions(
        self, after: tuple[Any] | None, last: tuple[Any] | None, at: Timestamp
    ) -> AsyncIterator[list[Document]]:
        """Yield each document's versions up to a time, the newest first."""
        bounds = [
            # In expressions values of all types are in one order, as in the index.
            {operator: ["$doc", {"$literal": bound[0]}]}
            for operator, bound in (("$gt", after), ("$lte", last))
            if bound is not None
        ]
        query = {"at": {"$lte": at}, "$expr": {"$and": bounds}}
        found: list[Document] = []
        pages = self._mongo.pages(
            self._archive.name, query, sort=[("doc", 1), ("v", -1)], size=_CHUNK, raw=True
        )
        async with aclosing(pages) as opened:
            async for page in opened:
                for record in page:
                    self._verified.versions += 1
                    self._verified.unsealed += "sum" not in record
                    self._verified.gaps += record.get("gap", False) and "unrecorded" not in record
                    if found and identity(found[0]["doc"]) != identity(record["doc"]):
                        yield found
                        found = []
                    found.append(record)
        if found:
            yield found

    async def _check_beheaded(self, oldest: Sequence[Document]) -> None:
        """Report documents whose first version claims a predecessor."""
        # They may have been truncated while they were read.
        now = await self._archive.by_token(
            [each["_id"] for each in oldest], projection={"prev": 1, "first": 1}
        )
        for each in oldest:
            record = now.get(each["_id"])
            if record is not None and not is_first(record):
                self._add_record_finding(each, "MISSING", "the versions before it are missing")

    @property
    def _first_reading_done(self) -> bool:
        return self._checkpoint is not None and self._checkpoint.baseline.done

    def _add_flaws(self, flaws: Iterable[Flaw]) -> None:
        for each in flaws:
            self._add_record_finding(each.record, each.kind, each.problem)

    def _add_record_finding(self, record: Mapping[str, Any], kind: str, problem: str) -> None:
        key = record["doc"]
        plain = bson.decode(key.raw, DECODED) if isinstance(key, RawBSONDocument) else key
        self._add_finding(kind, problem, plain, record["v"])

    def _add_finding(
        self, kind: str, problem: str, document: Any = None, version: int | None = None
    ) -> None:
        self._verified.findings.append(
            VerificationFinding(
                collection=self._archive.collection,
                kind=kind,
                problem=problem,
                document=document,
                version=version,
            )
        )


def _difference(newest: Document, document: RawBSONDocument | None) -> str | None:
    """Return how a document differs from its last version; None if it does not."""
    full = newest["full"]
    if document is None:
        return None if full is None else "is the last version, but the document does not exist"
    if full is None:
        return "is a deletion, but the document exists"
    content = without_reserved(document)
    if is_same(full, content):
        return None
    paths = [each.dotted for each in find_differences(full, content)]
    return f"differs from the document in {', '.join(paths)}"
