"""Read versions of which some cannot be read any more, without these standing in the way of the
others: the collection itself has kept them, and somebody has removed them there; or their records
are damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from revstream.streams.archive.store import Archive
from revstream.streams.core.errors import DamagedArchive, HistoryLost
from revstream.streams.versioning.version import Version

__all__ = ["read_versions"]


async def read_versions(archive: Archive, records: Sequence[Any]) -> list[Version | str]:
    """One for each of the records, which were found without `fill`: the version, or why it cannot
    be read.
    """
    try:
        return [Version.from_record(each) for each in await archive.contents.fill(records)]
    except (HistoryLost, DamagedArchive) as exc:
        if len(records) == 1:
            [record] = records
            name = f"{archive.collection}/{record['doc']!r}"
            return [f"version {record['v']} of {name} cannot be read: {exc.message}"]
    # Which of them it is, only each by itself tells.
    return [made for each in records for made in await read_versions(archive, [each])]
