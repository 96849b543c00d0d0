"""Cache of last versions: read once, in bulk, and bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import bson
from bson import Decimal128
from bson.raw_bson import RawBSONDocument

from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.recording.versions.last_version_cache import LastVersionCache
from revstream.streams.versioning.version import LastVersion
from tests.support.streams import raw


def last(number: int, size: int = 0) -> LastVersion:
    return LastVersion(token=f"{number:016X}", number=number, full=raw({"_id": 1, "x": "x" * size}))


class CountingArchive:
    """An archive that records each read."""

    def __init__(self, *known: Any) -> None:
        self.reads: list[list[Any]] = []
        self.known = {identity(key): last(1) for key in known}

    async def last_versions(self, keys: Iterable[Any]) -> dict[Any, LastVersion]:
        self.reads.append(list(keys))
        wanted = {identity(key) for key in self.reads[-1]}
        return {name: each for name, each in self.known.items() if name in wanted}


def remembered(shelf: CountingArchive, capacity_bytes: int = 10**6) -> LastVersionCache:
    return LastVersionCache(shelf, capacity_bytes=capacity_bytes)  # type: ignore[arg-type]


async def test_missing_versions_are_read_together_and_once() -> None:
    """There is one read for all; a document without versions is cached as such."""
    shelf = CountingArchive(1, 2)
    lasts = remembered(shelf)
    await lasts.load([1, 3, 1.0])
    await lasts.load([1, 2, 3])
    await lasts.load([1, 2, 3])
    assert shelf.reads == [[1.0, 3], [2]] or shelf.reads == [[1, 3], [2]]
    assert lasts.get(3) is None
    assert lasts.get(1) == last(1)


async def test_a_raw_document_is_cached_as_bytes_alone() -> None:
    """Its decoded fields take several times the memory, and are not counted.

    For versions that are put, `make_version` ensures it.
    """
    shelf = CountingArchive(1)
    given = shelf.known[1]
    assert given.full is not None
    assert given.full["_id"] == 1
    lasts = remembered(shelf)
    await lasts.load([1])
    kept = lasts.get(1)
    assert kept is not None
    assert kept.full is not given.full
    assert kept.full == given.full


async def test_ids_are_distinguished_as_in_mongodb() -> None:
    """True is not 1; a decimal equals its number; NaN equals itself."""
    shelf = CountingArchive(1, float("nan"), Decimal128("2"))
    lasts = remembered(shelf)
    await lasts.load([True, 1, float("nan"), 2])
    assert lasts.get(True) is None
    assert lasts.get(Decimal128("1")) == lasts.get(float("nan")) == lasts.get(2) == last(1)


async def test_a_version_that_was_put_is_returned() -> None:
    """A newer version replaces the one before."""
    lasts = remembered(CountingArchive())
    await lasts.load([1])
    lasts.put(1, last(5))
    lasts.put(1, last(6))
    assert lasts.get(1) == last(6)


async def test_the_least_recently_used_are_evicted_beyond_the_bytes() -> None:
    """Eviction happens between batches, after an announcement: evicted versions are read again."""
    shelf = CountingArchive()
    lasts = remembered(shelf, capacity_bytes=4 * last(1, 100).size_bytes)
    assert not lasts.crowded
    await lasts.load([1, 2, 3, 4])
    for key in (1, 2, 3, 4):
        lasts.put(key, last(key, 100))
    assert not lasts.crowded
    await lasts.load([5])
    lasts.put(5, last(5, 100))
    assert lasts.crowded
    assert [lasts.get(key) for key in (1, 2, 3, 5, 4)] == [last(n, 100) for n in (1, 2, 3, 5, 4)]
    await lasts.load([])
    assert not lasts.crowded
    await lasts.load([3, 5, 4])
    assert shelf.reads == [[1, 2, 3, 4], [5]]
    await lasts.load([1])
    assert shelf.reads[2:] == [[1]]


async def test_sizes_are_counted_through_replacement_and_clearing() -> None:
    """A replaced version no longer counts; an empty cache has size 0."""
    lasts = remembered(CountingArchive(), capacity_bytes=10**9)
    await lasts.load([1, 2])
    for size in (10, 5000, 0, 300):
        lasts.put(1, last(1, size))
    lasts.put(2, last(2, 7))
    assert lasts._size_bytes == last(1, 300).size_bytes + last(2, 7).size_bytes
    lasts.clear()
    assert lasts._size_bytes == 0
    await lasts.load([1])
    assert lasts.get(1) is None


async def test_eviction_happens_only_after_its_announcement() -> None:
    """A version may still be on its way into the archive, and must not be read from there."""
    shelf = CountingArchive()
    lasts = remembered(shelf, capacity_bytes=2 * last(1, 100).size_bytes)
    await lasts.load([1, 2])
    lasts.put(1, last(1, 100))
    lasts.put(2, last(2, 100))
    assert not lasts.crowded
    await lasts.load([3, 4, 5])
    assert lasts.get(1) == last(1, 100)


async def test_a_cached_document_does_not_keep_the_reply_in_memory() -> None:
    """The driver's large documents are views of the whole reply."""
    shelf = CountingArchive()
    document = RawBSONDocument(memoryview(bson.encode({"_id": 1, "x": "x" * 5000})), RAW)
    shelf.known[1] = LastVersion(token="A", number=1, full=document)
    lasts = remembered(shelf)
    await lasts.load([1])
    found = lasts.get(1)
    assert found is not None
    assert found.full is not None
    assert isinstance(found.full.raw, bytes)
    assert found.full.raw == document.raw


async def test_versions_loaded_for_a_batch_stay_beyond_the_limit() -> None:
    """Known keys are not evicted to make room for the others."""
    shelf = CountingArchive(1, 2)
    lasts = remembered(shelf, capacity_bytes=1)
    await lasts.load([1])
    await lasts.load([1, 2])
    assert lasts.get(1) == lasts.get(2) == last(1)
