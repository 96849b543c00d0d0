"""Times at which versions were replaced, which the versions after them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from revstream.resolvers.pagination.page import Page
from revstream.streams.archive.store import Archive
from revstream.streams.versioning.version import Version

__all__ = ["add_replacement_times"]


class _Link(NamedTuple):
    token: str
    previous: str | None
    wall: datetime
    place: tuple[Any, int]


async def add_replacement_times(archive: Archive, pages: Sequence[Page[Any]]) -> list[Page[Any]]:
    """The pages, with the ends of their versions, which were read with `prev`.

    What stands on a page with what replaced it is known by that; the others are one read.
    """
    links = [[_link(each) for each in page.items] for page in pages]
    beyond = [_link(page.beyond) for page in pages if page.beyond is not None]
    ends: dict[str | None, datetime | None] = {
        each.previous: each.wall for each in (*beyond, *(one for some in links for one in some))
    }
    lacking = {each.token: each.place for some in links for each in some if each.token not in ends}
    found = await archive.replacement_times(list(lacking.values()))
    ends |= dict(zip(lacking, found, strict=True))
    return [
        replace(page, ends={each.token: ends[each.token] for each in some})
        for page, some in zip(pages, links, strict=True)
    ]


def _link(version: Version | Mapping[str, Any]) -> _Link:
    if isinstance(version, Version):
        place = version.document, version.number
        return _Link(version.token, version.previous, version.wall, place)
    return _Link(version["_id"], version["prev"], version["wall"], (version["doc"], version["v"]))
