"""Update pipeline that sets copies, and never replaces one of a later state of its source.

It is safe in any order and from any process.

Source: docs/decisions/0020-copies.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bson import ObjectId

from revstream.streams.mongo.transactions import Pipeline, has_names_once
from revstream.streams.versioning.attribution import COPIER, copier_mark
from revstream.streams.versioning.copied_field import CopiedField, SourceState
from revstream.streams.versioning.version import CHANGE_FIELD, COPIES_FIELD, HIGHEST_COUNTER

__all__ = ["copy_pipeline"]

Expression = Any

# Fails with CONVERSION_FAILURE, on documents only; a constant would fail when the update is parsed.
_REFUSAL = {"$toInt": {"$concat": ["a field stands twice in the ", {"$type": "$$ROOT"}]}}


def copy_pipeline(copy: CopiedField, known: Sequence[SourceState], secret: str) -> Pipeline:
    """Return a pipeline that sets the copies of these sources, unless a later version is set.

    It unsets copies whose reference is null. An unchanged document counts no write. `_change` names
    the
    written document, since many documents have the same id.

    Args:
        secret: Secret with which the Copier signs.
    """
    states = [
        {"of": k.source, "v": k.number, "x": k.value, "since": min(k.since, k.number)}
        for k in known
    ]
    entries = _array(_get(_object("$$ROOT", COPIES_FIELD), copy.key))
    still_referred = _filter("$$entries", "entry", {"$in": ["$$entry.of", "$$referred"]})
    after = _let("noted", _noted(), _let("after", _with_notes(copy), _counted(copy, secret)))
    after = _let("set", _walk(copy), _let("kept", still_referred, after))
    changed = {"$let": {"vars": {"fresh": _fresh(), "referred": _referred(copy)}, "in": after}}
    given = {"known": {"$literal": states}, "entries": entries}
    return [{"$replaceWith": {"$let": {"vars": given, "in": changed}}}]


def _fresh() -> Expression:
    """Return the states that are not older than the document's copies: the guard of every copy."""
    later = [
        {"$eq": ["$$entry.of", "$$state.of"]},
        {"$isNumber": "$$entry.v"},
        {"$gt": ["$$entry.v", "$$state.v"]},
    ]
    found = _filter("$$entries", "entry", {"$and": later})
    return _filter("$$known", "state", {"$eq": [found, []]})


def _referred(copy: CopiedField) -> Expression:
    """Return the ids that the document refers to."""

    def collect(value: Expression, steps: Sequence[str], depth: int) -> Expression:
        def collect_item(item: Expression) -> Expression:
            deeper = [_get(item, copy.by)]
            if steps:
                deeper = collect(_get(item, steps[0]), steps[1:], depth + 1)
            return {"$cond": [_has_type(item, "object"), deeper, []]}

        return collect_item(value) if depth == 0 else _of_each(value, collect_item, depth)

    return collect("$$ROOT", copy.steps, 0)


def _of_each(value: Expression, of: Callable[[Expression], Expression], depth: int) -> Expression:
    """Concatenate the lists of all items of a list; of any other value, return its own list."""
    item = f"item{depth}"
    joined = {
        "$reduce": {
            "input": {"$map": {"input": value, "as": item, "in": of(f"$${item}")}},
            "initialValue": [],
            "in": {"$concatArrays": ["$$value", "$$this"]},
        }
    }
    return {"$cond": [{"$isArray": [value]}, joined, of(value)]}


def _walk(copy: CopiedField) -> Expression:
    """Return the document with its copies set."""

    def into(value: Expression, steps: Sequence[str], depth: int) -> Expression:
        if not steps:
            changed = _copied(copy, value)
        else:
            inner = _get(value, steps[0])
            deeper = _set(value, steps[0], either(inner, steps[1:], depth + 1))
            is_there = {"$in": [{"$type": inner}, ["object", "array"]]}
            changed = {"$cond": [is_there, deeper, value]}
        safe = {"$cond": [has_names_once(value), changed, _REFUSAL]}
        return {"$cond": [_has_type(value, "object"), safe, value]}

    def either(value: Expression, steps: Sequence[str], depth: int) -> Expression:
        item = f"item{depth}"
        items = {"$map": {"input": value, "as": item, "in": into(f"$${item}", steps, depth)}}
        return {"$cond": [{"$isArray": [value]}, items, into(value, steps, depth)]}

    return into("$$ROOT", copy.steps, 0)


