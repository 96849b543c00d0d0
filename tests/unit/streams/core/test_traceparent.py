"""`traceparent` of any origin: valid, or ignored."""

from __future__ import annotations

import pytest

from revstream.streams.core.traceparent import read_traceparent

VALID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_valid_traceparent_is_read_as_it_is() -> None:
    """Its flags and its version are not interpreted."""
    assert read_traceparent(VALID) == VALID
    assert read_traceparent(f"cc{VALID[2:-2]}00") == f"cc{VALID[2:-2]}00"


@pytest.mark.parametrize(
    "malformed",
    [
        *(None, 1, "", VALID.encode(), [VALID], {"traceparent": VALID}),
        *(VALID[:-1], VALID + "0", VALID + "-extra", VALID + "\n", " " + VALID),
        *(VALID.upper(), VALID.replace("-", "_"), "ff" + VALID[2:], "0x" + VALID[2:]),
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        VALID.replace("4bf9", "\u0664bf9"),
        VALID * 100_000,
    ],
)
def test_a_malformed_traceparent_is_ignored(malformed: object) -> None:
    """It is of another type, length or form, or names no trace."""
    assert read_traceparent(malformed) is None
