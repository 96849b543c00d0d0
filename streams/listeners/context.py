"""Services that a listener may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from revstream.model.definition import Model
from revstream.streams.archive.store import Archive
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.mongo.database import Mongo

__all__ = ["ListenerContext"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerContext:
    """Services of one process, passed to each listener when it is created.

    Attributes:
        model: The schema model.
        mongo: Reads and writes of the database.
        archives: Archive of each collection, by the collection's name.
        progress: Progress of each archive.
    """

    model: Model
    mongo: Mongo
    archives: Mapping[str, Archive]
    progress: ArchiveProgress
