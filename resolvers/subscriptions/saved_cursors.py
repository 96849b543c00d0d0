"""Places in the stream that callers keep on the server under names of their own."""

from __future__ import annotations

from revstream.resolvers.access.cluster_time import ClusterTime
from revstream.resolvers.errors import BadUserInput, LimitExceeded, Unauthenticated
from revstream.streams.core import resume_tokens
from revstream.streams.live.archive_progress import ArchiveProgress
from revstream.streams.live.saved_cursors import CursorStore, SavedCursor
from revstream.streams.mongo.database import Mongo

__all__ = ["SavedCursors"]

_LONGEST_NAME = 255
_MOST = 1000
"""Of one caller."""


class SavedCursors:
    """Saved cursors of all callers. An owner is a caller's name."""

    def __init__(self, mongo: Mongo, progress: ArchiveProgress) -> None:
        self._cluster_time = ClusterTime(mongo, progress)
        self._cursors = CursorStore(mongo)

    async def prepare(self) -> None:
        await self._cursors.prepare()

    async def save(self, owner: str, name: str, token: str) -> None:
        """Keep a place under a name.

        Raises:
            Unauthenticated: the caller has no name.
            BadUserInput: the name is empty or too long.
            ResumeTokenInvalid: the place is one of the future, or within a snapshot.
            LimitExceeded: the caller has too many others.
        """
        _check(owner, name)
        await self._cluster_time.check_reached(resume_tokens.require_resumable(token))
        if not await self._cursors.save(owner, name, token, most=_MOST):
            raise LimitExceeded(
                f"saved cursors: {_MOST}, maximum is {_MOST}; remove some with removeCursor"
            )

    async def load(self, owner: str, name: str) -> str:
        """Return a saved cursor.

        Raises:
            Unauthenticated, BadUserInput: See `save`; or no such cursor is saved.
            ResumeTokenInvalid: It is ahead of the database, as after a restore.
        """
        _check(owner, name)
        token = await self._cursors.load(owner, name)
        if token is None:
            raise BadUserInput(f"cursor: {name!r}, expected the name of a saved cursor")
        await self._cluster_time.check_reached(token)
        return token

    async def list_for(self, owner: str) -> list[SavedCursor]:
        """Return a caller's places by name.

        Raises:
            Unauthenticated: the caller has no name.
        """
        _check_owner(owner)
        return await self._cursors.load_all(owner)

    async def remove(self, owner: str, name: str) -> bool:
        """Remove a place. Returns: whether there was one.

        Raises:
            Unauthenticated, BadUserInput: as of `save`.
        """
        _check(owner, name)
        return await self._cursors.remove(owner, name)


def _check(owner: str, name: str) -> None:
    _check_owner(owner)
    if not 1 <= len(name) <= _LONGEST_NAME:
        raise BadUserInput(
            f"name of the cursor: {len(name)} characters, expected 1 to {_LONGEST_NAME}",
            argument="name",
        )


def _check_owner(owner: str) -> None:
    if not owner:
        raise Unauthenticated(
            "saved cursors: the caller is anonymous, expected one with a name; sign in, or store "
            "the resume token yourself"
        )
