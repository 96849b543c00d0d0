"""The archive: refused inserts, lookups, and preparation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from bson import Decimal128, Int64, MinKey, ObjectId, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from revstream.streams.archive.indexes import INDEXES, last_version_stages
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import identity
from revstream.streams.core import resume_tokens
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import LastVersion, make_version
from tests.support.streams import check_chains, event, token_at

Client = MongoClient[dict[str, Any]]


@pytest.fixture
async def archive(mongo: Mongo) -> Archive:
    created = Archive(mongo, "things")
    await created.prepare()
    return created


def versions(
    key: Any, seconds: Sequence[int], last: LastVersion | None = None
) -> tuple[list[Document], LastVersion]:
    """Return records of updates of one document at these times, in order."""
    records = []
    for at in seconds:
        one = event(at, key=key, after={"_id": key, "n": at}, operation="replace")
        record, last = make_version(
            token=one.token,
            at=one.at,
            wall=one.wall,
            key=key,
            operation="REPLACE",
            after=one.after,
            last=last,
            version_field=None,
            event=one,
        )
        records.append(record)
    assert last is not None
    return records, last


async def everything(archive: Archive) -> list[Document]:
    return await archive.scan("", "~", limit=10**6)


async def test_records_are_inserted_in_order(archive: Archive) -> None:
    """The chain is whole after each insert."""
    records, last = versions(1, [5, 6])
    assert await archive.insert(records)
    more, _ = versions(1, [40], last)
    assert await archive.insert(more)
    found = await everything(archive)
    check_chains(found)
    assert len(found) == 3


async def test_a_record_that_exists_is_refused(archive: Archive) -> None:
    """It has an existing token, or an existing document and number.

    Records before it in the batch are inserted.
    """
    records, _ = versions(1, [5, 7])
    assert await archive.insert(records[1:])
    assert not await archive.insert(records)
    assert [each["_id"] for each in await everything(archive)] == [token_at(5), token_at(7)]
    other, _ = versions(1, [6])  # number 1 again, with another token
    assert not await archive.insert(other)


async def test_a_version_ends_where_the_one_after_it_begins(archive: Archive) -> None:
    """Ends come for ids of every type, in the order requested, also over gaps in the numbers.

    The last version, and one that never was, have no end.
    """
    keys = [1, True, "$name", {"b": 1, "a": 2}, {"a": 2, "b": 1}, float("nan"), None, MinKey()]
    for n, key in enumerate(keys):
        records, _ = versions(key, [10 + n, 30 + n, 50 + n])
        records[2]["v"] = 9
        assert await archive.insert(records)
    wanted = [(key, number) for key in [*keys, "missing"] for number in (2, 1, 9, 2, 5)]
    expected = [
        None if each is None else event(each + n).wall
        for n, _ in enumerate(keys)
        for each in (50, 30, None, 50, 50)
    ]
    assert await archive.replacement_times(wanted) == [*expected, *[None] * 5]
    assert await archive.replacement_times([]) == []


async def test_the_end_of_a_version_costs_the_same_however_many_versions(
    archive: Archive, mongo: Mongo, client: Client
) -> None:
    """Each is one key of an index.

    The server's profiler shows it, since a lookup cannot be explained.
    """
    records, _ = versions(1, range(1, 800))
    assert await archive.insert(records)
    database = client[mongo.name]
    database.command({"profile": 2})
    assert await archive.replacement_times([(1, 5), (1, 500), (1, 799)]) == [
        event(6).wall,
        event(501).wall,
        None,
    ]
    database.command({"profile": 0})
    [cost] = database["system.profile"].find({"command.aggregate": 1})
    assert cost["docsExamined"] <= 2
    assert cost["keysExamined"] <= 3


async def test_the_last_versions_of_many_documents_are_one_read(archive: Archive) -> None:
    """Ids of every type are read, ids without versions left out, and full documents stay raw."""
    keys = [1, True, "$name", {"b": 1, "a": 2}, {"a": 2, "b": 1}, float("nan"), None, MinKey()]
    keys += [ObjectId("0" * 24), Decimal128("2.5"), "", b"x"]
    for n, key in enumerate(keys):
        records, _ = versions(key, [10 + n, 50 + n])
        assert await archive.insert(records)
    found = await archive.last_versions([*keys, "missing", 7, False])
    assert set(found) == {identity(key) for key in keys}
    for n, key in enumerate(keys):
        last = found[identity(key)]
        assert (last.token, last.number) == (token_at(50 + n), 2)
        assert isinstance(last.full, RawBSONDocument)
        assert last.full["n"] == 50 + n
    # The id has another numeric type.
    assert identity(1) in await archive.last_versions([1.0])
    assert identity(2.5) in await archive.last_versions([2.5])
    assert await archive.last_versions([]) == {}


async def test_the_last_version_within_a_transaction_is_the_one_with_the_highest_number(
    archive: Archive,
) -> None:
    """Several versions have the same cluster time."""
    records, _ = versions(1, [5, 5, 5])
    for n, record in enumerate(records):
        record["_id"] = token_at(5, n)
        record["prev"] = token_at(5, n - 1) if n else None
    assert await archive.insert(records)
    assert (await archive.last_versions([1]))[1].number == 3


async def test_the_newest_versions_up_to_a_time_are_found_for_each_document(
    archive: Archive,
) -> None:
    """Each document's versions come newest first, up to a limit, by the index for this query."""
    for key in (1, 2):
        records, _ = versions(key, [10 * key + n for n in range(4)])
        await archive.insert(records)
    wanted = [
        {"key": 1},
        {"key": 2, "at": Timestamp(22, 1)},
        {"key": 1, "at": Timestamp(9, 1)},
        {"key": 1, "at": Timestamp(10, 1)},
    ]
    found = await archive.newest(wanted, limit=2, projection={"v": 1})
    numbers: dict[int, list[int]] = {}
    for each in found:
        numbers.setdefault(each["wanted"], []).append(each["v"])
    assert numbers == {0: [4, 3], 1: [3, 2], 3: [1]}
    found = await archive.newest(wanted[:1], limit=5, match=[{"$match": {"v": {"$lte": 2}}}])
    assert [each["v"] for each in found] == [2, 1]
    assert await archive.newest([], limit=5) == []


