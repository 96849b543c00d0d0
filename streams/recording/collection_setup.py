"""The images and indexes of a collection: what a model asks for, made at the start and again after
somebody has dropped the collection."""

from __future__ import annotations

import logging
from collections.abc import Callable

from model.entities import Model
from streams.indexes import create_indexes
from streams.mongo import Mongo
from streams.server import enable_images

__all__ = ["CollectionSetup"]

log = logging.getLogger(__name__)

Report = Callable[[str, int, int], None]


class CollectionSetup:
    """Args:
    images: whether the server is to keep images.

    Attributes:
        refused: by index, why it is not there; without values of documents.
    """

    def __init__(self, mongo: Mongo, model: Model, *, images: bool) -> None:
        self._mongo = mongo
        self._model = model
        self._images = images
        self.refused: dict[str, str] = {}

    async def apply(self, *names: str, report: Report = lambda text, done, total: None) -> None:
        """Create the missing parts of these collections, or of all of the model; log a refusal.

        Raises:
            Unavailable: MongoDB is away.
        """
        every = [entity.collection for entity in self._model.entities]
        if self._images:
            await enable_images(self._mongo, names or every)
        for name in names or every:
            self.refused = {
                index: why for index, why in self.refused.items() if index.split()[1] != name
            }
        for refused in await create_indexes(self._mongo, self._model, report, only=names):
            fields = ", ".join(refused.fields)
            self.refused[f"index {refused.collection} {fields}"] = (
                "it could not be made; the log and `revstream doctor` say why"
            )
            log.error(
                "index refused",
                extra={
                    "collection": refused.collection,
                    "fields": refused.fields,
                    "reason": refused.reason,
                },
            )
