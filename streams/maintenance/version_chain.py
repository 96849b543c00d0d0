"""Consistency checks between the versions of one document: gaps, intervals, numbers, contents.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from revstream.model.naming import with_article
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.content_encoding import KEYFRAME_EVERY
from revstream.streams.versioning.version import changed_paths, next_number

__all__ = ["Flaw", "find_chain_flaws", "find_link_flaws", "is_first"]


@dataclass(frozen=True, slots=True)
class Flaw:
    """An inconsistency of one record.

    Attributes:
        kind: As in `streams.maintenance.verification.VerificationFinding`.
    """

    record: Mapping[str, Any]
    kind: str
    problem: str


def find_chain_flaws(versions: Sequence[Document], *, version_field: str | None) -> Iterator[Flaw]:
    """Yield the flaws of a document's versions.

    Args:
        versions: Versions of one document, the newest first, with their contents.
    """
    yield from find_link_flaws(versions)
    yield from _find_keyframe_flaws(versions)
    for newer, older in pairwise(versions):
        if newer["prev"] == older["_id"]:
            yield from _find_pair_flaws(older, newer, version_field)
    if is_first(versions[-1]):
        yield from _find_content_flaws(None, versions[-1], version_field)


def find_link_flaws(versions: Sequence[Document]) -> Iterator[Flaw]:
    """Yield the flaws of links between records, without their contents."""
    for newer, older in pairwise(versions):
        if newer.get("first"):
            yield Flaw(newer, "MISSING", f"is marked as first, expected version {older['v']}")
        elif newer["prev"] != older["_id"]:
            problem = f"does not name version {older['v']} as its previous version"
            yield Flaw(newer, "MISSING", problem)


def is_first(record: Mapping[str, Any]) -> bool:
    return record["prev"] is None and bool(record.get("first"))


def _find_keyframe_flaws(versions: Sequence[Document]) -> Iterator[Flaw]:
    """Yield patches that a reader starting at the number of the keyframe would not reach."""
    base = 0
    for each in reversed(versions):
        if "patch" not in each:
            base = each["v"]
        elif each["depth"] >= KEYFRAME_EVERY:
            yield Flaw(
                each,
                "CONTENT",
                f"is stored as patch {each['depth']}, maximum is {KEYFRAME_EVERY - 1}",
            )
        elif each["keyframe"] > base:
            yield Flaw(
                each,
                "CONTENT",
                f"is stored as patch {each['depth']} of version {each['keyframe']}, expected of "
                f"version {base}, the last whole one",
            )


def _find_pair_flaws(older: Document, newer: Document, version_field: str | None) -> Iterator[Flaw]:
    if newer["_id"] <= older["_id"] or newer["at"] < older["at"]:
        yield Flaw(
            older,
            "INTERVAL",
            f"begins at {older['wall']}, expected before version {newer['v']}, which replaced it "
            f"at {newer['wall']}",
        )
    number, _ = next_number(
        older["v"],
        newer["full"],
        version_field,
        newer.get("kept"),
        offset=older.get("offset", 0),
        inserted=newer["op"] == "INSERT",
    )
    if newer["v"] != number:
        yield Flaw(newer, "NUMBER", f"expected number {number}")
    yield from _find_content_flaws(older, newer, version_field)


def _find_content_flaws(
    older: Document | None, newer: Document, version_field: str | None
) -> Iterator[Flaw]:
    """Yield differences between a version's changed paths and its actual changes."""
    full = newer["full"]
    if (full is None) != (newer["op"] == "DELETE"):
        has = "no content, expected some" if full is None else "content, expected none"
        yield Flaw(newer, "CONTENT", f"is {with_article(newer['op'])} with {has}")
        return
    if "cut" in newer or "setAside" in newer:
        # Its changed paths refer to a truncated version, or are incomplete.
        return
    changed = changed_paths(None if older is None else older["full"], full, version_field)
    if list(newer["changed"]) != changed:
        problem = f"lists the changed fields {newer['changed']}, expected {changed}"
        yield Flaw(newer, "CONTENT", problem)
