"""Filters and orders by the version number of current documents, which is the archive's where a
document's own count is lower.
"""

from __future__ import annotations

from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.filters.expression import Condition, paths
from revstream.resolvers.pagination.order_by import Order
from revstream.streams.archive.store import Archive
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.numbered import NumberedReads
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["asks_for_number", "numbered_layout", "with_number"]


def asks_for_number(entity: Entity, where: Condition | None, order: Order | None = None) -> bool:
    """Return whether a filter or an order looks at the version number."""
    if entity.version is None:
        return False
    ordered = any(name == "version" for name, _ in order or ())
    return ordered or (where is not None and entity.version in paths(where))


def numbered_layout(mongo: Mongo, archive: Archive, entity: Entity) -> Layout:
    """Return the layout whose documents have the shown version number.

    A layout that keeps versions itself stores the number already.
    """
    if entity.version is None or archive.layout.keeps:
        return archive.layout
    return NumberedReads(mongo, archive.collection, archive.name, entity.version)


def with_number(entity: Entity, state: Document | None, number: Any) -> Document | None:
    """Return a state that has the number that is shown."""
    if state is None or number is None or entity.version is None:
        return state
    return {**state, entity.version: number}
