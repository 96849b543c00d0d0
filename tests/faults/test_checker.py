"""The checker finds planted damage, and nothing in correct data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import bson
import pytest
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from tests.faults.checker import (
    Version,
    check_archive,
    check_present,
    check_stream,
    check_transactions,
)
from tests.faults.copied import COPIER, Row, check_copies, check_no_copy_goes_back
from tests.faults.receivers import ReceivedPost, check_posts
from tests.faults.subscribers import Delivery
from tests.faults.truth import RAW, Truth, Write

THINGS = "things"
START = datetime(2024, 1, 1, tzinfo=UTC)


class Story:
    """Writes of three documents as the truth has them, and the correct archive and stream."""

    def __init__(self) -> None:
        self.truth = Truth()
        self.versions: list[Version] = []
        for second in range(1, 4):
            for key in ("a", "b"):
                self.write(key, "INSERT" if second == 1 else "UPDATE", second)
        self.write("a", "DELETE", 4)
        self.write("a", "INSERT", 5)
        # One transaction: two documents, one of them twice.
        for key in ("a", "b", "a"):
            self.write(key, "UPDATE", 6, transaction=1)
        for n in range(1, 4):
            self.share(n, 6 + n)
        self.truth.never.add(999)

    def write(self, key: str, kind: str, second: int, *, transaction: int | None = None) -> None:
        op = self.truth.next_op()
        content = None if kind == "DELETE" else bson.encode({"_id": key, "op": op, "n": second})
        write = Write(op, (THINGS, key), kind, content, "anna", transaction)
        self.truth.chains.setdefault(write.place, []).append(write)
        if transaction is not None:
            self.truth.transactions.setdefault(transaction, []).append((write.place, op))
        self.archive(key, kind, second, content, "anna")

    def share(self, n: int, second: int) -> None:
        op, place = self.truth.next_op(), (THINGS, "shared")
        content = bson.encode({"_id": "shared", "op": op, "n": n, "version": 2 * n})
        write = Write(op, place, "UPDATE", content)
        self.truth.shared.setdefault(place, {})
        self.truth.shared_unknown.setdefault(place, {})
        if n == 2:
            self.truth.shared_unknown[place][op] = write
        else:
            self.truth.shared[place][n] = write
        self.archive("shared", "UPDATE", second, content, None)

    def archive(
        self, key: str, kind: str, second: int, content: bytes | None, by: str | None
    ) -> None:
        at = Timestamp(second, 1)
        wall = START + timedelta(seconds=second)
        carried = None if content is None else bson.decode(content).get("version")
        before = [each for each in self.versions if each.key == key]
        number = max(carried or 0, before[-1].number + 1 if before else 1)
        record = {
            "_id": f"{second:08X}{len(self.versions):08X}",
            "doc": key,
            "v": number,
            "op": kind,
            "at": at,
            "wall": wall,
            "prev": before[-1].token if before else None,
            "by": by,
            "full": None if content is None else RawBSONDocument(content, RAW),
        }
        made = Version.from_record(RawBSONDocument(bson.encode(record), RAW))
        self.versions.append(made)

    def check(self, versions: Sequence[Version]) -> list[str]:
        present = {each.key: each.content for each in self.versions if each.content is not None}
        return [
            *check_archive(THINGS, versions, self.truth, counted=True),
            *check_present(THINGS, versions, present),
            *check_transactions([(THINGS, each) for each in versions], self.truth),
        ]

    def deliveries(self) -> list[Delivery]:
        return [
            Delivery(each.token, each.key, each.operation, each.number, each.op, False)
            for each in self.versions
        ]


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_correct_archive_has_no_findings(story: Story) -> None:
    """Deletions, re-insertions, transactions and version fields lead to no findings."""
    assert story.check(story.versions) == []


def swap(versions: list[Version], one: int, other: int) -> list[Version]:
    """Swap the contents of two versions of one document."""
    changed = list(versions)
    a, b = versions[one], versions[other]
    changed[one] = replace(a, content=b.content, op=b.op, n=b.n)
    changed[other] = replace(b, content=a.content, op=a.op, n=a.n)
    return changed


def altered(place: int, **changes: object) -> Callable[[list[Version]], list[Version]]:
    def alter(versions: list[Version]) -> list[Version]:
        changed = list(versions)
        changed[place] = replace(changed[place], **changes)  # type: ignore[arg-type]
        return changed

    return alter


# The story by index: 0 a, 1 b, 2 a, 3 b, 4 a, 5 b, 6 a deleted, 7 a, 8 a 9 b 10 a in one
# transaction, 11 12 13 shared.
DAMAGE: dict[str, tuple[Callable[[list[Version]], list[Version]], str]] = {
    "a version is missing": (lambda all_: all_[:2] + all_[3:], "missing: "),
    "the last version is missing": (lambda all_: all_[:-1], "2 versions, and 3 writes"),
    "a deletion is missing": (lambda all_: all_[:6] + all_[7:], "missing: "),
    "a whole document is missing": (
        lambda all_: [each for each in all_ if each.key != "b"],
        "b: is there, and not in the archive",
    ),
    "a version is there twice": (
        lambda all_: [*all_[:3], replace(all_[2], token=all_[2].token + "0"), *all_[3:]],
        "too many: ",
    ),
    "a body is another": (
        altered(2, content=bson.encode({"_id": "a", "op": 3, "n": 99})),
        "(UPDATE, op 3, at 0000000200000002) by anna stands where op 3 ",
    ),
    "an acknowledged body of a shared document is another": (
        altered(13, content=b"x"),
        "has not the content of op",
    ),
    "two versions have changed places": (
        lambda all_: swap(all_, 2, 4),
        "the same in another order",
    ),
    "a shared document's versions have changed places": (
        lambda all_: swap(all_, 12, 13),
        "has n=3 and stands where n=2 belongs",
    ),
    "a version that nobody wrote": (altered(12, op=4711), "was written by nobody"),
    "a version that was rolled back": (altered(4, op=999), "never written, or rolled back"),
    "a number that goes back": (altered(4, number=2), "should have number 3"),
    "a number that is not the document's": (altered(12, number=3), "should have number 4"),
    "a gap": (altered(4, gap=True), "says that something was lost"),
    "another author": (altered(4, by="bram"), "by bram stands where"),
    "another operation": (altered(6, operation="UPDATE"), "(UPDATE, op None"),
    "a chain that is broken": (altered(4, prev=None), "prev is None, and version 2"),
    "tokens out of order": (
        lambda all_: [all_[1], all_[0], *all_[2:]],
        "stands after 0000000100000001",
    ),
    "half a transaction": (
        lambda all_: [*all_[:9], *all_[10:]],
        "transaction 1: ops",
    ),
    "a transaction at two moments": (
        altered(10, at=Timestamp(6, 2)),
        "transaction 1: not at one moment",
    ),
    "a transaction in another order": (
        lambda all_: swap(all_, 8, 10),
        "transaction 1: not in its order",
    ),
    "a document that is not what its last version says": (
        altered(9, content=b"x"),
        "b: is not what its last version",
    ),
    "a document that nobody wrote": (
        lambda all_: [*all_, replace(all_[13], key="z", token="F")],
        "z: archived, and never written",
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_of_the_archive_is_found(story: Story, what: str) -> None:
    """Each damage leads to a finding that describes it."""
    damage, said = DAMAGE[what]
    found = story.check(damage(story.versions))
    assert any(said in each for each in found), found


def stream(
    story: Story, told: list[Delivery], *, after: int = -1, key: str | None = None
) -> list[str]:
    start = "" if after < 0 else story.versions[after].token
    return check_stream("s", told, story.versions, start=start, key=key, asked_version=True)


def test_a_correct_stream_has_no_findings(story: Story) -> None:
    """Streams from the start, from a token, and of one document lead to no findings."""
    told = story.deliveries()
    assert stream(story, told) == []
    assert stream(story, told[4:], after=3) == []
    assert stream(story, [each for each in told if each.key == "b"], key="b") == []


STREAM_DAMAGE: dict[str, tuple[Callable[[list[Delivery]], list[Delivery]], str]] = {
    "one is missing": (lambda told: told[:5] + told[6:], "missing: "),
    "the end is missing": (lambda told: told[:-1], "told 13 changes, and right are 14"),
    "one comes twice": (lambda told: [*told[:6], told[5], *told[6:]], "too many: "),
    "two have changed places": (
        lambda told: [*told[:5], told[6], told[5], *told[7:]],
        "the same in another order",
    ),
    "another document": (
        lambda told: [*told[:5], told[5]._replace(op=77), *told[6:]],
        "5: was told",
    ),
    "another version": (
        lambda told: [*told[:5], told[5]._replace(version=77), *told[6:]],
        "5: was told",
    ),
    "a gap": (lambda told: [*told[:5], told[5]._replace(gap=True), *told[6:]], "5: was told"),
}


@pytest.mark.parametrize("what", STREAM_DAMAGE)
def test_damage_of_a_stream_is_found(story: Story, what: str) -> None:
    """Each damage leads to a finding that describes it."""
    damage, said = STREAM_DAMAGE[what]
    found = stream(story, damage(story.deliveries()))
    assert any(said in each for each in found), found


def posts(story: Story) -> list[ReceivedPost]:
    return [
        ReceivedPost(each.token, each.key, each.number, each.operation, 1)
        for each in story.versions
    ]


def test_correct_deliveries_have_no_findings(story: Story) -> None:
    """Documents may be delivered in any order, and repeated deliveries in their old order."""
    told = posts(story)
    by_key = sorted(told, key=lambda each: each.key)
    for right in (told, by_key, [*told[:9], *told[4:]]):
        assert check_posts("r", right, story.versions, start="") == []
    assert check_posts("r", told[4:], story.versions, start=told[3].token) == []


POST_DAMAGE: dict[str, tuple[Callable[[list[ReceivedPost]], list[ReceivedPost]], str]] = {
    "one is missing": (lambda told: told[:5] + told[6:], "missing: "),
    "the end is missing": (lambda told: told[:-1], "missing: "),
    "two of one document have changed places": (
        lambda told: [told[2], told[0], *told[1:2], *told[3:]],
        "and never before",
    ),
    "one that never was": (
        lambda told: [*told, told[0]._replace(token="ZZZ", version=99)],
        "took ",
    ),
    "another version": (lambda told: [told[0]._replace(version=77), *told[1:]], "missing: "),
}


@pytest.mark.parametrize("damage", POST_DAMAGE)
def test_damage_of_deliveries_is_found(story: Story, damage: str) -> None:
    """Each damage leads to a finding that describes it."""
    break_, said = POST_DAMAGE[damage]
    findings = check_posts("r", break_(posts(story)), story.versions, start="")
    assert any(said in each for each in findings), findings


def target_version(number: int, name: int | None, source: str = "ann", by: str = COPIER) -> Row:
    full = {"_id": "lamp", "sourceId": source, "name": name}
    return {"doc": "lamp", "v": number, "op": "UPDATE", "full": full, "by": by}


def test_a_wrong_copy_is_found() -> None:
    """A stale copy, one of no source, a missing one, and one without a reference are findings."""
    sources = {"ann": {"_id": "ann", "name": 2}}
    right = [
        {"_id": "1", "sourceId": "ann", "name": 2},
        {"_id": "2", "sourceId": "gone", "name": None},
        {"_id": "3", "n": 1},
    ]
    assert check_copies(sources, right) == []
    for wrong in (
        {"_id": "4", "sourceId": "ann", "name": 1},
        {"_id": "5", "sourceId": "gone", "name": 2},
        {"_id": "6", "sourceId": "ann"},
        {"_id": "7", "name": 2},
    ):
        [finding] = check_copies(sources, [*right, wrong])
        assert f"targets/{wrong['_id']}" in finding


def test_a_copy_that_goes_back_is_found() -> None:
    """An older name is a finding unless the source has changed or another program wrote it."""
    right = [
        target_version(1, 5),
        target_version(2, 7),
        target_version(3, 1, by="somebody"),
        target_version(4, 7),
        target_version(5, 2, source="bob"),
        target_version(6, 3),
        target_version(7, 7),
    ]
    assert check_no_copy_goes_back(right) == []
    [finding] = check_no_copy_goes_back([*right, target_version(8, 6)])
    assert "version 8 has the name 6 of ann" in finding
