"""Preparation of a recorded collection: images, the indexes of the model and of its layout."""

from __future__ import annotations

import time

from revstream.streams.core.errors import Unsuitable
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.recording.bootstrap.collection_setup import CollectionSetup
from revstream.streams.recording.health import CollectionStuck

__all__ = ["CollectionPreparation"]

# How often it is looked whether the previous versions of a layout have a collection by now.
_CHECK_S = 2.0


class CollectionPreparation:
    """Of the collection of one recorder: what it lacks is made once a write says that it is there.

    Attributes:
        done: whether all is known to be there.
    """

    def __init__(self, collection: str, layout: Layout, setup: CollectionSetup | None) -> None:
        self._collection = collection
        self._layout = layout
        self._setup = setup
        self._written = False
        self._check_at = 0.0
        self.done = False

    async def after_batch(self, *, written: bool) -> None:
        """Make what is missing, behind a batch of the stream.

        Args:
            written: whether it has a write.

        Raises:
            Stuck: documents came before an index that the layout rests on.
        """
        self._written |= written
        if not self.done and self._written and time.monotonic() >= self._check_at:
            await self.prepare()

    async def prepare(self, *, create: bool = False) -> None:
        """Make it now; with `create`, the collection too.

        Raises:
            Stuck: as of `follow`.
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
            # Programs that only insert never make a collection for previous versions.
            self._check_at = time.monotonic() + _CHECK_S
        else:
            self._check_at = 0.0
