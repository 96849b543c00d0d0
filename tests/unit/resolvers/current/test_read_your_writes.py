"""Reads of history wait for the writes of this process, and for no others."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Decimal128, Timestamp

from revstream.resolvers.current.read_your_writes import OwnWrites
from revstream.resolvers.current.version_number_cache import VersionNumberCache
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.live.hub import Hub


class Progress:
    """Records each wait; the archive is never late, unless it `fails`."""

    def __init__(self, *, fails: bool = False) -> None:
        self.waited: list[tuple[str, str]] = []
        self._fails = fails

    async def wait(self, collection: str, token: str) -> None:
        self.waited.append((collection, token))
        if self._fails:
            raise ArchiveBehind("the archive has not reached it")


@pytest.fixture
def progress() -> Progress:
    return Progress()


def at(second: int) -> Timestamp:
    return Timestamp(1_700_000_000 + second, 1)


def token(second: int) -> str:
    return resume_tokens.token_from_time(at(second))


def own_writes(progress: Progress, **options: Any) -> OwnWrites:
    return OwnWrites(progress, VersionNumberCache(Hub([], position="")), **options)  # type: ignore[arg-type]


async def test_a_process_without_writes_does_not_wait(progress: Progress) -> None:
    """Reads of other processes' writes are as fresh as the archive."""
    writes = own_writes(progress)
    await writes.recorded("things")
    await writes.recorded("things", ["a"])
    assert progress.waited == []


async def test_a_read_waits_for_the_documents_that_it_names(progress: Progress) -> None:
    """The read waits for the latest write to any of them, and not for other documents."""
    writes = own_writes(progress)
    writes.note("things", "a", at(1))
    writes.note("things", "b", at(2))
    writes.note("things", "a", at(3))
    writes.note("things", "c", at(9))
    await writes.recorded("things", ["a", "b", "x"])
    await writes.recorded("things", ["b"])
    await writes.recorded("things", ["x"])
    await writes.recorded("things", [])
    assert progress.waited == [("things", token(3)), ("things", token(2))]


async def test_a_read_of_all_documents_waits_for_the_last_write(progress: Progress) -> None:
    """The order in which writes are acknowledged does not matter."""
    writes = own_writes(progress)
    writes.note("things", "a", at(5))
    writes.note("things", "b", at(4))
    writes.note("others", "a", at(9))
    await writes.recorded("things")
    assert progress.waited == [("things", token(5))]


async def test_ids_that_mongodb_calls_equal_are_one_document(progress: Progress) -> None:
    """1, 1.0 and Decimal128("1") are equal; true is a different id."""
    writes = own_writes(progress)
    writes.note("things", 1, at(1))
    writes.note("things", {"a": [1]}, at(2))
    await writes.recorded("things", [1.0])
    await writes.recorded("things", [Decimal128("1")])
    await writes.recorded("things", [{"a": [1]}])
    await writes.recorded("things", [True])
    assert progress.waited == [("things", token(n)) for n in (1, 1, 2)]


async def test_for_evicted_documents_a_read_waits_for_the_latest_write(progress: Progress) -> None:
    """A bounded memory may make a read wait for too much, never for too little."""
    writes = own_writes(progress, most=2)
    for second, key in enumerate("abca", 1):
        writes.note("things", key, at(second))
    await writes.recorded("things", ["x"])
    await writes.recorded("things", ["a"])
    assert progress.waited == [("things", token(2)), ("things", token(4))]


async def test_a_read_that_waits_too_long_is_an_error() -> None:
    """History without the writes of the same process is never returned."""
    writes = own_writes(Progress(fails=True))
    writes.note("things", "a", at(1))
    with pytest.raises(ArchiveBehind):
        await writes.recorded("things", ["a"])
