"""Pages of a list: the request, the query that is read for it, and the result.

Relay connections by keyset: `first`/`after` walk forwards, `last`/`before` backwards, and both
cursors may bound either direction. `skip` is never used: page 1,000 costs the same as page 1.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from itertools import combinations
from typing import Any, Generic, TypeVar, cast

from revstream.resolvers.errors import BadUserInput
from revstream.resolvers.pagination.keyset import Keys, Keyset, prefixes, reversed_keys
from revstream.streams.core.errors import DatabaseError, ParallelLists
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.driver.error_translation import TOO_LARGE

__all__ = [
    "DEFAULT_PAGE_SIZE",
    "MAX_PAGE_SIZE",
    "SORT_KEY",
    "Page",
    "PageRequest",
    "Window",
    "and_queries",
    "page_request",
]

T = TypeVar("T")
M = TypeVar("M")
R = TypeVar("R")

DEFAULT_PAGE_SIZE = 20
"""Number of items of a page if the request does not give one."""

MAX_PAGE_SIZE = 1000

# Maximum size of a document with its sort key; below 16 MB, with room for the rest of the record.
_SORTED_BYTES = 16_000_000

SORT_KEY = "__placed"
"""Field into which the server's sort key is read; it says where a list is sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Arguments of a connection, created by `page_request`; exactly one of `first` and `last` is
    set.
    """

    first: int | None = None
    after: str | None = None
    last: int | None = None
    before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Items of a page in the requested order, whichever direction was read.

    `has_next` is exact when reading forwards, `has_previous` when reading backwards. The other one
    says whether a cursor bounds the page, without a further read: the items before that cursor may
    have been deleted since.

    Attributes:
        items: the items.
        cursors: a cursor for each item, in the same order.
        total: number of items on all pages; None if not requested.
        token: the resume token of the cluster time of the read; None if not requested.
        beyond: the next item in reading direction, if it was read.
        ends: by token of a version, the wall-clock time of its replacement, or None if it is the
            last; None if not requested.
        unordered: kinds of documents left out because MongoDB cannot sort them, such as "lists in
            more than one of a, b".
    """

    items: list[T]
    cursors: Sequence[str]
    has_next: bool = False
    has_previous: bool = False
    total: int | None = None
    token: str | None = None
    beyond: T | None = None
    ends: Mapping[str, datetime | None] | None = None
    unordered: Sequence[str] = ()

    def transform(self, make: Callable[[T], M]) -> Page[M]:
        """Return the page with each item replaced by the result of `make`."""
        return Page(
            items=list(map(make, self.items)),
            cursors=self.cursors,
            has_next=self.has_next,
            has_previous=self.has_previous,
            total=self.total,
            token=self.token,
            beyond=None if self.beyond is None else make(self.beyond),
            ends=self.ends,
            unordered=self.unordered,
        )


def page_request(
    first: int | None = None,
    after: str | None = None,
    last: int | None = None,
    before: str | None = None,
    *,
    default: int = DEFAULT_PAGE_SIZE,
    most: int = MAX_PAGE_SIZE,
) -> PageRequest:
    """Validate the four arguments of a connection.

    Args:
        default: number of items if neither `first` nor `last` is given; the last ones if only
            `before` is given.
        most: maximum of `first` and `last`.

    Raises:
        BadUserInput: both `first` and `last`, or one that is negative or above `most`.
    """
    if first is not None and last is not None:
        raise BadUserInput(
            f"first and last: {first} and {last}, expected one of them; remove the other",
            argument="last",
        )
    for name, count in (("first", first), ("last", last)):
        if count is None:
            continue
        if count < 0:
            raise BadUserInput(
                f"{name}: {count}, minimum is 0; request 0 or more items", argument=name
            )
        if count > most:
            raise BadUserInput(
                f"{name}: {count:,}, maximum is {most:,}; request smaller pages", argument=name
            )
    if first is None and last is None:
        if before is not None and after is None:
            last = default
        else:
            first = default
    return PageRequest(first=first, after=after, last=last, before=before)


