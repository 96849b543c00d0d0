"""Version numbers of current documents, which are the archive's where documents do not count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from bson import Timestamp

from revstream.model.definition import Entity
from revstream.resolvers.current.batcher import BatchLoaders
from revstream.resolvers.current.read_your_writes import OwnWrites, ReadPositions
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.versioning.version import carried_number

__all__ = ["DocumentNumbers"]


class DocumentNumbers:
    """Reads of the version numbers of documents that were read.

    Args:
        archives: by collection; sources of version numbers that documents do not carry.

    Attributes:
        lookups: batch loaders of reads by key.
    """

    def __init__(
        self, mongo: Mongo, archives: Mapping[str, Archive], own_writes: OwnWrites
    ) -> None:
        self._mongo = mongo
        self._archives = archives
        self._own_writes = own_writes
        self.lookups = BatchLoaders()

    def read_positions(self) -> ReadPositions:
        """Return resume tokens by collection that later reads reach; an argument of `numbers`."""
        return self._own_writes.read_positions()

    async def numbers(
        self, entity: Entity, documents: Sequence[Document], seen: str
    ) -> list[int | None]:
        """Return the version numbers of documents, with one lookup.

        The number is the one in the document, minus the offset of a copied counter, or the last
        archived one if that is higher (writers that do not count). It is never the number of a
        version newer than the document: a write that expects that version would overwrite it.

        Args:
            documents: n documents, read with their version field.
            seen: a token of `seen`, read before the documents.

        Returns:
            n numbers; None for a document that carries no number and was recorded after the read,
                or never.

        Raises:
            ArchiveBehind: a document carries no number, and the recorder did not reach it in time.
        """
        at = resume_tokens.cluster_time(seen)
        archive = self._archives.get(entity.collection)
        # Current documents are served even when no recorder runs.
        with suppress(ArchiveBehind):
            await self._own_writes.recorded(entity.collection, [each["_id"] for each in documents])
        if archive is None:
            return [carried_number(each, entity.version) or 0 for each in documents]

        async def read(wanted: Sequence[tuple[Any, Timestamp]]) -> Sequence[tuple[int, int]]:
            archived = await self._own_writes.archived(entity.collection)
            asked = [{"key": key, "at": at} for key, at in wanted]
            records = await archive.newest(asked, limit=1, projection={"v": 1, "offset": 1})
            numbers = {each["wanted"]: (int(each["v"]), each.get("offset", 0)) for each in records}
            if not archive.layout.keeps:
                learned = [
                    (wanted[each["wanted"]][0], int(each["v"]), each["_id"])
                    for each in records
                    if not each.get("offset")
                ]
                # Later versions were left out, though the archive may have them.
                oldest = resume_tokens.token_from_time(min(at for _, at in wanted))
                upto = min(archived, oldest)
                self._own_writes.numbers.learn(entity.collection, learned, upto)
            return [numbers.get(n, (0, 0)) for n in range(len(asked))]

        wanted = [(each["_id"], at) for each in documents]
        found = await self.lookups.ask(("numbers", entity.collection), wanted, read)
        numbers: list[int | None] = [
            max((carried_number(document, entity.version) or 0) - offset, number)
            for document, (number, offset) in zip(documents, found, strict=True)
        ]
        lacking = [n for n, number in enumerate(numbers) if not number]
        if lacking:
            await self._own_writes.settled(entity.collection, await self._mongo.operation_time())
            first = await self._first_numbers(entity, archive, [wanted[n] for n in lacking])
            for n, number in zip(lacking, first, strict=True):
                numbers[n] = number
        return numbers

    def known_numbers(
        self, entity: Entity, documents: Sequence[Document], seen: str
    ) -> list[int | None]:
        """Return cached version numbers without a read, None if unknown; see `numbers`."""
        known = self._own_writes.numbers.last_numbers(entity.collection, documents, seen)
        field = entity.version
        if field is None or [each.get(field) for each in documents] == known:
            return known
        return [
            number
            # Most documents carry exactly this number.
            if number is None or document.get(field) == number
            else max(carried_number(document, field) or 0, number)
            for document, number in zip(documents, known, strict=True)
        ]

    async def _first_numbers(
        self, entity: Entity, archive: Archive, wanted: Sequence[tuple[Any, Timestamp]]
    ) -> list[int | None]:
        """Return the numbers of the first versions of documents that were recorded after they were
        read.

        Args:
            wanted: n (`_id`, cluster time) of documents without a version at that time.

        Returns:
            n numbers of insertions; None where the first version is no insertion, or missing.
        """
        records = await archive.find(
            {"$or": [{"doc": {"$eq": key}, "at": {"$gt": at}} for key, at in wanted]},
            FindOptions(projection={"doc": 1, "v": 1, "op": 1}, sort=[("_id", -1)]),
        )
        # Sorted newest first: the dict keeps the oldest version of each document.
        firsts = {identity(each["doc"]): each for each in records}
        numbers: list[int | None] = []
        for key, _ in wanted:
            first = firsts.get(identity(key))
            # Versions other than insertions may be writes after the read.
            there = first is not None and first["op"] == "INSERT"
            numbers.append(int(first["v"]) if there and first is not None else None)
        return numbers
