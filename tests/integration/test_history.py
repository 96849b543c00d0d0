"""Versions: by number, by time point, before another version, in pages and in the audit trail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from revstream.resolvers.access.permissions import OPEN
from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.history.time_point import TimePoint
from revstream.resolvers.history.version_filter import VersionFilter, parse_version_where
from revstream.resolvers.history.versions import VersionHistory
from revstream.resolvers.pagination.page import page_request
from revstream.resolvers.pagination.page_query import PageQuery
from revstream.resolvers.pagination.projection import ENDED, EVERY_FACT
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import HistoryLost
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.version import Version
from tests.integration.conftest import Commands
from tests.support.archives import Scribe, at, nothing_written
from tests.support.shop import PRODUCT, SHOP

NAME = frozenset({"name"})


@pytest.fixture
async def scribe(mongo: Mongo) -> Scribe:
    """Write two products: one is deleted and reinserted, both are written in one transaction."""
    return await written(mongo)


async def written(mongo: Mongo) -> Scribe:
    scribe = Scribe(mongo, PRODUCT)
    scribe.write("a", {"name": "one", "stock": 1}, at(1), by="ann", why="new")
    scribe.write("a", {"name": "two", "stock": 1}, at(2), by="bob")
    scribe.write("b", {"name": "other", "dims": {"w": 1.0}}, at(3), by="ann")
    scribe.write("a", None, at(4))
    scribe.write("a", {"name": "again"}, at(6), by="ann")
    # One transaction: three writes at one cluster time.
    scribe.write("a", {"name": "again", "stock": 5}, at(7))
    scribe.write("b", {"name": "other", "dims": {"w": 2.0}}, at(7))
    scribe.write("a", {"name": "again", "stock": 6}, at(7))
    await scribe.save()
    return scribe


def history(mongo: Mongo, scribe: Scribe) -> VersionHistory:
    own_writes = nothing_written(resume_tokens.token_from_time(at(1000)))
    return VersionHistory(mongo, {PRODUCT.collection: scribe.archive}, own_writes)


def where(said: Mapping[str, Any]) -> VersionFilter | None:
    return parse_version_where(SHOP, PRODUCT, said, OPEN)


def outline(versions: Sequence[Version | HistoryLost | None]) -> list[str | None]:
    """Return `document@number` of each version, None where there is none."""
    return [
        f"{each.document}@{each.number}" if isinstance(each, Version) else None for each in versions
    ]


async def test_versions_are_found_by_number(mongo: Mongo, scribe: Scribe) -> None:
    """They are in the requested order, None for an unknown number."""
    found = await history(mongo, scribe).by_number(
        PRODUCT, [("b", 1), ("a", 9), ("a", 3), ("a", 1), ("c", 1), ("b", 1)], NAME
    )
    assert outline(found) == ["b@1", None, "a@3", "a@1", None, "b@1"]
    deleted, first = found[2], found[3]
    assert isinstance(deleted, Version)
    assert isinstance(first, Version)
    assert (deleted.operation, deleted.full) == ("DELETE", None)
    assert first.full == {"_id": "a", "name": "one"}
    assert (first.by, first.why, first.previous) == ("ann", "new", None)
    assert await history(mongo, scribe).by_number(PRODUCT, [], NAME) == []


async def test_only_requested_fields_of_a_state_are_read(mongo: Mongo, scribe: Scribe) -> None:
    """A read has no fields, the id alone, or fields down to those of embedded documents."""
    reading = history(mongo, scribe)
    for fields, full in (
        (None, None),
        (frozenset(), {"_id": "b"}),
        (frozenset({"dims.w"}), {"_id": "b", "dims": {"w": 1.0}}),
    ):
        (version,) = await reading.by_number(PRODUCT, [("b", 1)], fields)
        assert version is not None
        assert version.full == full
        assert version.changed == ("name", "dims")


async def test_the_version_at_a_time_point_is_found(mongo: Mongo, scribe: Scribe) -> None:
    """None before the first and while the document is deleted; the last of a transaction."""
    asked = [("a", at(second)) for second in (0, 1, 2, 3, 4, 5, 6, 7, 9)] + [
        ("b", at(7)),
        ("b", at(2)),
    ]
    found = await history(mongo, scribe).as_of(PRODUCT, asked, None)
    assert outline(found) == [
        None,
        "a@1",
        "a@2",
        "a@2",
        None,
        None,
        "a@4",
        "a@6",
        "a@6",
        "b@2",
        None,
    ]
    assert await history(mongo, scribe).as_of(PRODUCT, [], None) == []


async def test_the_version_before_is_found_by_its_token(mongo: Mongo, scribe: Scribe) -> None:
    """Each version has the token of the one before; a missing one was truncated."""
    reading = history(mongo, scribe)
    (last, deleted) = await reading.by_number(PRODUCT, [("a", 6), ("a", 3)], None)
    assert isinstance(last, Version)
    assert isinstance(deleted, Version)
    assert last.previous is not None
    assert deleted.previous is not None
    found = await reading.before(PRODUCT, [deleted.previous, "0" * 16, last.previous], NAME)
    assert isinstance(found[1], HistoryLost)
    assert outline(found) == ["a@2", None, "a@5"]
    assert await reading.before(PRODUCT, [], NAME) == []


async def test_the_newest_version_may_be_a_deletion(mongo: Mongo, scribe: Scribe) -> None:
    """An unknown document has no newest version."""
    scribe.write("b", None, at(9))
    await scribe.save()
    found = await history(mongo, scribe).newest(PRODUCT, ["a", "c", "b"], NAME)
    assert outline(found) == ["a@6", None, "b@3"]


async def test_pages_of_several_documents_are_read_together(mongo: Mongo, scribe: Scribe) -> None:
    """Newest first, each with its own total; the cursor of one page is valid for each of them."""
    reading = history(mongo, scribe)
    pages = await reading.pages_of(
        PRODUCT,
        ["b", "c", "a"],
        PageQuery(where=None, page=page_request(first=2), fields=None, total=True),
    )
    assert [(outline(each.items), each.total, each.has_next) for each in pages] == [
        (["b@2", "b@1"], 2, False),
        ([], 0, False),
        (["a@6", "a@5"], 6, True),
    ]
    for request, expected in (
        (page_request(first=2, after=pages[2].cursors[1]), ["a@4", "a@3"]),
        (page_request(last=1, before=pages[2].cursors[1]), ["a@6"]),
        (page_request(last=2), ["a@2", "a@1"]),
    ):
        (page,) = await reading.pages_of(
            PRODUCT, ["a"], PageQuery(where=None, page=request, fields=None)
        )
        assert outline(page.items) == expected
        assert page.total is None


async def test_the_page_of_a_single_document_equals_its_page_among_others(
    mongo: Mongo, scribe: Scribe
) -> None:
    """It is read in another way, with its following page."""
    reading = history(mongo, scribe)
    (first,) = await reading.pages_of(
        PRODUCT, ["a"], PageQuery(where=None, page=page_request(first=2), fields=NAME)
    )
    wheres = (
        None,
        VersionFilter({"op": "UPDATE"}),
        VersionFilter({"doc": {"$eq": "b"}}),
        VersionFilter({"doc": {"$in": ["a", "b"]}, "v": {"$gt": 1}}),
    )
    for id_, where, request in product(
        ("a", "b", "c", None, 1),
        wheres,
        (
            page_request(first=2),
            page_request(last=2),
            page_request(first=0),
            page_request(first=2, after=first.cursors[1]),
            page_request(last=2, before=first.cursors[1]),
        ),
    ):
        arguments: Any = {"where": where, "page": request, "fields": NAME}
        (alone,) = await reading.pages_of(PRODUCT, [id_], PageQuery(**arguments))
        (records,) = await reading.pages_of(PRODUCT, [id_], PageQuery(**arguments, for_output=True))
        shown = records.transform(Version.from_record)
        among = await reading.pages_of(PRODUCT, [id_, "other"], PageQuery(**arguments))
        assert alone == among[0]
        assert outline(shown.items) == outline(alone.items)


async def test_the_audit_trail_is_in_stream_order(mongo: Mongo, scribe: Scribe) -> None:
    """Versions of all documents are newest first, paged in both directions."""
    reading = history(mongo, scribe)
    everything = [f"{r['doc']}@{r['v']}" for r in reversed(scribe.records)]
    seen: list[str | None] = []
    request = page_request(first=3)
    while True:
        page = await reading.trail(
            PRODUCT, PageQuery(where=None, page=request, fields=None, total=True)
        )
        assert page.total == len(everything)
        seen += outline(page.items)
        if not page.has_next:
            break
        request = page_request(first=3, after=page.cursors[-1])
    assert seen == everything
    page = await reading.trail(
        PRODUCT, PageQuery(where=None, page=page_request(last=2), fields=NAME)
    )
    assert outline(page.items) == everything[-2:]
    assert page.total is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"author": {"eq": "ann"}}, ["a@4", "b@1", "a@1"]),
        ({"author": {"exists": False}}, ["a@6", "b@2", "a@5", "a@3"]),
        ({"operation": {"in": ["DELETE", "INSERT"]}}, ["a@4", "a@3", "b@1", "a@1"]),
        ({"documentId": {"eq": "b"}}, ["b@2", "b@1"]),
        ({"version": {"gte": 4}}, ["a@6", "a@5", "a@4"]),
        ({"changedField": "name"}, ["a@4", "b@1", "a@2", "a@1"]),
        ({"changedField": "dimensions"}, ["b@2", "b@1"]),
        ({"changedField": "dimensions.width"}, ["b@2", "b@1"]),
        ({"changedField": "dimensions.height"}, ["b@1"]),
        ({"at": {"gte": "2024-01-01T12:00:04.000Z", "lt": "2024-01-01T12:00:07Z"}}, ["a@4", "a@3"]),
        ({"at": {"eq": "2024-01-01T12:00:06.001Z"}}, ["a@4"]),
        ({"at": {"lt": "2024-01-01T12:00:02.000Z"}}, ["a@1"]),
        ({"at": {"gt": "2025-01-01T12:00:02.000Z"}}, []),
        ({"author": {"eq": "ann"}, "changedField": "stock"}, ["a@1"]),
    ],
)
async def test_versions_are_filtered(
    mongo: Mongo, scribe: Scribe, said: dict[str, Any], expected: list[str]
) -> None:
    """The audit trail and a document's own history agree."""
    reading = history(mongo, scribe)
    page = await reading.trail(
        PRODUCT, PageQuery(where=where(said), page=page_request(), fields=None, total=True)
    )
    assert (outline(page.items), page.total) == (expected, len(expected))
    pages = await reading.pages_of(
        PRODUCT,
        ["a", "b"],
        PageQuery(where=where(said), page=page_request(), fields=None, total=True),
    )
    for key, page in zip(("a", "b"), pages, strict=True):
        own = [each for each in expected if each.startswith(key)]
        assert (outline(page.items), page.total) == (own, len(own))


