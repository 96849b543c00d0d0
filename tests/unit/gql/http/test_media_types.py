"""Media types: parsing, and ranking by `Accept`."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revstream.gql.http.media_types import Accept, MediaType, parse_media_type

JSON = MediaType("application/json", {"charset": "utf-8"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("application/json", MediaType("application/json")),
        (" Application/JSON ; Charset=UTF-8", JSON),
        ('application/json;charset="utf-8";', JSON),
        ('a/b; x="a;b, \\"c\\""; y=z', MediaType("a/b", {"x": 'a;b, "c"', "y": "z"})),
        ("*/*", MediaType("*/*")),
        ("", None),
        ("json", None),
        ("application/", None),
        ("application/json, text/plain", None),
        ("application/json charset=utf-8", None),
        ("application/json; charset", None),
        ('application/json; charset="utf-8', None),
        ("text/plain\n; x=y", None),
    ],
)
def test_a_media_type_is_parsed_whole_or_not_at_all(text: str, expected: MediaType | None) -> None:
    """Names and values become lower case, without quotes."""
    assert parse_media_type(text) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, (1, 0)),
        ("", (1, 0)),
        ("*/*", (1, 0)),
        ("application/*;q=0.5", (0.5, 1)),
        ("application/json", (1, 2)),
        ("application/json;q=0.25", (0.25, 2)),
        ("application/json; q=1.000", (1, 2)),
        ("APPLICATION/JSON; Charset=UTF-8", (1, 2)),
        # The most specific range decides, wherever it is.
        ("application/json;q=0.1, */*", (0.1, 2)),
        ("*/*, application/json;q=0.1", (0.1, 2)),
        ("application/json;q=0.1, application/json;charset=utf-8;q=0.2", (0.2, 2)),
        ("application/json;q=0", (0, 0)),
        ("application/json;q=0, application/*", (0, 0)),
        ("application/json; charset=utf-16", (0, 0)),
        ("text/*", (0, 0)),
        # Invalid ranges are skipped.
        ("application/json;q=2, */*;q=0.5", (0.5, 0)),
        ("application/json;q=-1", (0, 0)),
        ("application/json;q=0.1234", (0, 0)),
        (",, application/json ,", (1, 2)),
        ('x/y;a="application/json, ", */*;q=0.5', (0.5, 0)),
        ('x/y;a="application/json', (0, 0)),
    ],
)
def test_a_type_is_ranked_by_its_most_specific_range(
    header: str | None, expected: tuple[float, int]
) -> None:
    """The rank has its quality and its specificity."""
    assert Accept(header).rank(JSON) == expected


def test_a_range_with_a_parameter_needs_it() -> None:
    """Only ranges with the parameter count."""
    offered = MediaType("multipart/mixed", {"boundary": "graphql", "subscriptionSpec": "1.0"})
    for header, quality in {
        "multipart/mixed": 0,
        "*/*": 0,
        "multipart/mixed;deferSpec=20220824": 0,
        'multipart/mixed;subscriptionSpec="1.0"': 1,
        "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/json": 1,
        "multipart/mixed, multipart/mixed;subscriptionSpec=1.0;q=0.5": 0.5,
    }.items():
        assert Accept(header).rank(offered, naming="subscriptionspec")[0] == quality, header


@given(st.text(alphabet='aA/*;=,q0.1" \\\t'))
def test_any_header_is_parsed(header: str) -> None:
    """The result is always a rank."""
    quality, named = Accept(header).rank(JSON)
    assert 0 <= quality <= 1
    assert named in (0, 1, 2)


@pytest.mark.parametrize("piece", ['"', '\\"', '"\\', ";", ",", " ", "a/b;", 'a/b;c="', "\\"])
def test_a_long_header_is_parsed_in_linear_time(piece: str) -> None:
    """The header has 64 KB and no valid range."""
    header = piece * (65_536 // len(piece))
    began = time.monotonic()
    Accept(header).rank(JSON)
    parse_media_type(f"a/b{header}")
    parse_media_type(f"a/b;{header}")
    assert time.monotonic() - began < 20
