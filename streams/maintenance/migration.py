"""Migration of a self-versioned collection to the ARCHIVE layout, with its history and while in
use.

The new collection gets the current documents, and its archive every version with its token and
number, so that clients' resume tokens stay valid. Versions are copied in token order, so an
interrupted migration continues after the last one in the new archive; each step may be repeated.
Applications write to the old collection until `seal` makes MongoDB refuse that.
Source: docs/decisions/0022-migration.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import bson
from bson.raw_bson import RawBSONDocument

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.coordination.checkpoint import Baseline, Checkpoint, Checkpoints
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import Unsuitable
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.maintenance.collection_rules import CarriedRules, carry_over, read_rules
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import DECODED, Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.transactions import WriteSession, write
from revstream.streams.versioning.version import CHANGE_FIELD

__all__ = ["Migration", "MigrationResult"]

_PAGE = 500
_MOST_FINDINGS = 100
# Fields with a record's storage of content, which may differ in the new archive.
_OF_THE_LAYOUT = ("packed", "kept", "parts")
_BESIDE = ("drafts", "comments")
# Migrations that have begun: `{_id: the new collection, of: the old one}`.
_BEGUN = "revstream.moves"
# Sealed collections: `{_id: its name, validation: the validation before}`.
_SEALED = "revstream.sealed"
# Validator that no document passes.
_SEAL: Document = {"$expr": False}
Report = Callable[[int, int], None]


@dataclass
class MigrationResult:
    """Content of the new collection.

    Attributes:
        findings: Differences from the old collection, at most a hundred.
        rules: The old collection's validator and indexes.
    """

    versions: int = 0
    documents: int = 0
    findings: list[str] = field(default_factory=list)
    rules: CarriedRules = field(default_factory=CarriedRules)


class Migration:
    """Migration of one collection.

    Args:
        old: Its archive, with its layout.
        to: Name of the new collection, which no model contains yet.
    """

    def __init__(self, mongo: Mongo, old: Archive, to: str, progress: ArchiveProgress) -> None:
        self._mongo = mongo
        self._old = old
        self._to = to
        self._new = Archive(mongo, to)
        self._progress = progress
        self._checkpoints = Checkpoints(mongo)

    async def copy(self, report: Report = lambda done, total: None) -> int:
        """Copy recorded versions and current documents. Returns how many versions.

        Raises:
            Unsuitable: The new collection has other content.
            HistoryLost: The collection no longer stores the content of a version.
        """
        await self._check_place()
        upto = await self._progress.position(self._old.collection)
        if not upto:
            raise Unsuitable(
                f"{self._old.collection}: never recorded, expected a recorder, which reads its "
                "versions; start `revstream serve` or `revstream record` with this model"
            )
        if not await self._mongo.existing([self._old.collection]):
            raise Unsuitable(
                f"{self._old.collection}: the collection does not exist, expected one to move; "
                "check the name"
            )
        await self._new.prepare()
        total = await self._mongo.estimated_count(self._old.name)
        position, there = await self._position()
        copied = 0
        while records := await self._page(position, upto):
            copied += await self._take(records)
            there += len(records)
            position = records[-1]["_id"]
            report(min(there, total), total)
        report(total, total)
        return copied

    async def wait_recorded(self, *, limit_s: float) -> None:
        """Wait until the recorder has reached the present.

        Raises:
            ArchiveBehind: Not within `limit_s`.
        """
        now = resume_tokens.token_from_time(await self._mongo.operation_time())
        await self._progress.wait(self._old.collection, now, limit_s=limit_s)

    @property
    def sealable(self) -> list[str]:
        """Return the names of the old collection: two where previous versions are stored
        separately.
        """
        return [self._old.collection, *self._old.layout.beside]

    async def seal(self) -> list[str]:
        """Make MongoDB refuse writes to the old collection. Returns its names.

        Deletions are not refused: `verify` finds them. The previous validation is stored first; see
        `opened_by`.
        """
        names = self.sealable
        for name in names:
            validation = (await read_rules(self._mongo, name)).validation
            if validation.get("validator") != _SEAL:
                await self._mongo.find_one_and_update(
                    _SEALED, {"_id": name}, {"$set": {"validation": validation}}, upsert=True
                )
            await self._mongo.command(
                {
                    "collMod": name,
                    "validator": _SEAL,
                    "validationLevel": "strict",
                    "validationAction": "error",
                }
            )
        return names

    async def opened_by(self, names: Sequence[str]) -> list[Document]:
        """Return the commands that open sealed collections again, with their previous
        validation.
        """
        found = await self._mongo.find(_SEALED, {"_id": {"$in": list(names)}})
        noted = {each["_id"]: each["validation"] for each in found}
        free = {"validator": {}, "validationLevel": "strict", "validationAction": "error"}
        return [{"collMod": name, **free, **noted.get(name, {})} for name in names]

    async def finish(self, report: Report = lambda done, total: None) -> MigrationResult:
        """Copy the rest of a collection that is no longer written, compare, and store the new
        checkpoint.

        Raises:
            ArchiveBehind: The recorder has not reached the present.
        """
        await self.wait_recorded(limit_s=60)
        await self.copy(report)
        for name in _BESIDE:
            await self._copy_beside(name)
        moved = await self.verify()
        if not moved.findings:
            start = await self._progress.checkpoint(self._old.collection)
            assert start is not None
            moved.rules = await self._carry_over()
            # After our own writes, which are no versions.
            reached = resume_tokens.token_from_time(await self._mongo.operation_time())
            begins = Checkpoint(reached, start.start, Baseline(done=True))
            await self._checkpoints.save(Partition(self._to).name, begins, fencing_token=0)
            await self._mongo.remove_all(_BEGUN, {"_id": self._to})
        return moved

    async def _carry_over(self) -> CarriedRules:
        """Apply the rules of the old collection, as they were before it was sealed, to the new
        one.
        """
        name, layout = self._old.collection, self._old.layout
        rules = await read_rules(self._mongo, name)
        (opened,) = await self.opened_by([name])
        validation = {each: opened[each] for each in opened if each != "collMod"}
        assert isinstance(layout, SelfVersionedLayout)
        return await carry_over(
            self._mongo, replace(rules, validation=validation), layout, self._to
        )

    async def verify(self) -> MigrationResult:
        """Compare every version and every current document, in both directions."""
        moved = MigrationResult()
        async for old, new in self._pairs():
            one, other = {each["_id"]: each for each in old}, {each["_id"]: each for each in new}
            moved.versions += len(other)
            for token in sorted({*one, *other}):
                if len(moved.findings) >= _MOST_FINDINGS:
                    return moved
                problem = _difference(one.get(token), other.get(token))
                if problem is not None:
                    record = one.get(token) or other[token]
                    where = f"{record['doc']!r} version {record['v']}"
                    moved.findings.append(f"{where}: {problem}")
        await self._compare_present(moved)
        return moved

    async def _check_place(self) -> None:
        if await self._checkpoints.load(Partition(self._to).name) is not None:
            raise Unsuitable(
                f"{self._to}: already recorded, expected a new collection; the move is finished, "
                "or the name is used by another: choose a new one"
            )
        mine = {"_id": self._to, "of": self._old.collection}
        # A migration killed early may have written documents, and no version yet.
        begun = await self._mongo.find(_BEGUN, mine) or await self._mongo.find(
            self._new.name, {}, FindOptions(limit=1)
        )
        if begun:
            return
        if await self._mongo.find(self._to, {}, FindOptions(limit=1)):
            raise Unsuitable(
                f"{self._to}: has documents, expected an empty collection; choose another name"
            )
        await self._mongo.find_one_and_update(
            _BEGUN, {"_id": self._to}, {"$set": mine}, upsert=True
        )

    async def _position(self) -> tuple[str, int]:
        """Return the token after which to continue, and the number of versions up to there.

        That is a page before the end, since the last page may be incomplete.
        """
        count = await self._mongo.estimated_count(self._new.name)
        last = await self._mongo.find(
            self._new.name,
            {},
            FindOptions(projection={"_id": 1}, sort=[("_id", -1)], limit=_PAGE + 1),
        )
        return (last[-1]["_id"], count - _PAGE) if len(last) > _PAGE else ("", 0)

    async def _page(self, position: str, upto: str) -> list[Any]:
        query = {"_id": {"$gt": position, "$lte": upto}}
        return await self._old.find(query, FindOptions(sort=[("_id", 1)], limit=_PAGE, raw=True))

    async def _take(self, records: Sequence[Any]) -> int:
        """Copy documents, then their versions, which mark the progress. Returns how many versions
        were new.
        """
        newest = {identity(each["doc"]): each for each in records}
        present = [each for each in newest.values() if each.get("full") is not None]
        gone = [each["doc"] for each in newest.values() if each.get("full") is None]

        async def work(writing: WriteSession) -> None:
            if present:
                changes = [_replaced(each) for each in present]
                await writing.change_each(self._to, changes, upsert=True)
            if gone:
                await writing.remove_all(self._to, {"_id": {"$in": gone}})

        await write(self._mongo, work)
        there = await self._mongo.find(
            self._new.name,
            {"_id": {"$in": [each["_id"] for each in records]}},
            FindOptions(projection={"_id": 1}),
        )
        known = {each["_id"] for each in there}
        made = [_own(each) for each in records if each["_id"] not in known]
        if not await self._new.insert(made):
            raise Unsuitable(
                f"{self._new.name}: written by another process, expected only this move; run one "
                "move at a time"
            )
        return len(made)

    async def _copy_beside(self, name: str) -> None:
        old, new = f"{self._old.collection}.{name}", f"{self._to}.{name}"
        now = await self._mongo.operation_time()
        pages = self._mongo.pages(old, {}, sort=[("_id", 1)], size=_PAGE, at=now)
        async with aclosing(pages) as opened:
            async for documents in opened:
                changes = [(each["_id"], [_to_be(each)]) for each in documents]

                async def work(writing: WriteSession, changes: Any = changes) -> None:
                    await writing.change_each(new, changes, upsert=True)

                await write(self._mongo, work)

    async def _pairs(self) -> AsyncIterator[tuple[list[Any], list[Any]]]:
        """Yield the versions of both archives, page by page, between the same tokens."""
        position = ""
        while True:
            old = await self._page(position, "~")
            end = old[-1]["_id"] if len(old) == _PAGE else "~"
            between = {"_id": {"$gt": position, "$lte": end}}
            new = await self._new.find(between, FindOptions(sort=[("_id", 1)], raw=True))
            yield old, new
            if end == "~":
                return
            position = end

    async def _compare_present(self, moved: MigrationResult) -> None:
        now = await self._mongo.operation_time()
        pages = self._old.layout.pages({}, size=_PAGE, at=now)
        async with aclosing(pages) as opened:
            async for documents in opened:
                ids = [each["_id"] for each in documents]
                found = await self._mongo.find(self._to, {"_id": {"$in": ids}})
                new = {identity(each["_id"]): each for each in found}
                moved.documents += len(found)
                for each in documents:
                    if len(moved.findings) >= _MOST_FINDINGS:
                        return
                    other = new.get(identity(each["_id"]))
                    if other is None or _encoded(other) != _encoded(each):
                        what = "is missing" if other is None else "differs"
                        moved.findings.append(f"{each['_id']!r}: the current document {what}")
        there = await self._mongo.count(self._to, {})
        if there != moved.documents:
            moved.findings.append(
                f"{self._to}: {there:,} documents, expected {moved.documents:,} current ones"
            )


def _own(record: Any) -> Document:
    """Return the record of a version whose content the archive stores."""
    return {name: value for name, value in record.items() if name not in _OF_THE_LAYOUT}


def _replaced(record: Any) -> tuple[Any, list[Document]]:
    content: Document = dict(record["full"].items())
    if record.get("change") is not None:
        content[CHANGE_FIELD] = record["change"]
    return record["doc"], [_to_be(content)]


def _to_be(document: Mapping[str, Any]) -> Document:
    return {"$replaceWith": {"$literal": document}}


def _difference(old: Any, new: Any) -> str | None:
    if old is None or new is None:
        return f"exists only in the {'old' if new is None else 'new'} archive"
    one, other = _own(old), _own(new)
    every = sorted({*one, *other})
    names = [name for name in every if _plain(one.get(name)) != _plain(other.get(name))]
    return f"differs in {', '.join(names)}" if names else None


def _plain(value: Any) -> Any:
    return bytes(value.raw) if isinstance(value, RawBSONDocument) else value


def _encoded(document: Mapping[str, Any]) -> bytes:
    """Encode a document independent of its field order."""
    ordered = dict(sorted(document.items()))
    return bson.encode(ordered, codec_options=DECODED)