async def test_the_newest_versions_at_one_time_equal_those_of_single_reads(
    archive: Archive,
) -> None:
    """One scan of an index returns them, for ids of every type and for duplicates."""
    keys = [1, True, "$name", {"b": 1, "a": 2}, float("nan"), None, MinKey(), ObjectId("0" * 24)]
    for n, key in enumerate(keys):
        records, _ = versions(key, [10 + n, 30 + n, 50 + n])
        assert await archive.insert(records)
    keys_with_duplicates = [*keys, 1.0, "$name", "missing", False]
    for moment in (None, Timestamp(9, 1), Timestamp(33, 1), Timestamp(99, 1)):
        wanted = [
            {"key": key} if moment is None else {"key": key, "at": moment}
            for key in keys_with_duplicates
        ]
        several: list[Any] = [{"$match": {}}]
        for projection in (None, {"v": 1}, {"doc": 1, "full.n": 1}):
            one = await archive.newest(wanted, limit=1, projection=projection)
            others = await archive.newest(wanted, limit=1, projection=projection, match=several)
            # Compared as text: a NaN is not equal to itself.
            found, expected = (
                {each["wanted"]: repr(sorted({**each, "doc": 0}.items())) for each in way}
                for way in (one, others)
            )
            assert found == expected
            assert len(one) == len(others)


async def test_the_newest_versions_at_one_time_cost_the_same_however_many_versions(
    archive: Archive, mongo: Mongo, client: Client
) -> None:
    """Each document costs two keys of the index and one version."""
    for key in range(20):
        records, _ = versions(key, range(1 + key, 800, 20))
        assert await archive.insert(records)
    stages = [
        {"$match": {"doc": {"$in": list(range(20))}}},
        *last_version_stages(Timestamp(410, 1)),
    ]
    command = {"aggregate": archive.name, "pipeline": stages, "cursor": {}}
    explained = client[mongo.name].command({"explain": command, "verbosity": "executionStats"})
    costs = explained["stages"][0]["$cursor"]["executionStats"]
    assert costs["nReturned"] == costs["totalDocsExamined"] == 20
    assert costs["totalKeysExamined"] <= 41