async def test_a_collection_as_of_a_time_point_is_a_page_of_versions(
    mongo: Mongo, scribe: Scribe
) -> None:
    """More tests are in test_as_of.py."""
    page = await history(mongo, scribe).collection_as_of(
        PRODUCT,
        TimePoint(at(3)),
        PageQuery(where=None, order=None, page=page_request(), fields=NAME, total=True),
    )
    assert outline(page.items) == ["a@2", "b@1"]
    assert [each.full for each in page.items] == [
        {"_id": "a", "name": "two"},
        {"_id": "b", "name": "other"},
    ]
    assert page.total == 2


async def test_cursors_of_different_lists_are_not_mixed_up(mongo: Mongo, scribe: Scribe) -> None:
    """A document's own history, the audit trail and an as-of read are three lists."""
    reading = history(mongo, scribe)
    arguments: dict[str, Any] = {"where": None, "fields": None}
    own = (await reading.pages_of(PRODUCT, ["a"], PageQuery(page=page_request(), **arguments)))[0]
    trail = await reading.trail(PRODUCT, PageQuery(page=page_request(), **arguments))
    with pytest.raises(BadUserInput, match="expected a cursor of this list"):
        await reading.trail(
            PRODUCT, PageQuery(page=page_request(after=own.cursors[0]), **arguments)
        )
    with pytest.raises(BadUserInput, match="expected a cursor of this list"):
        await reading.collection_as_of(
            PRODUCT,
            TimePoint(at(9)),
            PageQuery(order=None, page=page_request(after=trail.cursors[0]), **arguments),
        )


