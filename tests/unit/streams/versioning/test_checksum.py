"""Checksums of versions: the trace is part of the chain, and older chains stay valid."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from revstream.streams.mongo.driver.codecs import RAW
from revstream.streams.versioning.checksum import add_checksums, checksum_flaws

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CONTENT = RawBSONDocument(bson.encode({"_id": 1, "n": 1}), RAW)


def record(**more: Any) -> dict[str, Any]:
    """Return a first version with checksums."""
    made: dict[str, Any] = {
        **{"_id": "t1", "v": 1, "op": "INSERT", "at": Timestamp(1, 1), "prev": None},
        **{"wall": datetime(2026, 11, 28, tzinfo=UTC), "by": "ann", "why": None, "first": True},
        **more,
    }
    add_checksums(made, CONTENT, None, kept=False)
    return made | {"full": CONTENT}


def flaws(found: dict[str, Any]) -> list[str]:
    return [flaw for _, flaw in checksum_flaws([found], kept=False)]


def test_a_changed_trace_breaks_the_chain() -> None:
    """It is removed, added or replaced."""
    traced, plain = record(traceparent=TRACE), record()
    assert flaws(traced) == flaws(plain) == []
    without = {name: value for name, value in traced.items() if name != "traceparent"}
    changed = (without, traced | {"traceparent": TRACE[:-1] + "0"}, plain | {"traceparent": TRACE})
    for each in changed:
        assert flaws(each) == ["chain: of another version, expected that of the first version"]


def test_the_chain_of_a_version_without_a_trace_is_as_it_was() -> None:
    """Archives of before versions had traces are verified with the same sums."""
    assert record()["chain"].hex() == "f8c86abb0d8f060b74294b189a3b9cc1"
