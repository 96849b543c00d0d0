"""Indexes of a model and of its archives that the database lacks."""

from __future__ import annotations

from collections.abc import Iterable

from revstream.model.definition import Model
from revstream.streams.archive.indexes import referring_fields
from revstream.streams.archive.store import Archive
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import find_unsupported_collections
from revstream.streams.recording.bootstrap.index_creation import IndexKeys, wanted_indexes
from revstream.streams.recording.bootstrap.text_index import (
    text_index_problem,
    wanted_text_indexes,
)

__all__ = ["missing_indexes"]

_CREATE = "start `revstream serve`, which creates them, and check its log"


async def missing_indexes(
    mongo: Mongo, model: Model, recorded: Iterable[str]
) -> list[tuple[str, str]]:
    """Return for each collection with missing indexes which they are, and how to mend it.

    Args:
        recorded: The collections that have an archive.
    """
    wanted: dict[str, list[IndexKeys]] = {}
    for name, keys, _, _ in wanted_indexes(mongo, model):
        wanted.setdefault(name, []).append(keys)
    for name in recorded:
        archive = Archive(mongo, name, references=referring_fields(model, name))
        wanted[archive.name] = [[*keys] for keys, _ in archive.indexes]
    searches = wanted_text_indexes(model)
    names = {*wanted, *searches}
    found = []
    # Indexes are created with a collection; a view has none, and is reported already.
    unfit = await find_unsupported_collections(mongo, list(names))
    for name in sorted(await mongo.existing(names) - unfit.keys()):
        indexes = await mongo.indexes(name)
        there = [[*each["key"].items()] for each in indexes]
        # An index that begins with these keys serves as well.
        missing = [
            keys
            for keys in wanted.get(name, ())
            if not any(each[: len(keys)] == keys for each in there)
        ]
        if missing:
            found.append((f"{name}: missing on {', '.join(map(_shown, missing))}", _CREATE))
        search = searches.get(name)
        problem = text_index_problem(search, indexes) if search is not None else None
        if problem is not None:
            text, mend = f"{name}: {problem}".rsplit("; ", 1)
            found.append((text, mend))
    return found


def _shown(keys: IndexKeys) -> str:
    return "{" + ", ".join(f"{name}: {order}" for name, order in keys) + "}"
