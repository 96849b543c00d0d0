"""Changes of a version whose predecessor is hidden from the caller: all fields, as of a first
version.

The fields that differ would reveal the hidden state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from revstream.model.definition import Entity
from revstream.resolvers.access.row_filter import RowFilter
from revstream.resolvers.pagination.projection import record_projection
from revstream.streams.archive.store import Archive
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["changes_path", "conceal_changes"]


async def conceal_changes(
    archive: Archive, entity: Entity, rows: RowFilter, versions: Iterable[Version | Document]
) -> None:
    """Replace, in place, the changed paths of versions of which the one before is hidden.

    Args:
        versions: that are there for the caller, read with `prev` and `changed`.
    """
    if not rows.limits:
        return
    changes = [each for each in versions if _previous(each) is not None and _changed(each)]
    visible = {_token(each) for each in versions}
    wanted = {_previous(each) for each in changes} - visible
    found = await archive.by_token(sorted(wanted), projection=record_projection(rows.fields))
    visible |= {token for token, record in found.items() if rows.allow_version(record)}
    first = [each for each in changes if _previous(each) not in visible]
    contents = await archive.by_token([_token(each) for each in first]) if first else {}
    for each in first:
        content = (contents.get(_token(each)) or {}).get("full") or {}
        names = [name for name in content if name not in ("_id", entity.version)]
        if isinstance(each, Version):
            each.changed = tuple(names)
        else:
            each["changed"] = names


def changes_path(changed: Sequence[str], path: str) -> bool:
    """Return whether a change of some paths is one of a field, of something inside of it, or of
    what it is in.
    """
    return any(
        each == path or path.startswith(f"{each}.") or each.startswith(f"{path}.")
        for each in changed
    )


def _token(version: Version | Document) -> str:
    return version.token if isinstance(version, Version) else version["_id"]


def _previous(version: Version | Document) -> Any:
    return version.previous if isinstance(version, Version) else version.get("prev")


def _changed(version: Version | Document) -> Sequence[str]:
    return version.changed if isinstance(version, Version) else version.get("changed", ())
