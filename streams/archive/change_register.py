"""Register of the ids of `_change`s that are in an archive or on their way into it.

Guarantees: of all writes that claim one id, only the first in the stream is attributed to it; if
the `_change` names its document, the first write of that document. Does not guarantee: that order
between partitions, which are recorded concurrently, for a `_change` that does not name its
document.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.core.errors import is_fault_of_document
from revstream.streams.mongo.database import Mongo
from revstream.streams.versioning.attribution import COPIER, Claim, claim_from_event, copier_mark
from revstream.streams.versioning.copier_secret import copier_secret

__all__ = ["ChangeRegister", "Verdicts"]

# More than are ever on their way into the archive at once.
_REMEMBERED = 50_000


@dataclass(slots=True)
class Verdicts:
    """Results of judging the claims of events, by token.

    Attributes:
        disowned: Writes with a `_change` that is not theirs.
        copied: Writes of the copier.
    """

    disowned: set[str] = field(default_factory=set)
    copied: set[str] = field(default_factory=set)


class ChangeRegister:
    """The `_change` ids that the writes of one recorder have claimed."""

    def __init__(self, mongo: Mongo, archive: Archive) -> None:
        self._mongo = mongo
        self._archive = archive
        self._secret: str | None = None
        # Tokens of the claiming writes, by name of the claim.
        self._claimed: OrderedDict[Hashable, str] = OrderedDict()

    def clear(self) -> None:
        self._claimed.clear()

    async def judge(self, events: Sequence[ChangeEvent]) -> Verdicts:
        """Find the `_change`s in these events that do not belong to their writes.

        One read, or none if no event claims an id.
        """
        verdicts = Verdicts()
        claims: list[tuple[ChangeEvent, Claim]] = []
        for event in events:
            try:
                claim = claim_from_event(event, self._archive.collection)
            except Exception as exc:
                if not is_fault_of_document(exc):
                    raise
                # The version builder reports the fault.
                continue
            if claim is None:
                continue
            # For an insert, only an id shows which write a `_change` belongs to.
            nameless = event.operation == "insert" and event.kept is None and claim.id is None
            if not claim.fits or nameless:
                verdicts.disowned.add(event.token)
            elif claim.id is not None:
                claims.append((event, claim))
        if not claims:
            return verdicts
        known = await self._known(claims)
        for event, claim in claims:
            name = _name(event, claim)
            if name in known or self._claimed.get(name, event.token) != event.token:
                verdicts.disowned.add(event.token)
                continue
            self._claim(name, event.token)
            # A clone need not name the document it was made for: its id is registered without it
            # too.
            self._claim(claim.name, event.token)
            if await self._is_signed(claim):
                verdicts.copied.add(event.token)
        return verdicts

    async def _known(self, claims: Sequence[tuple[ChangeEvent, Claim]]) -> set[Hashable]:
        """Return the claims that the archive has."""
        found = await self._archive.change_ids([claim.id for _, claim in claims])
        anywhere = {identity(id_) for id_, _ in found}
        of_documents = {(identity(id_), identity(key)) for id_, key in found}
        return anywhere | of_documents

    def _claim(self, name: Hashable, token: str) -> None:
        self._claimed.setdefault(name, token)
        while len(self._claimed) > _REMEMBERED:
            self._claimed.popitem(last=False)

    async def _is_signed(self, claim: Claim) -> bool:
        mark: Any = claim.change.get("mark")
        if claim.change.get("by") != COPIER or not isinstance(mark, str):
            return False
        if self._secret is None:
            self._secret = await copier_secret(self._mongo)
        # As bytes: compare_digest raises on text that is not ASCII, which a program may have
        # written.
        return hmac.compare_digest(mark.encode(), copier_mark(self._secret, str(claim.id)).encode())


def _name(event: ChangeEvent, claim: Claim) -> Hashable:
    return (claim.name, identity(event.key)) if claim.bound else claim.name
