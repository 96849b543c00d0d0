"""Pages of the documents of a list of ids, in the order of the list.

A cursor holds an id and its index in the list. If the list was changed, the page goes on at the
nearest place of that id; if the id is gone, at its former index.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.pagination.keyset import Keyset
from revstream.resolvers.pagination.page import MAX_PAGE_SIZE, Page, PageRequest
from revstream.streams.changefeed.event import identity

__all__ = ["IdListWindow"]

T = TypeVar("T")

ReadByIds: TypeAlias = "Callable[[Sequence[Any]], Awaitable[Sequence[T | None]]]"
"""n ids -> n documents in that order, None for each that does not exist."""


class IdListWindow:
    """The part of a list of ids that a page is read from.

    Args:
        kind: name of the list, part of its cursors.
        ids: the list; an id may occur more than once.
        request: the position and the size of the page.

    Raises:
        BadUserInput: a cursor of another list.
    """

    def __init__(self, kind: str, ids: Sequence[Any], request: PageRequest) -> None:
        self._keyset = Keyset(kind, (("index", 1), ("id", 1)))
        self._ids = ids
        self._request = request
        start, end = 0, len(ids)
        if request.after is not None:
            index, there = self._index(request.after, "after")
            start = index + there
        if request.before is not None:
            end, _ = self._index(request.before, "before")
        self._indexes = range(start, max(start, end))
        self._backwards = request.last is not None
        self._size = (request.last if self._backwards else request.first) or 0

    def _index(self, cursor: str, name: str) -> tuple[int, bool]:
        """Return the index that a cursor marks, and whether its id is there."""
        index, id_ = self._keyset.values_of(cursor, name)
        if not isinstance(index, int) or index < 0:
            raise BadUserInput(
                f"{name}: index {index!r}, expected 0 or more; take a cursor from a page of this "
                "list",
                argument=name,
            )
        wanted = identity(id_)
        places = [n for n, each in enumerate(self._ids) if identity(each) == wanted]
        if places:
            return min(places, key=lambda place: abs(place - index)), True
        return min(index, len(self._ids)), False

    async def page(
        self, read: ReadByIds[T], *, count: ReadByIds[Any] | None, token: str | None
    ) -> Page[T]:
        """Read the page: as many portions of the list as it takes to fill it.

        Args:
            count: reads what is counted for the total; None if the total is not requested.
            token: see `Page`.
        """
        order = self._indexes[::-1] if self._backwards else self._indexes
        found: list[tuple[int, T]] = []
        read_count, step = 0, self._size + 1
        while read_count < len(order) and len(found) <= self._size:
            part = order[read_count : read_count + step]
            items = await read([self._ids[index] for index in part])
            found += [(n, each) for n, each in zip(part, items, strict=True) if each is not None]
            read_count += len(part)
            step = min(2 * step, MAX_PAGE_SIZE)
        total = None
        if count is not None:
            whole = read_count == len(self._ids)
            total = len(found) if whole else await self._count(count)
        more = len(found) > self._size
        shown = found[: self._size]
        if self._backwards:
            shown.reverse()
        request = self._request
        return Page(
            items=[each for _, each in shown],
            cursors=[self._keyset.cursor_of((index, self._ids[index])) for index, _ in shown],
            has_next=request.before is not None if self._backwards else more,
            has_previous=more if self._backwards else request.after is not None,
            total=total,
            token=token,
        )

    async def _count(self, read: ReadByIds[Any]) -> int:
        count = 0
        for start in range(0, len(self._ids), MAX_PAGE_SIZE):
            found = await read(self._ids[start : start + MAX_PAGE_SIZE])
            count += sum(each is not None for each in found)
        return count
