"""MongoDB's resume tokens in both formats: one text for one event, in stream order."""

from __future__ import annotations

from dataclasses import dataclass

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.core import resume_tokens, server_token

TAG = "abc234"


def integer(value: int) -> str:
    """Return the KeyString of an integer: its size and sign are in the first byte."""
    if value == 0:
        return "29"
    digits = (value << 1).to_bytes(((value << 1).bit_length() + 7) // 8, "big")
    return f"{0x2A + len(digits):02X}{digits.hex().upper()}"


def text(name: str) -> str:
    return name.encode().hex().upper() + "00"


@dataclass(frozen=True)
class Event:
    """An event as the server encodes it; `key` is a document key as a KeyString, or None."""

    time: tuple[int, int]
    index: int
    invalidate: bool
    uuid: str | None
    operation: str
    key: str | None

    def order(self) -> tuple[object, ...]:
        return (*self.time, self.index, self.invalidate)

    def data(self, version: int) -> str:
        seconds, count = self.time
        begin = f"82{seconds:08X}{count:08X}{integer(version)}{integer(128)}{integer(self.index)}"
        begin += "6F" if self.invalidate else "6E"
        uuid = "" if self.uuid is None else f"5A1004{self.uuid}"
        if version == 1:
            return f"{begin}{uuid}{self.key or ''}04"
        encoded = f"463C{text('operationType')}3C{text(self.operation)}"
        if self.key is not None:
            encoded += f"46{text('documentKey')}{self.key}"
        return f"{begin}{uuid or '14'}{encoded}0004"


words = st.integers(0, 2**32 - 1)
digits = st.binary(max_size=40).map(lambda each: each.hex().upper())
events = st.builds(
    Event,
    time=st.tuples(st.integers(1, 3), st.integers(1, 3)) | st.tuples(words, words),
    index=st.integers(0, 600) | st.integers(0, 2**30),
    invalidate=st.booleans(),
    uuid=st.none() | st.binary(min_size=16, max_size=16).map(lambda each: each.hex().upper()),
    operation=st.sampled_from(
        ["insert", "update", "replace", "delete", "drop", "reshardCollection"]
    ),
    key=st.none() | digits.map(lambda each: f"46{each}00"),
)


@given(events)
def test_both_formats_of_one_event_are_one_token(event: Event) -> None:
    """An upgrade or downgrade of the server does not change tokens."""
    first, second = (resume_tokens.token_from_stream(event.data(version)) for version in (1, 2))
    assert first == second == event.data(1)[2:]
    assert resume_tokens.cluster_time(second) == bson.Timestamp(*event.time)


@given(st.lists(events, max_size=10), st.data())
def test_tokens_sort_by_cluster_time_and_index_in_the_transaction(
    drawn: list[Event], data: st.DataObject
) -> None:
    """The server's formats do not matter: nothing else orders a replica set's events."""
    encoded_tokens = [
        (resume_tokens.token_from_stream(each.data(data.draw(st.sampled_from([1, 2])))), each)
        for each in drawn
    ]
    encoded_tokens.sort(key=lambda each: each[0])
    assert [each.order() for _, each in encoded_tokens] == sorted(each.order() for each in drawn)


@given(events, st.sampled_from([1, 2]))
def test_a_token_of_a_client_is_canonical_whichever_server_made_it(
    event: Event, version: int
) -> None:
    """Clients and stored positions may hold tokens in the format of an earlier version."""
    given_out = event.data(version)[2:]
    assert resume_tokens.decode(f"{given_out}.{TAG}", TAG) == event.data(1)[2:]
    assert resume_tokens.canonical_token(f"{given_out}-00000007") == f"{event.data(1)[2:]}-00000007"


@given(events, st.integers(2000, 3_000_000), st.sampled_from([1, 2]))
def test_a_token_is_never_longer_than_the_accepted_maximum(
    event: Event, length: int, version: int
) -> None:
    """The length of the document's id does not matter."""
    long = Event(**{**vars(event), "key": f"46{'61' * length}00"})
    token = resume_tokens.token_from_stream(long.data(version))
    wire = resume_tokens.encode(resume_tokens.numbered_token(token, 99_999_999), TAG)
    assert len(wire) < 2200
    assert resume_tokens.decode(resume_tokens.encode(token, TAG), TAG) == token
    assert token == resume_tokens.token_from_stream(long.data(1))


@given(events, st.integers(2000, 5000))
def test_a_long_token_stored_by_an_earlier_version_is_accepted(event: Event, length: int) -> None:
    """Shortened, it is after its own record and before the next event."""
    stored = Event(**{**vars(event), "key": f"46{'FF' * length}00"}).data(1)[2:]
    place = resume_tokens.decode(resume_tokens.encode(stored, TAG), TAG)
    assert stored < place
    following = Event(**{**vars(event), "index": event.index + 1})
    assert (
        place
        < resume_tokens.token_from_stream(following.data(2))
        < resume_tokens.token_from_time(bson.Timestamp(*event.time))
    )


def test_a_high_water_mark_is_the_same_in_both_formats() -> None:
    """It is before the events of its time."""
    first, second = "82674C1B3E000000022B0229296E04", "82674C1B3E000000022B0429296E1404"
    assert (
        resume_tokens.token_from_stream(first)
        == resume_tokens.token_from_stream(second)
        == first[2:]
    )


@pytest.mark.parametrize("rest", ["2B06", "2B04", "2B042C01", "2B0446", "2B042C0100296E5A10"])
def test_an_unknown_format_keeps_its_text(rest: str) -> None:
    """Tokens of a newer server still contain their time."""
    assert server_token.canonical_data(f"674C1B3E00000002{rest}") == f"674C1B3E00000002{rest}"
