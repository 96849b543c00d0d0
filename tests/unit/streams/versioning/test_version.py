"""A version built from a write and the version before: number, author, changed paths."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Timestamp
from bson.dbref import DBRef
from hypothesis import given
from hypothesis import strategies as st

from revstream.streams.changefeed.event import ChangeEvent
from revstream.streams.versioning.attribution import claimed_change, read_attribution
from revstream.streams.versioning.version import (
    RESERVED,
    LastVersion,
    Version,
    make_version,
    next_number,
)
from tests.support.streams import event, raw, token_at

NAMES = st.sampled_from(["a", "version", "v", "subversion", "_change", "_copies", "x_change"])
NUMBERS = st.integers(-1, 20) | st.integers(0, 20).map(Int64) | st.floats(-1, 20).map(round)
SCALARS = st.one_of(
    NUMBERS,
    st.floats(allow_nan=False),
    st.sampled_from(["version\0", "\x10version\0\x07\0\0\0", "_change", "", None, True]),
)
CONTENTS = st.recursive(
    SCALARS,
    lambda each: st.dictionaries(NAMES, each, max_size=3) | st.lists(each, max_size=3),
    max_leaves=5,
)
ALICE = {"id": 1, "by": "alice", "why": "price"}


@pytest.mark.parametrize(
    ("last", "document", "expected"),
    [
        (0, {"version": 1}, 1),
        (0, {"version": 7}, 7),
        (3, {"version": 4}, 4),
        (3, {"version": Int64(9)}, 9),
        (3, {"version": 5.0}, 5),
        (3, {"version": 2**30}, 2**30),
        # not above the last one: the archive counts
        (3, {"version": 3}, 4),
        (3, {"version": 1}, 4),
        (3, {"version": -1}, 4),
        # no integer
        (3, {}, 4),
        (3, {"version": None}, 4),
        (3, {"version": "9"}, 4),
        (3, {"version": 9.5}, 4),
        (3, {"version": float("nan")}, 4),
        (3, {"version": float("inf")}, 4),
        (3, {"version": True}, 4),
        (0, {"version": True}, 1),
        (3, {"version": Decimal128("9")}, 4),
        # more than GraphQL's Int
        (3, {"version": 2**30 + 1}, 4),
        (3, {"version": 2**31}, 4),
        # a deletion
        (3, None, 4),
    ],
)
def test_a_version_takes_the_number_of_the_field_or_the_next_one(
    last: int, document: dict[str, Any] | None, expected: int
) -> None:
    """A counted document keeps its number; otherwise the archive counts; numbers never decrease."""
    found, offset = next_number(last, document, "version")
    assert (found, type(found), offset) == (expected, int, 0)


def test_documents_without_a_version_field_are_counted_by_the_archive() -> None:
    """A field that is not the version field decides nothing."""
    assert next_number(3, {"version": 9}, None) == (4, 0)
    assert next_number(3, {"version": 9, "n": 20}, "n") == (20, 0)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (7, "7"),
        (7.0, "7"),
        (2.5, "2.5"),
        (True, "true"),
        (ObjectId("64a000000000000000000001"), "64a000000000000000000001"),
        (Binary(bytes(15) + b"\7", 4), "00000000-0000-0000-0000-000000000007"),
        (b"abc", "YWJj"),
        (datetime(2024, 5, 1, tzinfo=UTC), "2024-05-01T00:00:00Z"),
        ({"name": "bram", "id": 7}, '{"name": "bram", "id": 7}'),
        (["bram", 7], '["bram", 7]'),
        (None, None),
    ],
)
def test_an_author_of_any_type_is_rendered_as_text(by: object, expected: str | None) -> None:
    """Programs identify their users by ids, or by documents."""
    assert read_attribution({"by": by}).get("by") == expected
    assert read_attribution(raw({"by": by})).get("by") == expected


def test_an_inserted_document_is_counted_from_its_insert_on() -> None:
    """The number of a clone or a restored document belongs to another document.

    Its increments count.
    """
    assert next_number(0, {"version": 1}, "version", inserted=True) == (1, 0)
    assert next_number(0, {"version": 54}, "version", inserted=True) == (1, 53)
    assert next_number(9, {"version": 54}, "version", inserted=True) == (10, 44)
    assert next_number(9, {"version": 4}, "version", inserted=True) == (10, 0)
    # Incremented by one and by more; not incremented; set to the expected number.
    assert next_number(1, {"version": 55}, "version", offset=53) == (2, 53)
    assert next_number(1, {"version": 57}, "version", offset=53) == (4, 53)
    assert next_number(1, {"version": 54}, "version", offset=53) == (2, 53)
    assert next_number(1, {"version": 2}, "version", offset=53) == (2, 0)
    assert next_number(1, None, "version", offset=53) == (2, 53)


def attributed(operation: str, after: Any, earlier: Any, update: Any = None) -> dict[str, Any]:
    """Return the attribution of a write, equal for raw and for decoded documents."""
    one = event(operation=operation, after=after, update=update)
    found = attribution_fields(one, after, earlier)
    assert attribution_fields(one, raw(after), earlier and raw({"": earlier})[""]) == found
    return found


def attribution_fields(
    one: ChangeEvent, after: Any, earlier: Any, deletion: Any = None
) -> dict[str, Any]:
    claimed = claimed_change(one, after, earlier, deletion)
    return {} if claimed is None else read_attribution(claimed)


def test_a_malformed_trace_is_not_attributed() -> None:
    """Any program may write any value; a valid trace is read beside an author, or alone."""
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for malformed in (None, 7, "", trace.upper(), [trace], b"00", f"{trace}0"):
        assert read_attribution({"by": "ann", "traceparent": malformed}) == {"by": "ann"}
    assert read_attribution({"traceparent": trace}) == {"traceparent": trace}
    assert read_attribution(raw({"by": 1, "traceparent": trace})) == {
        **{"by": "1", "traceparent": trace}
    }


@pytest.mark.parametrize(
    ("operation", "change", "earlier", "update"),
    [
        ("insert", ALICE, None, None),
        # inserted again with the `_change` of its deletion: still this write's
        ("insert", ALICE, ALICE, None),
        ("replace", ALICE, None, None),
        ("replace", ALICE, {"id": 0, "by": "bob"}, None),
        ("replace", ALICE, "no object", None),
        ("replace", {"by": "alice", "why": "price"}, {"by": "bob"}, None),
        ("replace", ALICE, {"by": "alice", "why": "price"}, None),
        ("update", ALICE, None, {"updatedFields": {"_change": ALICE}}),
        ("update", ALICE, {"id": 0}, {"updatedFields": {"n": 1, "_change.id": 1}}),
        ("update", ALICE, {"id": 1}, {"updatedFields": {"_change.why": "price"}}),
    ],
)
def test_a_write_that_sets_change_is_attributed(
    operation: str, change: dict[str, Any], earlier: Any, update: Any
) -> None:
    """It is an insert, a replacement or an update, of the whole field or of a part."""
    found = attributed(operation, {"_id": 1, "_change": change}, earlier, update)
    assert found == {"by": "alice", "why": "price"}


@pytest.mark.parametrize(
    ("operation", "change", "earlier", "update"),
    [
        # kept by a program that replaces the whole document
        ("replace", ALICE, ALICE, None),
        ("replace", {"by": "alice"}, {"by": "alice"}, None),
        ("replace", {"id": 1, "by": "alice"}, {"id": 1, "by": "alice", "why": "dropped"}, None),
        ("update", ALICE, ALICE, {"updatedFields": {"n": 1}}),
        ("update", ALICE, ALICE, {"updatedFields": {"_changed": 1}}),
        ("update", ALICE, ALICE, {"removedFields": ["n"]}),
        ("insert", None, None, None),
        ("insert", "alice", None, None),
        ("insert", [ALICE], None, None),
        ("update", "alice", None, {"updatedFields": {"_change": "alice"}}),
    ],
)
def test_a_write_that_only_keeps_change_is_not_attributed(
    operation: str, change: Any, earlier: Any, update: Any
) -> None:
    """The field is an earlier write's; a value that is no object is ignored."""
    assert attributed(operation, {"_id": 1, "_change": change}, earlier, update) == {}


