"""Preparation of a recorded collection: images, indexes of the model and of the layout."""

from __future__ import annotations

import time

from revstream.streams.core.errors import Unsuitable
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.recording.bootstrap.collection_setup import CollectionSetup
from revstream.streams.recording.health import CollectionStuck

__all__ = ["CollectionPreparation"]

# Seconds between checks whether the layout's collection of previous versions exists.
_CHECK_S = 2.0


class CollectionPreparation:
    """Preparation of one recorder's collection, after the first write shows that it exists.

    Attributes:
        done: Everything is known to exist.
    """

    def __init__(self, collection: str, layout: Layout, setup: CollectionSetup | None) -> None:
        self._collection = collection
        self._layout = layout
        self._setup = setup
        self._written = False
        self._check_at = 0.0
        self.done = False

    async def after_batch(self, *, written: bool) -> None:
        """Create what is missing, after a batch of the stream.

        Args:
            written: The batch has a write.

        Raises:
            CollectionStuck: Documents were inserted before an index that the layout depends on.
        """
        self._written |= written
        if not self.done and self._written and time.monotonic() >= self._check_at:
            await self.prepare()

    async def prepare(self, *, create: bool = False) -> None:
        """Create what is missing now; with `create`, the collection too.

        Raises:
            CollectionStuck: See `after_batch`.
        """
        setup = self._setup
        there = setup is None or await setup.apply(self._collection, create=create)
        try:
            prepared = await self._layout.prepare(create=False)
        except Unsuitable as exc:
            raise CollectionStuck(exc.message) from exc
        self.done = there and prepared
        self._written = False
        if there and not prepared:
            # Programs that only insert never create a collection for previous versions.
            self._check_at = time.monotonic() + _CHECK_S
        else:
            self._check_at = 0.0
