"""Sample of the stored data, compared with the model: what does not fit, how often, and how to mend
it. Reads only.

Guarantees: a sample of `SAMPLE` documents for each collection, and no scan but for the duplicates
of a unique index that is not there.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from revstream.model.definition import Entity, HistoryKind, Model, ObjectType
from revstream.model.naming import suggestion
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.values.output import ValueLocation, converter, describe_value
from revstream.resolvers.values.type_misfit import type_misfit
from revstream.streams.core.errors import GatewayError
from revstream.streams.maintenance.diagnosis import DiagnosisFinding
from revstream.streams.mongo.database import Mongo

__all__ = ["SAMPLE", "examine_data"]

SAMPLE = 200
"""Documents that are looked at, of each collection."""

_SUBJECT = "data"
_ITEM = re.compile(r"\.[0-9]+(?=\.|$)")


@dataclass(slots=True)
class _Misfits:
    """Documents in which one field does not fit; `example` is the first."""

    example: DocumentMisfit
    documents: set[int] = field(default_factory=set)


async def examine_data(mongo: Mongo, model: Model) -> list[DiagnosisFinding]:
    """Return what does not fit, one finding for each field; one that says so where all does.

    What cannot be looked at is a finding of its own.
    """
    found: list[DiagnosisFinding] = []
    try:
        listed = await mongo.command({"listCollections": 1, "nameOnly": True})
        names = {
            each["name"]
            for each in listed["cursor"]["firstBatch"]
            if not each["name"].startswith(("revstream.", "system."))
        }
        for entity in model.entities:
            found += [each async for each in _of_entity(mongo, model, entity, names)]
    except GatewayError as exc:
        found.append(DiagnosisFinding(level="warning", subject=_SUBJECT, text=exc.message))
    return found or [DiagnosisFinding(level="ok", subject=_SUBJECT, text="a sample fits the model")]


async def _of_entity(
    mongo: Mongo, model: Model, entity: Entity, names: set[str]
) -> AsyncIterator[DiagnosisFinding]:
    collection = entity.collection
    if collection not in names:
        yield _missing(entity, collection, "@collection(name:)", names)
        return
    if entity.history is HistoryKind.SEPARATE and entity.layout is not None:
        previous = entity.layout.previous
        if previous not in names:
            yield _missing(entity, previous, "@layout(previous:)", names)
    documents = await mongo.aggregate(collection, [{"$sample": {"size": SAMPLE}}])
    if entity.history is not HistoryKind.ARCHIVE:
        for each in _of_layout(entity, documents):
            yield each
        return
    misfits: dict[str, _Misfits] = {}
    for number, document in enumerate(documents):
        for misfit in _of_document(
            model, entity, document, ValueLocation(collection, document["_id"])
        ):
            name = _ITEM.sub("", str(misfit.facts["field"]))
            misfits.setdefault(name, _Misfits(misfit)).documents.add(number)
    for name, found in misfits.items():
        count = len(found.documents)
        yield DiagnosisFinding(
            level="warning",
            subject=_SUBJECT,
            text=f"{entity.name}.{name}: {count} of {len(documents)} documents in the sample "
            f"({count / len(documents):.0%}) do not fit the model; {found.example.message}",
            mend=str(found.example.facts["mend"]),
        )
    async for finding in _duplicates(mongo, entity):
        yield finding


def _missing(entity: Entity, collection: str, where: str, names: set[str]) -> DiagnosisFinding:
    meant = suggestion(collection, names)
    return DiagnosisFinding(
        # A new database has none of them yet.
        level="warning" if names else "note",
        subject=_SUBJECT,
        text=f"{entity.name}: the collection {collection!r} does not exist"
        + (f"; a similar name is {meant!r}" if meant else ""),
        mend=f"if the name is a typo, correct {where}; otherwise the first write creates it",
    )


def _of_document(
    model: Model, type_: ObjectType, document: Mapping[str, Any], place: ValueLocation
) -> list[DocumentMisfit]:
    found: list[DocumentMisfit] = []
    union = type_.discriminator
    if union is not None and union.member(document) is None:
        found.append(type_misfit(place, union, document))
    for each in model.variant(type_, document).fields:
        try:
            shown = converter(each)(document.get(each.stored), place)
        except DocumentMisfit as misfit:
            found.append(misfit)
            continue
        if not isinstance(each.type, str) or shown is None:
            continue
        inner = model.embedded(each.type)
        items = list(enumerate(shown)) if each.is_list else [(None, shown)]
        for index, item in items:
            name = each.name if index is None else f"{each.name}.{index}"
            if item is not None:
                found += _of_document(model, inner, item, place.inside(name))
    return found


def _of_layout(entity: Entity, documents: list[Any]) -> list[DiagnosisFinding]:
    """Documents that are not as the layout says have no versions, and are not served."""
    assert entity.layout is not None
    number, path = entity.version or "version", entity.version or "version"
    holder = entity.layout.current if entity.history is HistoryKind.EMBEDDED else None
    if holder is not None:
        path = f"{holder}.{number}"

    def fits(document: Mapping[str, Any]) -> bool:
        state = document if holder is None else document.get(holder)
        return isinstance(state, Mapping) and number in state

    plain = [each for each in documents if not fits(each)]
    odd, what, mend = _odd_in_layout(entity, number, documents)
    checked = (
        (
            plain,
            f"have no {path!r} and are not served",
            f"set @collection(history:) to the layout of the collection, which is not "
            f"{entity.history.value}, or remove it",
        ),
        (odd, what, mend),
    )
    return [
        DiagnosisFinding(
            level="warning",
            subject=_SUBJECT,
            text=f"{entity.name}: {len(these)} of {len(documents)} documents in the sample {says}, "
            f"such as {entity.collection}/{describe_value(these[0]['_id']).rpartition(' ')[2]}",
            mend=way_out,
        )
        for these, says, way_out in checked
        if these
    ]


def _odd_in_layout(entity: Entity, number: str, documents: list[Any]) -> tuple[list[Any], str, str]:
    """Return documents whose earlier versions are missing or inexact, in layouts with a list of
    them.

    Items: the documents, the fault, and a way to mend it.
    """
    assert entity.layout is not None
    if entity.history is HistoryKind.EMBEDDED:
        name = entity.layout.previous

        def fits(items: Any) -> bool:
            return isinstance(items, list) and all(
                isinstance(each, Mapping) and number in each for each in items
            )

        what = f"have a {name!r} that is not a list of states with {number!r}, and are not served"
        mend = f"store a list of the earlier states in {name!r}, each with its {number!r}"
    elif entity.history is HistoryKind.DELTAS:
        name = entity.layout.unset

        def fits(items: Any) -> bool:
            return isinstance(items, list) and all(isinstance(each, str) for each in items)

        what = f"have an {name!r} that is not a list of names, so that no field is removed"
        mend = f"store a list of the names of the removed fields in {name!r}"
    else:
        return [], "", ""
    odd = [each for each in documents if each.get(name) is not None and not fits(each[name])]
    return odd, what, mend


async def _duplicates(mongo: Mongo, entity: Entity) -> AsyncIterator[DiagnosisFinding]:
    """Values that documents share where the model says that none do, if no index sees to it."""
    indexes = await mongo.indexes(entity.collection)
    there = [list(each["key"]) for each in indexes if each.get("unique")]
    for index in entity.indexes:
        if not index.unique or list(index.fields) in there:
            continue
        key = {str(n): f"${path}" for n, path in enumerate(index.fields)}
        stages: list[Mapping[str, Any]] = [
            {"$match": {path: {"$exists": True} for path in index.fields}},
            {"$group": {"_id": key, "ids": {"$push": "$_id"}, "n": {"$sum": 1}}},
            {"$match": {"n": {"$gt": 1}}},
            {"$limit": 1},
            {"$project": {"_id": 0, "ids": {"$slice": ["$ids", 2]}}},
        ]
        for shared in await mongo.aggregate(entity.collection, stages):
            one, other = shared["ids"]
            yield DiagnosisFinding(
                level="error",
                subject=_SUBJECT,
                text=f"{entity.name}: two documents with the same {' and '.join(index.fields)}, "
                f"expected unique values: {describe_value(one)} and {describe_value(other)}",
                mend="change one of them and start again, or remove unique from the model",
            )