async def test_versions_have_the_time_of_their_replacement(mongo: Mongo, scribe: Scribe) -> None:
    """Position and page do not matter; nothing is read unless the field is selected."""
    reading = history(mongo, scribe)
    expected = {
        one["_id"]: next(
            (each["wall"] for each in scribe.records if each["prev"] == one["_id"]), None
        )
        for one in scribe.records
    }
    wheres = (None, VersionFilter({"op": "UPDATE"}), VersionFilter({"v": {"$in": [1, 3]}}))
    requests = page_request(first=2), page_request(last=2), page_request(first=0), page_request()
    seen = set()
    for where, request, shown in product(wheres, requests, (False, True)):
        arguments: Any = {"page": request, "fields": None, "for_output": shown}
        facts = EVERY_FACT | {ENDED}
        pages = [
            *await reading.pages_of(
                PRODUCT, ["a"], PageQuery(where=where, facts=facts, **arguments)
            ),
            *await reading.pages_of(
                PRODUCT, ["a", "b", "c"], PageQuery(where=where, facts=facts, **arguments)
            ),
            await reading.trail(PRODUCT, PageQuery(where=where, facts=facts, **arguments)),
            await reading.collection_as_of(
                PRODUCT,
                TimePoint(at(3)),
                PageQuery(where=None, order=None, facts=facts, **arguments),
            ),
        ]
        for page in pages:
            items = page.transform(Version.from_record).items if shown else page.items
            assert page.ends is not None
            told_ends = {token: _aware(end) for token, end in page.ends.items()}
            assert told_ends == {each.token: expected[each.token] for each in items}
            seen |= told_ends.keys()
        [page] = await reading.pages_of(PRODUCT, ["a"], PageQuery(where=where, **arguments))
        assert page.ends is None
    assert seen == expected.keys()
    wanted = [(each["doc"], each["v"]) for each in scribe.records]
    found = await reading.ends(PRODUCT, wanted)
    assert dict(zip(expected, found, strict=True)) == expected