async def test_records_are_scanned_in_token_order_between_two_tokens(archive: Archive) -> None:
    """The first token is excluded, the last included.

    Pages have a limit, and may be of one document.
    """
    for key, seconds in ((1, [1, 3, 5]), (2, [2, 4, 6])):
        records, _ = versions(key, seconds)
        await archive.insert(records)
    found = await archive.scan(token_at(1), token_at(5), limit=3)
    assert [each["_id"] for each in found] == [token_at(n) for n in (2, 3, 4)]
    found = await archive.scan(token_at(4), token_at(9), limit=9)
    assert [each["_id"] for each in found] == [token_at(n) for n in (5, 6)]
    found = await archive.scan("", "~", limit=9, match={"doc": 2})
    assert [each["_id"] for each in found] == [token_at(n) for n in (2, 4, 6)]


async def test_records_are_found_by_their_tokens(archive: Archive) -> None:
    """Tokens without a record are left out."""
    records, _ = versions(1, [1, 2, 3])
    await archive.insert(records)
    found = await archive.by_token([token_at(3), token_at(1), token_at(9)], projection={"v": 1})
    assert found == {
        n_token: {"_id": n_token, "v": n} for n, n_token in ((1, token_at(1)), (3, token_at(3)))
    }
    assert await archive.by_token([]) == {}


async def test_the_documents_that_have_versions_are_listed_in_index_order(
    archive: Archive,
) -> None:
    """The list covers all types, between two bounds, with each document once."""
    keys: list[Any] = [None, -1, 2.5, Int64(2**40), "a", "b", {"a": 1}, b"x", False, True]
    for n, key in enumerate(keys):
        records, _ = versions(key, [10 + n, 50 + n])
        await archive.insert(records)
    assert await archive.document_ids(None, None, limit=100) == keys
    assert await archive.document_ids(None, ("b",), limit=100) == keys[:5]
    assert await archive.document_ids(("b",), None, limit=3) == keys[5:8]
    assert await archive.document_ids((2,), ({"a": 1},), limit=100) == keys[2:6]
    assert await archive.document_ids((None,), (-1,), limit=100) == [None]
    assert await archive.document_ids(("$doc",), ("$doc",), limit=100) == []


async def test_preparing_an_archive_again_changes_nothing(
    archive: Archive, client: Client, mongo: Mongo
) -> None:
    """Its indexes exist after the first start."""
    before = client[mongo.name]["things.versions"].index_information()
    await archive.prepare()
    assert client[mongo.name]["things.versions"].index_information() == before
    assert len(before) == len(INDEXES) + 1


async def test_an_obsolete_index_is_dropped(mongo: Mongo, archive: Archive) -> None:
    """A missing index or archive is no error."""
    await mongo.create_index(archive.name, [("span", 1), ("at", 1)], name="intervals")
    for _ in range(2):
        await archive.prepare()
        assert "intervals" not in await mongo.raw(archive.name).index_information()
    await mongo.drop_index("never", "intervals")


async def test_tokens_of_records_and_of_times_have_one_order(archive: Archive) -> None:
    """The archive's `_id` order is stream order: an event, its drop's records, baselines."""
    event_token = token_at(5)
    places = [
        resume_tokens.time_prefix(Timestamp(5, 1)),
        event_token,
        resume_tokens.numbered_token(event_token, 1),
        resume_tokens.numbered_token(event_token, 2),
        resume_tokens.token_from_time(Timestamp(5, 1)),
        resume_tokens.numbered_token(resume_tokens.token_from_time(Timestamp(5, 1)), 0),
        resume_tokens.time_prefix(Timestamp(5, 2)),
    ]
    records = [
        {"_id": place, "doc": n, "v": 1, "at": Timestamp(5, 1), "wall": event(5).wall, "prev": None}
        for n, place in enumerate(places)
    ]
    await archive.insert(records[::-1])
    assert [each["_id"] for each in await everything(archive)] == places


async def test_ids_with_versions_are_distinguished_from_those_without(archive: Archive) -> None:
    """Ids of all types compare as in MongoDB; each is found once, however many versions it has."""
    known = [1, True, None, "$a", {"a": 1}, b"x", Decimal128("2.5"), ObjectId(b"0" * 12)]
    for n, key in enumerate(known):
        records, _ = versions(key, [3 * n + 1, 3 * n + 2])
        assert await archive.insert(records)
    strangers = [0, False, "a", {"a": 2}, b"y", ObjectId(b"1" * 12), MinKey()]
    found = await archive.last_versions([*known, *strangers])
    assert sorted(map(repr, found)) == sorted(map(repr, map(identity, known)))
    assert {each.number for each in found.values()} == {2}
    assert list(await archive.last_versions([1.0])) == [1]
    assert await archive.last_versions([]) == {}