def test_a_deletion_is_not_attributed() -> None:
    """No document is left that could hold the attribution."""
    assert attributed("delete", None, ALICE) == {}


def test_an_attributed_delete_has_the_attribution_noted_in_its_transaction() -> None:
    """It is the value of a `_change`; the `_change` that the document had before is ignored."""
    one = event(operation="delete")
    change = {"id": 2, "by": "bob", "why": "broken", "op": "REPLACE"}
    assert attribution_fields(one, None, ALICE, change) == {"by": "bob", "why": "broken"}
    assert attribution_fields(one, None, ALICE, raw(change)) == {"by": "bob", "why": "broken"}
    # The very same `_change`: a repeated mutation deletes a document.
    assert attribution_fields(one, None, change, change) == {"by": "bob", "why": "broken"}
    assert attribution_fields(one, None, ALICE, {"id": 2}) == {}


def test_a_noted_deletion_does_not_attribute_other_writes() -> None:
    """Only a delete leaves no document for the attribution."""
    one = event(operation="insert", after={"_id": 1})
    assert attribution_fields(one, {"_id": 1}, None, ALICE) == {}


@pytest.mark.parametrize(
    ("operation", "written_operation", "expected"),
    [
        # The server logs an update as a replacement, or the reverse, if that is shorter.
        ("replace", "UPDATE", "UPDATE"),
        ("update", "REPLACE", "REPLACE"),
        ("update", "UPDATE", "UPDATE"),
        # Any program may write anything.
        ("update", "DELETE", "UPDATE"),
        ("update", "INSERT", "UPDATE"),
        ("replace", "replace", "REPLACE"),
        ("replace", 5, "REPLACE"),
        ("replace", None, "REPLACE"),
        # Inserts and deletes are those of the stream.
        ("insert", "UPDATE", "INSERT"),
        ("insert", "REPLACE", "INSERT"),
    ],
)
def test_the_writer_decides_whether_it_updated_or_replaced(
    operation: str, written_operation: Any, expected: str
) -> None:
    """Only the writer knows the intended operation."""
    change = {"id": 5, "by": "ann", "op": written_operation}
    update = {"updatedFields": {"_change": change}} if operation == "update" else None
    record, _ = build_version(
        {"_id": 1, "_change": change},
        as_event=operation,
        operation=operation.upper(),
        update=update,
    )
    assert (record["op"], record["by"]) == (expected, "ann")