def _aware(date: datetime | None) -> datetime | None:
    return None if date is None else date.replace(tzinfo=UTC)


async def test_every_batch_is_one_command(counted: Mongo, commands: Commands) -> None:
    """The number of documents does not matter; missing ones take one more.

    The coverage of the collection is known by then.
    """
    scribe = await written(counted)
    reading = history(counted, scribe)
    await reading.as_of(PRODUCT, [("a", at(7))], NAME)
    with commands.counting() as started:
        await reading.by_number(PRODUCT, [("c", 1), ("c", 2), ("d", 1)], NAME)
        await reading.as_of(PRODUCT, [("c", at(7)), ("d", at(7))], NAME)
    # A number is only reported as missing after all writes are recorded.
    waited = ["hello", "find"]
    assert started == ["find", *waited, "find", "aggregate", "find"]
    for keys in (["a"], ["a", "b"]):
        with commands.counting() as started:
            await reading.by_number(PRODUCT, [(key, n) for key in keys for n in (1, 2)], NAME)
            await reading.as_of(PRODUCT, [(key, at(7)) for key in keys], NAME)
            await reading.before(PRODUCT, [r["_id"] for r in scribe.records[: len(keys)]], NAME)
            await reading.pages_of(
                PRODUCT, keys, PageQuery(where=None, page=page_request(), fields=NAME, total=True)
            )
            await reading.ends(PRODUCT, [(key, n) for key in keys for n in (1, 2)])
        moment = "find" if len(keys) == 1 else "aggregate"
        assert started == ["find", moment, "find", "aggregate", "aggregate"]