def _copied(copy: CopiedField, holder: Expression) -> Expression:
    """Return the object that holds a copy, with the copy set."""
    of_source = _filter("$$fresh", "state", {"$eq": ["$$state.of", "$$by"]})
    refers = {"$not": [{"$in": [{"$type": "$$by"}, ["missing", "null", "undefined"]]}]}
    value = _set(holder, copy.field, "$$state.x")
    known = {"$cond": [_has_type("$$state", "missing"), holder, value]}
    return _let(
        "by",
        _get(holder, copy.by),
        {
            "$cond": [
                refers,
                _let("state", {"$first": of_source}, known),
                _set(holder, copy.field, "$$REMOVE"),
            ]
        },
    )


def _noted() -> Expression:
    """Return the entries of the document's copies, in their order, so that no other value
    changes.
    """
    noted = {"of": "$$state.of", "v": "$$state.v"}
    of_entry = {"$first": _filter("$$fresh", "state", {"$eq": ["$$state.of", "$$entry.of"]})}
    # The value was the same from that version to this one. Setting the number alone would be a
    # version without a visible change.
    of_this_value = [{"$isNumber": "$$entry.v"}, {"$gte": ["$$entry.v", "$$state.since"]}]
    as_it_was = {"$or": [_has_type("$$state", "missing"), {"$and": of_this_value}]}
    stays = {"$cond": [as_it_was, "$$entry", noted]}
    is_new = [
        {"$in": ["$$state.of", "$$referred"]},
        {"$not": [{"$in": ["$$state.of", "$$entries.of"]}]},
    ]
    return {
        "$concatArrays": [
            {"$map": {"input": "$$kept", "as": "entry", "in": _let("state", of_entry, stays)}},
            {
                "$map": {
                    "input": _filter("$$fresh", "state", {"$and": is_new}),
                    "as": "state",
                    "in": noted,
                }
            },
        ]
    }


def _with_notes(copy: CopiedField) -> Expression:
    """Return the document with its copies and their entries set."""
    beside_others = _set(_object("$$set", COPIES_FIELD), copy.key, _unless("$$noted", []))
    return _let("copies", beside_others, _set("$$set", COPIES_FIELD, _unless("$$copies", {})))


def _unless(value: Expression, empty: Any) -> Expression:
    return {"$cond": [{"$eq": [value, {"$literal": empty}]}, "$$REMOVE", value]}


def _counted(copy: CopiedField, secret: str) -> Expression:
    """Return `$$after` with our attribution and the next count; the old document if it is the same.

    Entries of former sources are removed with the next write: a write for them alone would be a
    version
    without a visible change.
    """
    id_ = str(ObjectId())
    said = {"id": id_, "in": copy.target, "by": COPIER, "op": "UPDATE"}
    signed: dict[str, Expression] = {"$literal": said | {"mark": copier_mark(secret, id_)}}
    own: dict[str, Expression] = {CHANGE_FIELD: {"$mergeObjects": [signed, {"doc": "$$ROOT._id"}]}}
    if copy.counts is not None:
        count = _get("$$ROOT", copy.counts)
        counts = {"$and": [{"$isNumber": count}, {"$lt": [count, HIGHEST_COUNTER]}]}
        own[copy.counts] = {"$add": [{"$cond": [counts, count, 0]}, 1]}
    written: Expression = "$$after"
    for name, value in own.items():
        written = _set(written, name, value)
    same = {"$and": [{"$eq": ["$$set", "$$ROOT"]}, {"$eq": ["$$noted", "$$kept"]}]}
    return {"$cond": [same, "$$ROOT", written]}


def _get(value: Expression, name: str) -> Expression:
    return {"$getField": {"field": {"$literal": name}, "input": value}}


def _set(value: Expression, name: str, new: Expression) -> Expression:
    return {"$setField": {"field": {"$literal": name}, "input": value, "value": new}}


def _let(name: str, value: Expression, inside: Expression) -> Expression:
    return {"$let": {"vars": {name: value}, "in": inside}}


def _filter(values: Expression, name: str, condition: Expression) -> Expression:
    return {"$filter": {"input": values, "as": name, "cond": condition}}


def _has_type(value: Expression, name: str) -> Expression:
    return {"$eq": [{"$type": value}, name]}


def _object(value: Expression, name: str) -> Expression:
    """Return the object in a field; an empty one if there is none."""
    found = _get(value, name)
    return {"$cond": [_has_type(found, "object"), found, {"$literal": {}}]}


def _array(value: Expression) -> Expression:
    return {"$cond": [{"$isArray": [value]}, value, []]}
