"""Resume tokens as text: order and validation."""

from __future__ import annotations

from itertools import pairwise

import pytest
from bson import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import ResumeTokenInvalid
from tests.support.streams import token_at

# Tokens as MongoDB 6.0.5 sends them: an event, and the high-water mark of the same time.
EVENT_DATA = (
    "82674C1B3E000000022B042C0100296E5A1004A1B2C3D4E5F60718293A4B5C6D7E8F90"
    "46645F69640064674C1B3E0000000000000001000004"
)
MARK_DATA = "82674C1B3E000000022B0229296E04"
TIME = Timestamp(0x674C1B3E, 2)

times = st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
# The rest of an event's token is a KeyString in hexadecimal; none is a prefix of another.
rests = st.integers(0, 0xFFFF).map(lambda n: f"2B04{n:04X}")
numbers = st.integers(1, 99_999_999)


@st.composite
def places(draw: st.DrawFn) -> tuple[tuple[int, int, int, str, int], str]:
    """Draw a token and the key that orders it in the stream."""
    time = draw(times)
    kind = draw(st.sampled_from(["before", "event", "drop", "moment", "snapshot", "baseline"]))
    key = (time.time, time.inc)
    rest, number = draw(rests), draw(numbers)
    if kind == "before":
        return (*key, 0, "", 0), resume_tokens.time_prefix(time)
    data = f"82{resume_tokens.time_prefix(time)}{rest}"
    if kind == "event":
        return (*key, 1, rest, 0), resume_tokens.token_from_stream(data)
    if kind == "drop":
        return (*key, 1, rest, number), resume_tokens.numbered_token(
            resume_tokens.token_from_stream(data), number
        )
    if kind == "moment":
        return (*key, 2, "", 0), resume_tokens.token_from_time(time)
    if kind == "snapshot":
        return (*key, 3, "", 0), resume_tokens.snapshot_token(time)
    return (*key, 4, "", number), resume_tokens.numbered_token(
        resume_tokens.token_from_time(time), number
    )


@given(st.lists(places(), max_size=20))
def test_text_order_is_stream_order(
    drawn: list[tuple[tuple[int, int, int, str, int], str]],
) -> None:
    """Tokens of all kinds sort as text by time, then kind, then position."""
    by_text = [token for _, token in sorted(drawn, key=lambda each: each[1])]
    by_place = [token for _, token in sorted(drawn)]
    assert by_text == by_place


@given(places())
def test_every_token_survives_encoding_and_has_its_time(
    drawn: tuple[tuple[int, int, int, str, int], str],
) -> None:
    """Decoding returns the same token, and the cluster time is part of it."""
    (seconds, count, *_), token = drawn
    assert resume_tokens.decode(resume_tokens.encode(token, "abc234"), "abc234") == token
    assert resume_tokens.cluster_time(token) == Timestamp(seconds, count)


def test_a_high_water_mark_is_before_the_events_of_its_time() -> None:
    """The server's own tokens keep the order that it gives them."""
    mark, seen = (
        resume_tokens.token_from_stream(MARK_DATA),
        resume_tokens.token_from_stream(EVENT_DATA),
    )
    assert resume_tokens.time_prefix(TIME) < mark < seen < resume_tokens.token_from_time(TIME)
    assert resume_tokens.cluster_time(seen) == TIME


def test_a_stream_token_may_have_digits_of_either_case() -> None:
    """Internally there is one form of hexadecimal digits."""
    assert resume_tokens.token_from_stream(EVENT_DATA.lower()) == resume_tokens.token_from_stream(
        EVENT_DATA
    )


@pytest.mark.parametrize(
    "data", ["", "82", "7F674C1B3E00000002", "82674C1B3E", "82674C1B3E0000000G"]
)
def test_a_stream_token_of_unknown_form_is_an_error(data: str) -> None:
    """A token must begin with a cluster time."""
    with pytest.raises(ValueError, match="expected one that begins with a time"):
        resume_tokens.token_from_stream(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        ".abc234",
        "674C1B3E00000002",
        "674C1B3E.abc234",
        "674c1b3e00000002.abc234",
        "674C1B3E00000002~~.abc234",
        "674C1B3E00000002-1.abc234",
        "674C1B3E00000002!.abc234",
        "674C1B3E00000002~!1.abc234",
        "674C1B3E00000002\n.abc234",
        " 674C1B3E00000002.abc234",
        "٠٦٧٤٠٠٠٠٠٠٠٠٠٠٠٠.abc234",
        "674C1B3E00000002" + "A" * 5000 + ".abc234",
        EVENT_DATA,
    ],
)
def test_an_invalid_token_is_refused(text: str) -> None:
    """The error is RESUME_TOKEN_INVALID, never "from now"; it quotes the text, shortened."""
    with pytest.raises(ResumeTokenInvalid, match="expected one of this service") as caught:
        resume_tokens.decode(text, "abc234")
    assert caught.value.extensions["code"] == "RESUME_TOKEN_INVALID"
    assert len(caught.value.message) < 250


def test_a_token_of_another_deployment_is_refused_with_both_names() -> None:
    """A token is valid in one deployment only."""
    with pytest.raises(ResumeTokenInvalid, match=r"'zzz999'.*'abc234'"):
        resume_tokens.decode(
            resume_tokens.encode(resume_tokens.token_from_time(TIME), "zzz999"), "abc234"
        )


def test_a_record_of_a_drop_may_be_followed_by_others() -> None:
    """All records of one drop are before later events; the last position is after them."""
    drop = resume_tokens.token_from_stream(EVENT_DATA)
    third, last = resume_tokens.numbered_token(drop, 3), resume_tokens.token_after_event(drop)
    assert drop < third < last < resume_tokens.token_from_time(TIME)
    assert resume_tokens.divided_event(third) == drop
    assert resume_tokens.divided_event(last) is None
    for whole in (
        drop,
        resume_tokens.token_from_time(TIME),
        resume_tokens.numbered_token(resume_tokens.token_from_time(TIME), 3),
    ):
        assert resume_tokens.divided_event(whole) is None


def test_a_token_within_a_snapshot_cannot_be_resumed_from() -> None:
    """The rest of the snapshot would be missing without notice."""
    assert resume_tokens.require_resumable(
        resume_tokens.token_from_time(TIME)
    ) == resume_tokens.token_from_time(TIME)
    with pytest.raises(ResumeTokenInvalid, match="snapshot"):
        resume_tokens.require_resumable(resume_tokens.snapshot_token(TIME))


def test_the_token_before_an_event_is_after_all_earlier_ones() -> None:
    """Events of a transaction share one cluster time; the token can be resumed from."""
    time, kind, end = "65A1B2C300000005", "2B022C0100", "6E5A1004"
    events = [f"{time}{kind}{index}{end}{key}" for index in ("29", "2B02", "2B04") for key in "0F"]
    for one, other in pairwise(events[::2]):
        assert one < resume_tokens.token_before_event(other) < other
    for event in events:
        assert time < resume_tokens.token_before_event(event) < event
        assert resume_tokens.decode(
            resume_tokens.encode(resume_tokens.token_before_event(event), "abc"), "abc"
        )
    assert (
        resume_tokens.time_prefix(Timestamp(5, 1))
        < resume_tokens.token_before_event(token_at(5))
        < token_at(5)
    )
