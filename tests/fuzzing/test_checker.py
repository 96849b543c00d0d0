"""The checker finds errors in an archive, in delivered events, and in responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2 as httpx
import pytest

from tests.fuzzing.checker import (
    Archived,
    check_deliveries,
    check_present,
    check_states,
    is_held,
    with_indexes,
    without_own_fields,
)
from tests.fuzzing.collections import COLLECTIONS
from tests.fuzzing.questions import Queries
from tests.fuzzing.raw_documents import array_of, document_of, int32, text
from tests.fuzzing.subscribers import Delivery
from tests.fuzzing.writer import Document

KEY = b"\x02_id\0" + text(b"d")


def state(n: int, *more: bytes) -> bytes:
    return document_of([KEY, b"\x10n\0" + int32(n), *more])


def notes(*states: bytes | None) -> Document:
    return Document("things", KEY, list(states), ["insert 00"])


def versions(*contents: bytes | None) -> list[Archived]:
    return [
        Archived(f"t{n}", n, "DELETE" if each is None else "UPDATE", False, each)
        for n, each in enumerate(contents, 1)
    ]


def test_a_correct_archive_has_no_findings() -> None:
    """A write without a change may be a version; revstream's own fields do not matter."""
    own = b"\x03_change\0" + document_of([])
    document = notes(state(1), state(2, own), None)
    assert check_states(document, versions(state(1), state(1), state(2), None)) == []
    assert without_own_fields(state(2, own)) == state(2)


@pytest.mark.parametrize(
    "wrong",
    [
        versions(state(1), state(3)),
        versions(state(2), state(1)),
        versions(state(1)),
        versions(state(1), state(2), state(3)),
        versions(state(1), None),
        [replace(each, number=1) for each in versions(state(1), state(2))],
        [],
    ],
)
def test_a_wrong_archive_is_found(wrong: list[Archived]) -> None:
    """Wrong content, wrong order, missing and extra versions are findings with the writes."""
    [finding, *_] = check_states(notes(state(1), state(2)), wrong)
    assert "insert 00" in finding


def test_a_gap_stands_for_states_before_it_only() -> None:
    """States after a gap are compared again."""
    document = notes(state(1), state(2), state(3), state(4))
    gap = replace(versions(state(3))[0], number=2, token="t2", gap=True)
    first, last = versions(state(1))[0], Archived("t3", 3, "UPDATE", False, state(4))
    assert check_states(document, [first, gap, last]) == []
    assert check_states(document, [first, gap, replace(last, content=state(5))])
    assert check_states(document, [first, replace(gap, gap=False), last])


def test_a_document_that_differs_from_its_last_version_is_found() -> None:
    """The comparison is byte for byte, except for names of array items that MongoDB omits."""
    assert check_present(notes(), versions(state(1)), state(1)) == []
    assert check_present(notes(), versions(state(1)), state(2))
    assert check_present(notes(), versions(state(1)), None)
    odd = state(1, b"\x04a\0" + document_of([b"\x10x\0" + int32(1)]))
    right = state(1, b"\x04a\0" + array_of([(0x10, int32(1))]))
    assert check_present(notes(), versions(right), odd)
    assert check_present(notes(), versions(right), odd, told=with_indexes) == []


@pytest.mark.parametrize(
    ("key", "held"),
    [
        (KEY, True),
        (b"\x02_id\0" + text(b"\xff"), False),
        (b"\x11_id\0" + bytes(8), False),
        (b"\x03_id\0" + document_of([b"\x06a\0"]), False),
        (b"\x03_id\0" + document_of([b"\x10a\0" + int32(1)]), True),
    ],
)
def test_only_ids_that_no_driver_preserves_may_be_without_versions(key: bytes, held: bool) -> None:
    """All other documents must have versions."""
    assert is_held(key) is held
    document = Document("things", key, [document_of([key])], [])
    assert bool(check_states(document, [])) is held


def test_missing_repeated_and_reordered_events_are_found() -> None:
    """A missing first event and an event with the number of another version are found, too."""
    sent = [Delivery(f"t{n}", "d", n, None) for n in (1, 2, 3)]
    numbers = {"t0": 1, "t1": 1, "t2": 2, "t3": 3}
    assert check_deliveries("s", sent, "t0", numbers) == []
    for wrong in (sent[:2], sent[1:], [], [*sent, sent[2]], [sent[1], sent[0], sent[2]]):
        assert check_deliveries("s", wrong, "t0", numbers)
    assert check_deliveries("s", [*sent[:2], replace(sent[2], version=7)], "t0", numbers)


def test_a_subscriber_may_be_sent_nothing_where_nothing_was_written() -> None:
    """Versions from before its start are none of its events."""
    assert check_deliveries("s", [], "t2", {"t1": 1, "t2": 2}) == []


async def test_wrong_responses_are_found() -> None:
    """A page without a valid document, a wrong field, INTERNAL, and no response are findings."""
    place, fields = COLLECTIONS[0], {"n": 1, "sub": {"n": 1, "text": "s"}}
    answers: list[dict[str, Any]] = [
        {"data": {"plains": {"nodes": [{"id": "h", **fields}]}}},
        {"data": {"plains": {"nodes": []}}},
        {"data": {"plains": {"nodes": [{"id": "h", **fields, "n": 2}]}}},
        {"errors": [{"message": "x", "extensions": {"code": "INTERNAL"}}], "data": None},
    ]
    found = []
    for answer in answers:
        transport = httpx.MockTransport(lambda _, answer=answer: httpx.Response(200, json=answer))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
            questions = Queries(client, {"plain": {"h": fields}})
            await questions.ask_of_healthy(place, "plains", "")
            found.append(len(questions.findings))
    assert found[0] == 0
    assert all(found[1:])