class Window:
    """Query, sort and limit to read for a page, and the page built from the rows."""

    def __init__(self, keyset: Keyset, request: PageRequest) -> None:
        self._keyset = keyset
        self._request = request
        self.backwards = request.last is not None
        self.size = (request.last if self.backwards else request.first) or 0
        self.query = and_queries(
            {} if request.after is None else keyset.query_after(request.after, "after"),
            {}
            if request.before is None
            else keyset.query_after(request.before, "before", backwards=True),
        )

    def unbounded(self) -> Window:
        """Return the window in the same order, without cursors."""
        return Window(self._keyset, replace(self._request, after=None, before=None))

    @property
    def keys(self) -> Keys:
        """Keys in the direction in which rows are read."""
        return reversed_keys(self._keyset.keys) if self.backwards else self._keyset.keys

    async def read(
        self, read: Callable[[Mapping[str, Any]], Awaitable[R]]
    ) -> tuple[R, Sequence[str]]:
        """Read in this order; leave out the documents that MongoDB cannot sort.

        MongoDB fails on a sort if one document holds lists in two of the fields, or exceeds the
        maximum document size together with its sort key.

        Args:
            read: reads with an additional query, which excludes such documents.

        Returns:
            The result of `read`, and the kinds of documents that were left out.
        """
        left_out: dict[str, dict[str, Any]] = {}
        while True:
            try:
                return await read(reduce(and_queries, left_out.values(), {})), tuple(left_out)
            except (ParallelLists, DatabaseError) as exc:
                paths = [path for path, _ in self._keyset.keys]
                fields = ", ".join(path.removeprefix("full.") for path in paths[:-1])
                if isinstance(exc, ParallelLists):
                    kind, query = f"lists in more than one of {fields}", _no_lists(paths)
                elif exc.number == TOO_LARGE and fields:
                    kind, query = f"values that are too long in {fields}", _not_too_long(paths)
                else:
                    raise
                if kind in left_out:
                    raise
                left_out[kind] = query

    @property
    def sort(self) -> dict[str, int]:
        return dict(self.keys)

    @property
    def limit(self) -> int:
        """Maximum number of rows to read: one more than the page holds, to detect a next page."""
        return self.size + 1

    @property
    def placing(self) -> dict[str, Any]:
        """Projection or `$set` stage fields for the server's sort key; empty for an order by one
        path.

        A single path holds ids, numbers or tokens, which are never lists.
        """
        return {SORT_KEY: {"$meta": "sortKey"}} if len(self._keyset.keys) > 1 else {}

    def projected(self, projection: Mapping[str, Any]) -> dict[str, Any]:
        """Return a projection with the paths added that cursors need."""
        paths = [path for path, _ in self._keyset.keys]
        made = dict(projection)
        for path in paths:
            if not any(path == name or path.startswith(f"{name}.") for name in made):
                made = {k: v for k, v in made.items() if not k.startswith(f"{path}.")}
                made[path] = 1
        return made

    def limited_to(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Return a query restricted to this window."""
        return and_queries(query, self.query)

    def query_after(self, row: Document) -> dict[str, Any]:
        """Return a query for the rest of the window after a row, in reading direction."""
        cursor = self._keyset.cursor(row, row.get(SORT_KEY), backwards=self.backwards)
        rest = self._keyset.query_after(cursor, "cursor", backwards=self.backwards)
        return and_queries(rest, self.query)

    def page(
        self,
        rows: Sequence[Document],
        make: Callable[[Document], T] | None = None,
        *,
        total: int | None = None,
        token: str | None = None,
        unordered: Sequence[str] = (),
    ) -> Page[T]:
        """Build the page from rows that were read with this window.

        Args:
            rows: at most `limit` rows, in the order of `sort`.
            make: builds an item from a row; None to use the rows as items.
            total, token, unordered: see `Page`.
        """
        more = len(rows) > self.size
        made = cast("Sequence[T]", rows) if make is None else list(map(make, rows))
        items, shown = list(made[: self.size]), list(rows[: self.size])
        if self.backwards:
            items.reverse()
            shown.reverse()
        request = self._request
        return Page(
            items=items,
            cursors=PageCursors(self._keyset, shown, backwards=self.backwards),
            has_next=request.before is not None if self.backwards else more,
            has_previous=more if self.backwards else request.after is not None,
            total=total,
            token=token,
            beyond=made[self.size] if more else None,
            unordered=unordered,
        )


def _no_lists(paths: Sequence[str]) -> dict[str, Any]:
    lists = [{"$or": [{part: {"$type": "array"}} for part in prefixes(path)]} for path in paths]
    return {"$nor": [{"$and": [a, b]} for a, b in combinations(lists, 2)]}


def _not_too_long(paths: Sequence[str]) -> dict[str, Any]:
    keys = {f"k{n}": f"${path}" for n, path in enumerate(paths)}
    size = {"$add": [{"$bsonSize": "$$ROOT"}, {"$bsonSize": keys}]}
    return {"$expr": {"$lte": [size, _SORTED_BYTES]}}


class PageCursors(Sequence[str]):
    """Cursors of rows, each encoded when it is read: most requests read none, or only the last."""

    __slots__ = ("_keyset", "_places")

    def __init__(
        self, keyset: Keyset, rows: Sequence[Document], *, backwards: bool = False
    ) -> None:
        self._keyset = keyset
        # In an order by one field, the row itself holds the value.
        self._places: Sequence[Any] = rows
        if keyset.name is None:
            self._places = [
                keyset.values(row, row.get(SORT_KEY), backwards=backwards) for row in rows
            ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._cursor(each) for each in self._places[place]]
        return self._cursor(self._places[place])

    def _cursor(self, place: Any) -> str:
        name = self._keyset.name
        return self._keyset.cursor_of(place if name is None else (place.get(name),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def and_queries(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the query that matches what both queries match."""
    if not one or not other:
        return dict(one or other)
    return {"$and": [one, other]}
