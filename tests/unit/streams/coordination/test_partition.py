"""Assignment of documents to partitions, and the names of the partitions' leases."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, MaxKey, MinKey, ObjectId, Timestamp
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from revstream.model.compiler.loader import read_model
from revstream.streams.changefeed.event import identity, key_hash
from revstream.streams.coordination.partition import (
    Partition,
    collection_partitions,
    model_partitions,
)
from revstream.streams.mongo.driver.codecs import DECODED, RAW
from tests.support.streams import event

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats() | st.integers(-3, 3)
LEAVES = st.one_of(
    NUMBERS,
    st.booleans(),
    st.text(),
    st.none(),
    st.binary(),
    st.binary(min_size=12, max_size=12).map(ObjectId),
    st.builds(Decimal128, st.decimals(places=3, allow_nan=True, min_value=-9999, max_value=9999)),
    st.builds(Binary, st.binary(), st.just(5)),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.sampled_from([MinKey(), MaxKey(), Decimal128("NaN"), Decimal128("1E+6000"), Int64(1)]),
)
KEYS = st.recursive(LEAVES, lambda each: st.dictionaries(st.text("abc"), each), max_leaves=4)


def stored(key: Any) -> Any:
    """Return the key as read from MongoDB."""
    return bson.decode(bson.encode({"": key}, codec_options=DECODED), DECODED)[""]


def as_raw(key: Any) -> Any:
    """Return the key as the initial snapshot reads it."""
    return RawBSONDocument(bson.encode({"": key}, codec_options=DECODED), RAW)[""]


def also_written(key: Any) -> list[Any]:
    """Return the same number in the types in which programs may store it."""
    if isinstance(key, bool) or not isinstance(key, int | float):
        return [key]
    same = [key, Decimal128(str(key))] if isinstance(key, int) else [key]
    if abs(key) < 2**53 and key == int(key):
        same += [float(key), Int64(key), Decimal128(f"{int(key)}.00")]
    return same


@given(KEYS, KEYS)
def test_ids_that_are_the_same_key_have_the_same_hash(one: Any, other: Any) -> None:
    """Their types may differ, also inside an embedded document."""
    one, other = stored(one), stored(other)
    if identity(one) == identity(other):
        assert key_hash(one) == key_hash(other)
    assert key_hash(as_raw(one)) == key_hash(one)


@given(st.integers(-(2**52), 2**52) | st.floats(-1e15, 1e15).map(round))
def test_a_number_of_any_type_has_one_hash(number: int) -> None:
    """This holds for the number alone and within a document."""
    hashes = {key_hash(each) for each in also_written(number)}
    assert len(hashes) == 1
    assert len({key_hash({"a": {"b": each}}) for each in also_written(number)}) == 1


def test_true_is_not_one_and_order_counts() -> None:
    """MongoDB's unique index distinguishes them, and so does the hash."""
    assert key_hash(True) != key_hash(1)
    assert key_hash({"a": 1, "b": 2}) != key_hash({"b": 2, "a": 1})


def test_the_hash_is_the_same_in_every_process() -> None:
    """It decides which process records, so it depends on neither hash seed nor version."""
    keys = "['abc', 7, -1, {'a': 'é'}, True, None, 2.5]"
    code = "from revstream.streams.changefeed.event import key_hash; "
    code += f"print([key_hash(each) for each in {keys}])"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {
        f"{[key_hash(each) for each in ['abc', 7, -1, {'a': 'é'}, True, None, 2.5]]}\n"
    }
    assert key_hash("abc") == KNOWN


# These values are fixed: a change would move documents between partitions of existing archives.
KNOWN = 4181146811


@pytest.mark.parametrize("make", [lambda n: n, str, lambda n: ObjectId(f"{n:024x}")])
def test_documents_are_spread(make: Any) -> None:
    """This holds for consecutive ids, too."""
    counts = Counter(key_hash(make(n)) % 4 for n in range(4000))
    assert all(800 < each < 1200 for each in counts.values())
    assert len(counts) == 4


@given(KEYS, st.integers(1, 64))
def test_each_document_is_in_one_partition(key: Any, count: int) -> None:
    """Each document is in exactly one; collection events are in all of them."""
    key = stored(key)
    partitions = collection_partitions("things", count)
    [one] = [each for each in partitions if each.contains(key)]
    assert [each for each in partitions if each.concerns(event(1, key=key))] == [one]
    assert all(each.concerns(event(1, key=None, operation="drop")) for each in partitions)


@pytest.mark.parametrize(
    ("partition", "name"),
    [
        (Partition("things"), "recorder:things"),
        (Partition("things", 0, 4), "recorder:things:1/4"),
        (Partition("a:b", 63, 64), "recorder:a:b:64/64"),
        (Partition("1/4"), "recorder:1/4"),
    ],
)
def test_a_partition_is_parsed_from_its_name(partition: Partition, name: str) -> None:
    """An undivided collection has the same name as before partitions existed."""
    assert partition.name == name
    assert Partition.from_name(name) == partition


def test_other_names_are_of_no_partition() -> None:
    """Listeners have leases as well."""
    assert Partition.from_name("copier:things") is None


def test_numbers_of_partitions_are_disjoint() -> None:
    """Several partitions may have records at one position of the stream."""
    numbers = [each.own_number(n) for each in collection_partitions("a", 3) for n in range(5)]
    assert sorted(numbers) == list(range(15))


def test_the_partitions_of_a_model() -> None:
    """All partitions are listed in the order of the model."""
    model = read_model(
        """
        type B @collection(name: "bs", partitions: 2) { id: ID! n: Int }
        type A @collection(name: "as") { id: ID! n: Int }
        """
    )
    assert [each.label for each in model_partitions(model)] == ["bs:1/2", "bs:2/2", "as"]
