"""Histories in which values of one document lie as copies (`@copy`), and copies of these."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.model.definition import Entity, Model
from revstream.streams.changefeed.event import identity
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.copied_field import CopiedField, copied_fields

__all__ = ["CopiedHistory", "copied_histories"]

# Documents that are named for each copied field; their copies in turn are looked for.
_MOST = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedHistory:
    """Versions of one type that have copies.

    Attributes:
        field: where the copies lie.
        documents: `_id`s, a thousand at most.
        count: how many documents there are.
        versions: how many versions of these.
    """

    entity: Entity
    field: str
    documents: Sequence[Any]
    count: int
    versions: int


async def copied_histories(
    mongo: Mongo, model: Model, collection: str, key: Any
) -> list[CopiedHistory]:
    """Find them in the archives. Reads these whole: no index is over what copies are of."""
    copies = list(copied_fields(model))
    found: list[CopiedHistory] = []
    seen: set[tuple[str, Any]] = set()
    # A field of these documents: None for the whole of one.
    waiting: deque[tuple[str, str | None, Sequence[Any]]] = deque([(collection, None, [key])])
    while waiting:
        source, changed, keys = waiting.popleft()
        for copy in copies:
            if copy.source != source or not (changed is None or _is_within(copy.of, changed)):
                continue
            name = copy.name, tuple(map(identity, keys))
            if name in seen:
                continue
            seen.add(name)
            one = await _of_copy(mongo, model, copy, keys)
            if one is not None:
                found.append(one)
                waiting.append((copy.target, copy.path, one.documents))
    return found


async def _of_copy(
    mongo: Mongo, model: Model, copy: CopiedField, keys: Sequence[Any]
) -> CopiedHistory | None:
    entity = model.entity_of_collection(copy.target)
    assert entity is not None
    pipeline: list[Mapping[str, Any]] = [
        {"$match": {f"copies.{copy.key}.of": {"$in": list(keys)}}},
        {"$group": {"_id": "$doc", "versions": {"$sum": 1}}},
    ]
    documents: list[Any] = []
    count = versions = 0
    # Without a time limit on the whole.
    async for page in mongo.aggregate_pages(f"{copy.target}.versions", pipeline, size=_MOST):
        for each in page:
            count += 1
            versions += each["versions"]
            if len(documents) < _MOST:
                documents.append(each["_id"])
    if not count:
        return None
    return CopiedHistory(
        entity=entity, field=copy.path, documents=documents, count=count, versions=versions
    )


def _is_within(of: str, changed: str) -> bool:
    """Return whether a copied field holds, or lies in, another one."""
    return of == changed or of.startswith(f"{changed}.") or changed.startswith(f"{of}.")
