"""Pages that are asked for at about the same time, read by one command.

What a `find` costs MongoDB is mostly the same for one document and for twenty. But whoever shares a
command waits for all of it: so where a page takes its time, or something is wrong with one, each is
read by itself again, and for a while all that ask for such pages are.

Source: docs/decisions/0034-joint-pages.md
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from resolvers.pools import Pools
from resolvers.readings import Reading
from streams.documents import Document
from streams.layouts.layout import Layout
from streams.unions import PageUnion

__all__ = ["LARGEST_JOINT", "JointPages"]

log = logging.getLogger(__name__)

LARGEST_JOINT = 50
"""Documents of a page. Of larger ones a command costs more than their reads: it makes objects of
its own of documents that a `find` hands on as they are."""

_TOGETHER = 8
# As many as there are connections for short reads: nobody waits for the end of one of these.
_UNDER_WAY = 16
# Of MongoDB's time for each page of a command, which ends then; and how long none of that kind
# follows.
_MOST_S = 0.005
_REST_S = 5.0

_Query = Mapping[str, Any]
_Rows = list[Document]


class JointPages:
    """Attributes:
    pools: counts the pages and the commands.
    """

    def __init__(self) -> None:
        self.pools = Pools(under_way=_UNDER_WAY, largest=_TOGETHER)
        # Of kinds of pages: until when each is read by itself, by the loop's clock.
        self._resting: dict[Hashable, float] = {}

    async def rows(self, reading: Reading, layout: Layout) -> _Rows:
        """What `Reading.rows` reads, to be shown.

        Args:
            reading: one that has a kind.

        Raises: as that.
        """
        kind = reading.kind
        if self._rests(kind):
            return await reading.rows(layout, reading.windowed, shown=True)

        async def read(queries: Sequence[_Query]) -> Sequence[_Rows | BaseException]:
            if len(queries) > 1:
                together = await self._together(kind, reading, layout, queries)
                if together is not None:
                    return together
            each = (reading.rows(layout, query, shown=True) for query in queries)
            return await asyncio.gather(*each, return_exceptions=True)

        [found] = await self.pools.ask(kind, [reading.windowed], read)
        if isinstance(found, BaseException):
            raise found
        return found

    async def _together(
        self, kind: Hashable, reading: Reading, layout: Layout, queries: Sequence[_Query]
    ) -> list[_Rows] | None:
        """None where each has to be read by itself."""
        union = PageUnion(
            queries=queries,
            projection=reading.projection,
            sort=reading.window.keys,
            limit=reading.window.limit,
        )
        found = None
        try:
            found = await layout.find_each(union, most_s=_MOST_S * len(queries))
        except Exception as exc:
            # Whoever asked for what it is about is told by a read of his own.
            log.warning("%d pages are read one by one: %s", len(queries), exc)
        if found is None:
            self._rest(kind)
        return found

    def _rest(self, kind: Hashable) -> None:
        now = asyncio.get_running_loop().time()
        # Nobody may ask for those again that have had their rest.
        self._resting = {each: until for each, until in self._resting.items() if until > now}
        self._resting[kind] = now + _REST_S

    def _rests(self, kind: Hashable) -> bool:
        until = self._resting.get(kind)
        return until is not None and until > asyncio.get_running_loop().time()
