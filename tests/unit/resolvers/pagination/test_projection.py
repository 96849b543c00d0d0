"""Projections of fields."""

from __future__ import annotations

from revstream.resolvers.pagination.projection import (
    document_projection,
    prefixed_projection,
    record_projection,
)


def test_a_document_is_read_with_its_id_and_the_selected_fields() -> None:
    """Results are matched by the id."""
    assert document_projection(frozenset()) == {"_id": 1}
    assert document_projection(frozenset({"name", "size.w"})) == {"_id": 1, "name": 1, "size.w": 1}


def test_paths_inside_of_others_are_left_out() -> None:
    """MongoDB refuses both; `sizes` is not inside `size`."""
    fields = frozenset({"size", "size.w", "size.corner.x", "sizes", "a.b", "a.b.c"})
    assert document_projection(fields) == {"_id": 1, "a.b": 1, "size": 1, "sizes": 1}


def test_a_record_is_read_with_the_facts_of_the_version() -> None:
    """The content is read only as far as it is selected."""
    without = record_projection(None)
    assert {"doc", "v", "op", "at", "wall", "prev", "changed", "gap"} <= without.keys()
    assert not any(name.startswith("full") for name in without)
    elsewhere = {"packed": 1, "keyframe": 1, "parts": 1, "kept": 1}
    assert record_projection(frozenset()) == {**without, **elsewhere, "full._id": 1}
    assert record_projection(frozenset({"size.w"})) == {
        **without,
        **elsewhere,
        "full._id": 1,
        "full.size.w": 1,
    }


def test_a_projection_can_be_put_below_a_field() -> None:
    """Each path gets the prefix; the id is always included."""
    assert prefixed_projection("found", {"size.w": 1}) == {"found._id": 1, "found.size.w": 1}
