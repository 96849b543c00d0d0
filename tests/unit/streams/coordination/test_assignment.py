"""Assignment of partitions to processes."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.coordination.assignment import Member, assign_partitions
from revstream.streams.coordination.partition import Partition, collection_partitions

START = datetime(2024, 1, 1, tzinfo=UTC)


def member(holder: str, since: int = 0, **offers: int) -> Member:
    return Member(holder, START + timedelta(seconds=since), offers)


def shares(divided: dict[Partition, str]) -> Counter[str]:
    return Counter(divided.values())


def test_one_process_holds_all() -> None:
    """There is no other process."""
    assert shares(assign_partitions([member("a", things=4, others=1)], {})) == {"a": 5}


def test_a_new_process_gets_its_share_with_the_fewest_moves() -> None:
    """Two of four partitions move; the others stay."""
    held = dict.fromkeys(collection_partitions("things", 4), "a")
    divided = assign_partitions([member("a", 0, things=4), member("b", 1, things=4)], held)
    assert shares(divided) == {"a": 2, "b": 2}
    assert (
        assign_partitions([member("a", 0, things=4), member("b", 1, things=4)], divided) == divided
    )


def test_undivided_collections_are_shared_too() -> None:
    """Each is one partition."""
    offers = {name: 1 for name in "pqrs"}
    held = {Partition(name): "a" for name in "pqrs"}
    divided = assign_partitions([member("a", 0, **offers), member("b", 1, **offers)], held)
    assert shares(divided) == {"a": 2, "b": 2}


def test_the_partitions_of_each_collection_are_shared() -> None:
    """No process gets all of a busy collection while another gets all of the quiet ones."""
    offers = {"busy": 4, "p": 1, "q": 1, "r": 1, "s": 1}
    held = dict.fromkeys(collection_partitions("busy", 4), "a") | {
        Partition(n): "b" for n in "pqrs"
    }
    divided = assign_partitions([member("a", 0, **offers), member("b", 1, **offers)], held)
    assert shares({k: v for k, v in divided.items() if k.collection == "busy"}) == {"a": 2, "b": 2}
    assert shares(divided) == {"a": 4, "b": 4}


def test_partitions_of_a_dead_process_wait_until_they_are_free() -> None:
    """Their leases must expire; then the living processes take them."""
    first, *rest = collection_partitions("things", 4)
    held = {first: "dead", rest[0]: "a", rest[1]: "a", rest[2]: "a"}
    assert first not in assign_partitions([member("a", things=4)], held)
    assert assign_partitions([member("a", things=4)], dict.fromkeys(rest, "a"))[first] == "a"


def test_with_different_models_the_newest_process_decides() -> None:
    """A partition count takes effect once no process holds the collection by the old one."""
    old, new = member("old", 0, things=1, others=1), member("new", 1, things=4, others=1)
    whole = Partition("things")
    assert not any(
        each.collection == "things"
        for each in assign_partitions([old, new], {whole: "old", Partition("others"): "old"})
    )
    divided = assign_partitions([old, new], {Partition("others"): "old"})
    assert {k: v for k, v in divided.items() if k.collection == "things"} == dict.fromkeys(
        collection_partitions("things", 4), "new"
    )
    assert divided[Partition("others")] == "old"
    # After a rollback, the newer process is gone and the older one decides again.
    assert whole not in assign_partitions(
        [old], dict.fromkeys(collection_partitions("things", 4), "new")
    )
    assert assign_partitions([old], {})[whole] == "old"


def test_a_living_process_that_is_no_member_keeps_its_partitions() -> None:
    """It runs a version without membership, and will be stopped some day."""
    things, others = Partition("things"), Partition("others")
    divided = assign_partitions([member("a", things=1, others=1)], {things: "before"})
    assert divided == {others: "a"}


NAMES = st.sampled_from("pqrst")


@given(
    st.lists(st.dictionaries(NAMES, st.sampled_from([1, 2, 5])), min_size=1, max_size=4),
    st.dictionaries(st.tuples(NAMES, st.integers(0, 4)), st.sampled_from(["0", "1", "2", "x"])),
)
def test_every_free_partition_is_assigned_and_shares_are_equal(
    offers: list[dict[str, int]], held_numbers: dict[tuple[str, int], str]
) -> None:
    """No partition goes to a process that does not offer it, or moves without need."""
    members = [member(str(n), n, **each) for n, each in enumerate(offers)]
    counts = {name: count for each in offers for name, count in each.items()}
    held = {
        Partition(name, index, counts[name]): holder
        for (name, index), holder in held_numbers.items()
        if name in counts and index < counts[name]
    }
    divided = assign_partitions(members, held)
    by_holder = {each.holder: each for each in members}
    for name, count in counts.items():
        for partition in collection_partitions(name, count):
            if held.get(partition) is None:
                assert by_holder[divided[partition]].offers[name] == count
        able = [each.holder for each in members if each.offers.get(name) == count]
        has = Counter(h for p, h in divided.items() if p.collection == name)
        loads = [has[each] for each in able]
        assert max(loads) - min(loads) <= 1
    assert assign_partitions(members, held | divided) == divided