def test_an_operation_that_was_only_kept_is_ignored() -> None:
    """It is another write's operation."""
    change = {"id": 5, "op": "REPLACE"}
    _, last = build_version({"_id": 1, "_change": change})
    record, _ = build_version(
        {"_id": 1, "n": 1, "_change": change},
        last,
        as_event="update",
        operation="UPDATE",
        update={"updatedFields": {"n": 1}},
    )
    assert record["op"] == "UPDATE"


def test_values_of_other_programs_in_change_are_converted() -> None:
    """Names and reasons become text, numbers integers; other values are dropped."""
    user = ObjectId()
    change = {"by": user, "why": 5, "restoredFrom": 3.0, "draft": Int64(2)}
    found = attributed("insert", {"_change": change}, None)
    assert found == {"by": str(user), "why": "5", "restoredFrom": 3, "draft": 2}
    assert {type(each) for each in found.values()} == {str, int}
    odd = {"by": {"name": "x"}, "why": ["x"], "restoredFrom": "x", "draft": True}
    expected = {"by": '{"name": "x"}', "why": '["x"]'}
    assert attributed("insert", {"_change": odd}, None) == expected


def build_version(
    after: dict[str, Any] | None, last: LastVersion | None = None, **more: Any
) -> tuple[dict[str, Any], LastVersion]:
    one = event(
        5, after=after, operation=more.pop("as_event", "insert"), update=more.pop("update", None)
    )
    fields = {"operation": "INSERT", "version_field": "version", "event": one, **more}
    return make_version(
        token=one.token, at=one.at, wall=one.wall, key=1, after=one.after, last=last, **fields
    )


