"""Page of a list to read, as one record from the schema's fields to the services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from revstream.resolvers.pagination.order_by import Order
from revstream.resolvers.pagination.page import PageRequest
from revstream.resolvers.pagination.projection import EVERY_FACT, Fields

__all__ = ["PageQuery"]

W = TypeVar("W")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuery(Generic[W]):
    """Page of current documents or of versions: which items to read, and which parts of each.

    Attributes:
        where: the filter, a `Condition` on documents or a `VersionFilter`; None matches everything.
        order: the order of documents; None for the order by id. Histories have one order only.
        page: the position and the size of the page.
        fields: stored names of the documents' fields, dotted inside of embedded documents; None is
            nothing of the document, and an empty set its `_id`.
        facts: facts of versions: see `record_projection`.
        total: True to count all matching items.
        token: True to read current documents at one cluster time and return its resume token. A
            subscription from that token neither misses nor repeats a change.
        most: maximum number of items of the pages of all parents together; others are not read.
        for_output: True if the items are only serialized: dates may lack their time zone, UTC, and
            versions are records, which `Version.from_record` decodes.
    """

    where: W | None = None
    order: Order | None = None
    page: PageRequest
    fields: Fields | None
    facts: Fields = EVERY_FACT
    total: bool = False
    token: bool = False
    most: int | None = None
    for_output: bool = False
