"""Lookup of current documents by id."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from revstream.resolvers.filters.mongo_query import with_ids
from revstream.resolvers.pagination.projection import Fields, document_projection
from revstream.resolvers.values.dates import in_utc
from revstream.streams.changefeed.event import PLAIN_KEY_TYPES, identity
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.find_options import FindOptions

__all__ = ["document_names", "find_by_id"]


async def find_by_id(
    layout: Layout, ids: Sequence[Any], fields: Fields, *, for_output: bool
) -> tuple[dict[Any, Document], Sequence[Any]]:
    """Read documents by id.

    Returns:
        The existing documents by name, and the names of all ids in order.
    """
    names = document_names(ids)
    found = await layout.find(
        with_ids([*dict(zip(names, ids, strict=True)).values()]),
        _options(fields, for_output),
    )
    by_name = dict(zip(document_names([each["_id"] for each in found]), found, strict=True))
    return by_name, names


@lru_cache(maxsize=1000)
def _options(fields: Fields, for_output: bool) -> FindOptions:
    return FindOptions(projection=document_projection(fields), naive=for_output)


def document_names(ids: Sequence[Any]) -> Sequence[Any]:
    """Return comparable names of ids; dates without time zone equal those in UTC."""
    if PLAIN_KEY_TYPES.issuperset(map(type, ids)):
        return ids
    return [identity(in_utc(each)) for each in ids]