def test_the_first_version_has_none_before() -> None:
    """Its changed paths are all fields but the key and the version number."""
    record, last = build_version({"_id": 1, "version": 1, "a": 1, "b": {"c": 2}})
    assert record == {
        "_id": token_at(5),
        "doc": 1,
        "v": 1,
        "op": "INSERT",
        "at": Timestamp(5, 1),
        "wall": event(5).wall,
        "prev": None,
        "by": None,
        "why": None,
        "changed": ["a", "b"],
        "first": True,
        "full": raw({"_id": 1, "version": 1, "a": 1, "b": {"c": 2}}),
    }
    assert (last.token, last.number, last.full) == (token_at(5), 1, record["full"])


@given(
    document=st.dictionaries(NAMES, CONTENTS),
    last_number=st.integers(0, 12),
    version_field=st.sampled_from([None, "version", "v"]),
    operation=st.sampled_from(["insert", "replace"]),
    offset=st.sampled_from([0, 0, 5]),
)
def test_a_version_equals_one_built_from_decoded_fields(
    document: dict[str, Any],
    last_number: int,
    version_field: str | None,
    operation: str,
    offset: int,
) -> None:
    """Version number and `_change`, or lookalikes, may be anywhere in the undecoded document."""
    before = raw({"_id": 1})
    last = LastVersion(token=token_at(1), number=last_number, full=before, offset=offset)
    record, made_of_it = build_version(
        document, last, version_field=version_field, as_event=operation
    )
    fields = bson.decode(bson.encode(document))
    expected = next_number(
        last_number, fields, version_field, offset=offset, inserted=operation == "insert"
    )
    assert (record["v"], record.get("offset", 0)) == expected
    for name in ("change", "copies"):
        assert bson.encode({"": record.get(name)}) == bson.encode({"": fields.get(f"_{name}")})
    content = {name: each for name, each in fields.items() if name not in RESERVED}
    assert bson.decode(record["full"].raw) == content
    assert made_of_it.number == record["v"]
    assert made_of_it.full is not record["full"]
    assert made_of_it.full == record["full"]


def test_a_later_version_has_the_previous_token_and_the_changed_paths() -> None:
    """Paths are dotted, and compare two stored states; a write without changes has none."""
    _, first = build_version({"_id": 1, "a": 1, "b": {"c": 2, "d": 3}, "x": 1})
    changed = {"_id": 1, "version": 9, "a": 1, "b": {"c": 5, "d": 3}}
    record, second = build_version(changed, first, as_event="replace")
    assert (record["prev"], record["v"], record["changed"]) == (first.token, 9, ["b.c", "x"])
    assert "first" not in record
    record, _ = build_version(changed | {"version": 10}, second, as_event="replace")
    assert (record["v"], record["changed"]) == (10, [])


def test_a_deletion_takes_a_number_and_an_insert_continues_counting() -> None:
    """`full` is None for a deletion; a document inserted again has all its fields changed."""
    _, first = build_version({"_id": 1, "version": 1})
    record, tombstone = build_version(None, first, as_event="delete", operation="DELETE")
    assert (record["v"], record["full"], record["changed"]) == (2, None, [])
    record, _ = build_version({"_id": 1, "version": 1, "a": 1}, tombstone)
    assert (record["v"], record["changed"], record["prev"]) == (3, ["a"], tombstone.token)


