"""Reader of versions that reports unreadable ones individually.

A version is unreadable if the collection itself stored it and it was removed there, or if its
record is damaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from revstream.streams.archive.store import Archive
from revstream.streams.core.errors import DamagedArchive, HistoryLost
from revstream.streams.versioning.version import Version

__all__ = ["read_versions"]


async def read_versions(archive: Archive, records: Sequence[Any]) -> list[Version | str]:
    """Return for each record the version, or the reason why it cannot be read.

    Args:
        records: Found without `fill`.
    """
    try:
        return [Version.from_record(each) for each in await archive.contents.fill(records)]
    except (HistoryLost, DamagedArchive) as exc:
        if len(records) == 1:
            [record] = records
            name = f"{archive.collection}/{record['doc']!r}"
            return [f"version {record['v']} of {name}: {exc.message}"]
    # Only reading them one by one shows which is unreadable.
    return [made for each in records for made in await read_versions(archive, [each])]
