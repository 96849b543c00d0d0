"""streams.interning: what comes again is the same object, as it would be decoded, and nothing else
is told from it."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import bson
import pytest
from bson import Int64, Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.documents import SHOWN, Document
from streams.interning import Interned, Interning
from tests.support.fuzzing import examples

CAPACITY = 10_000_000
AT = Timestamp(1, 1)
AROUND: Document = {"$clusterTime": {"clusterTime": AT}, "operationTime": AT}


def reply(documents: Sequence[Document], *, cursor: int = 0, ok: float = 1.0) -> memoryview:
    """As a server says it."""
    batch = {"firstBatch": documents, "id": Int64(cursor), "ns": "shop.products"}
    return memoryview(bson.encode({"cursor": batch, "ok": ok, **AROUND}))


def numbered(first: int, count: int = 3) -> list[Document]:
    return [{"_id": n, "name": f"Product {n}"} for n in range(first, first + count)]


def known(*documents: Sequence[Document], capacity_bytes: int = CAPACITY) -> Interning:
    """One that has seen each of these replies twice."""
    interning = Interning(capacity_bytes)
    for each in documents:
        for _ in range(2):
            interning.documents(reply(each))
    return interning


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 2**40) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcé"), inner, max_size=3)
    ),
    max_leaves=6,
)
drawn = st.lists(
    st.fixed_dictionaries({"_id": st.integers(0, 5)}, optional={"a": values, "b": values}),
    max_size=120,
)


@settings(max_examples=examples(150), deadline=None)
@given(replies=st.lists(drawn, min_size=1, max_size=4), capacity=st.sampled_from([40_000, 10**7]))
def test_it_finds_what_decoding_finds(replies: list[list[Document]], capacity: int) -> None:
    """By whichever way, whatever was seen before, and whatever has left since."""
    interning = Interning(capacity)
    for each in 3 * replies:
        raw = reply(each)
        found = interning.documents(raw)
        if found is not None:
            assert found == bson.decode(raw, SHOWN)["cursor"]["firstBatch"] != []
            assert [list(one) for one in found] == [list(one) for one in each]
        assert 0 <= interning.size_bytes <= capacity


@pytest.mark.parametrize("count", [1, 9, 10, 11, 99, 100, 101, 999, 1000, 1001, 1100])
def test_each_document_of_a_batch_is_found_in_its_place(count: int) -> None:
    found = known(numbered(0, count)).documents(reply(numbered(0, count)))
    assert found == numbered(0, count)


def test_what_comes_again_is_the_same_object() -> None:
    interning = Interning(CAPACITY)
    raw = reply(numbered(0))
    assert interning.documents(raw) is None
    first, second = interning.documents(raw), interning.documents(raw)
    assert first is not None
    assert second is not None
    assert all(map(lambda one, other: one is other, first, second))
    assert (interning.decoded, interning.recognized) == (3, 3)
    other = {"_id": 1, "name": "other"}
    changed = interning.documents(reply([numbered(0)[0], other, numbered(2)[0]]))
    assert changed == [numbered(0)[0], other, numbered(2)[0]]
    assert second[1] == numbered(1)[0]


def test_a_reply_that_comes_once_leaves_nothing() -> None:
    """Whoever reads a whole collection does not drive out what others have."""
    interning = known(numbered(0), capacity_bytes=100_000)
    taken = interning.size_bytes
    for first in range(10, 1000, 3):
        assert interning.documents(reply(numbered(first))) is None
    assert interning.size_bytes == taken
    assert interning.documents(reply(numbered(0))) is not None


def test_where_little_comes_again_it_rests() -> None:
    """More comes again than it holds: next to nothing is recognized, and looking for it in vain
    takes longer than decoding."""
    sets = [numbered(first, 10) for first in range(0, 1000, 10)]
    interning = Interning(60_000)
    dice = random.Random(1)
    asked = dice.choices(sets, k=20 * len(sets))
    looked = sum(interning.documents(reply(each)) is not None for each in asked)
    assert 0 < looked < 20 * len(sets) / 3
    # What is worth it later is found again.
    for _ in range(20 * len(sets)):
        interning.documents(reply(sets[0]))
    assert interning.documents(reply(sets[0])) is not None


def test_what_comes_again_only_behind_more_than_it_holds_is_left_alone() -> None:
    """Round after round: each would have left before it is asked for again."""
    rounds = [numbered(first, 10) for first in range(0, 1000, 10)]
    interning = Interning(60_000)
    for _ in range(3):
        assert all(interning.documents(reply(each)) is None for each in rounds)
    # Few enough of them have room.
    for _ in range(2):
        found = [interning.documents(reply(each)) for each in rounds[:3]]
    assert found == rounds[:3]


def test_with_no_room_all_is_left_alone() -> None:
    interning = known(numbered(0), capacity_bytes=0)
    assert interning.documents(reply(numbered(0))) is None
    assert interning.size_bytes == 0


def test_a_large_reply_is_left_alone() -> None:
    interning = known(numbered(0), capacity_bytes=100_000)
    large = reply([{"_id": 9, "text": "x" * 4_000}])
    assert [interning.documents(large) for _ in range(3)] == [None] * 3
    assert interning.documents(reply(numbered(0))) is not None


def _cut(whole: memoryview) -> memoryview:
    """The last document claims to be longer than the batch."""
    raw = bytes(whole)
    at = raw.rindex(bson.encode(numbered(2)[0]))
    return memoryview(raw[:at] + struct.pack("<i", 10_000) + raw[at + 4 :])


@pytest.mark.parametrize(
    "other",
    [
        lambda documents: reply(documents, cursor=7),
        lambda documents: reply(documents, ok=0.0),
        lambda documents: reply([]),
        lambda documents: bson.encode({"ok": 1.0, "cursor": {"firstBatch": documents}}),
        lambda documents: bson.encode({"cursor": {"id": 0, "firstBatch": documents}, "ok": 1.0}),
        lambda documents: bson.encode({"cursor": {"nextBatch": documents, "id": 0}, "ok": 1.0}),
        lambda documents: bson.encode({"ok": 0.0, "errmsg": "no", "code": 1}),
        lambda documents: bson.encode({}),
    ],
)
def test_any_other_reply_is_the_drivers(other: Callable[[Any], bytes]) -> None:
    interning, said = known(numbered(0)), memoryview(other(numbered(0)))
    assert [interning.documents(said) for _ in range(3)] == [None] * 3


def test_what_is_no_batch_is_not_made_one() -> None:
    interning = known(numbered(0, 2))
    with pytest.raises(bson.errors.InvalidBSON):
        interning.documents(_cut(reply([*numbered(0, 2), *numbered(2, 1)])))


CHANGES: list[Callable[[Interned], object]] = [
    lambda each: each.__setitem__("name", 1),
    lambda each: each.__delitem__("name"),
    lambda each: each.__ior__({"name": 1}),
    lambda each: each.update(name=1),
    lambda each: each.pop("name"),
    lambda each: each.popitem(),
    lambda each: each.setdefault("more", 1),
    lambda each: each.clear(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_it_cannot_be_changed(change: Callable[[Interned], object]) -> None:
    document = Interned({"_id": 1, "name": "a"})
    with pytest.raises(TypeError, match="change a copy"):
        change(document)
    assert document == {"_id": 1, "name": "a"}
    assert {**document, "name": 1} == {"_id": 1, "name": 1}