def test_change_is_moved_from_the_document_into_the_record() -> None:
    """The content is stored without it; the record has the author, and the whole `_change`."""
    change = {"id": 8, "by": "alice", "why": "price", "restoredFrom": 2, "draft": 1}
    record, last = build_version({"_id": 1, "_change": change, "a": 1})
    assert record["full"] == raw({"_id": 1, "a": 1})
    assert (record["by"], record["why"]) == ("alice", "price")
    assert (record["restoredFrom"], record["draft"]) == (2, 1)
    assert record["changed"] == ["a"]
    assert bson.decode(bson.encode(record))["change"] == change
    record, _ = build_version({"_id": 1, "_change": change, "a": 2}, last, as_event="replace")
    assert (record["by"], record["why"], record["changed"]) == (None, None, ["a"])
    assert "restoredFrom" not in record


def test_a_deletion_keeps_its_noted_change() -> None:
    """A repeated mutation finds it by its id; a later insert has its own attribution."""
    change = {"id": 9, "by": "bob", "why": "broken"}
    _, first = build_version({"_id": 1, "_change": ALICE})
    record, tombstone = build_version(
        None, first, as_event="delete", operation="DELETE", deletion=change
    )
    assert (record["op"], record["by"], record["why"]) == ("DELETE", "bob", "broken")
    assert (record["change"], tombstone.change) == (change, change)
    record, _ = build_version({"_id": 1, "_change": change}, tombstone)
    assert (record["by"], dict(record["change"])) == ("bob", change)
    record, _ = build_version(None, first, as_event="delete", operation="DELETE")
    assert (record["by"], "change" in record) == (None, False)


@pytest.mark.parametrize("change", [None, "text", 5, []])
def test_change_that_is_no_object_is_removed_as_well(change: Any) -> None:
    """The name is reserved for any value."""
    record, _ = build_version({"_id": 1, "_change": change, "a": 1})
    assert record["full"] == raw({"_id": 1, "a": 1})
    assert record["changed"] == ["a"]


def test_removing_change_leaves_the_other_bytes_unchanged() -> None:
    """This includes values that the driver would convert: a DBRef among other fields."""
    reference = bson.SON([("x", 1), ("$ref", "c"), ("$id", 2), ("y", 3)])
    assert isinstance(bson.decode(bson.encode({"r": reference}))["r"], DBRef)
    record, _ = build_version({"_id": 1, "r": reference, "_change": {"by": "x"}, "l": [reference]})
    assert record["full"].raw == bson.encode({"_id": 1, "r": reference, "l": [reference]})


def test_a_version_read_again_has_its_time_and_a_gap() -> None:
    """`readAt` and `gap` are data."""
    record, last = build_version({"_id": 1}, read_at=Timestamp(9, 1), gap=True)
    assert (record["readAt"], record["gap"]) == (Timestamp(9, 1), True)
    assert last.read_at == Timestamp(9, 1)


def test_readers_get_a_record_as_a_version() -> None:
    """Stored values are returned, and missing ones have their default."""
    record, _ = build_version({"_id": 1, "version": 1, "_change": {"id": 1, "by": "alice"}})
    version = Version.from_record(bson.decode(bson.encode(record)))
    assert (version.token, version.document, version.number) == (token_at(5), 1, 1)
    assert (version.by, version.why, version.restored_from, version.gap) == (
        "alice",
        None,
        None,
        False,
    )
    assert version.full == {"_id": 1, "version": 1}
    record, _ = build_version(None, operation="DELETE", as_event="delete", gap=True)
    version = Version.from_record(bson.decode(bson.encode(record)))
    assert (version.full, version.gap, version.operation) == (None, True, "DELETE")
