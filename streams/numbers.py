"""Version numbers of the events that this process has just seen, where they are known before the
recorder has written them down.

A version's number follows from the one before it and the document (`streams.versions`). So for as
long as recorders of this process write all of a collection, from the same stream and without a
break, one look at the archive per document is enough: from there on its events are counted here as
they come.

Guarantees: a number is the one that the recorder gives, or it is not known. What is not known, the
archive says once it has come that far.

Source: docs/decisions/0010-version-of-a-current-document.md
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from streams import tokens
from streams.archive import Archive
from streams.events import ChangeEvent, identity
from streams.hub import Hub
from streams.progress import Progress
from streams.versions import next_number

__all__ = ["Numbered", "Numbers"]

# Documents that are counted along, and events whose numbers are kept.
_DOCUMENTS = 20_000
_EVENTS = 10_000
# Events that are looked through to count a document from the archive's last version on.
_MOST_BEHIND = 500
_CHANGES = frozenset({"update", "replace"})


class Numbered(NamedTuple):
    """The number of an event's version, and of the one before it."""

    number: int
    previous: int


@dataclass(frozen=True, slots=True)
class _Last:
    """Of a document: behind which event, and whether it has been deleted."""

    token: str
    number: int
    gone: bool


class Numbers:
    """Of one collection that does not keep versions itself."""

    def __init__(
        self, archive: Archive, hub: Hub, progress: Progress, *, version_field: str | None
    ) -> None:
        self._archive = archive
        self._hub = hub
        self._progress = progress
        self._version_field = version_field
        self._tenure: object | None = None
        self._lasts: OrderedDict[Any, _Last] = OrderedDict()
        self._numbered: OrderedDict[str, Numbered] = OrderedDict()
        self._loading: dict[Any, asyncio.Future[None]] = {}
        hub.accompany(archive.collection, self.follow, self.forget)

    def forget(self) -> None:
        self._lasts.clear()
        self._numbered.clear()

    def follow(self, event: ChangeEvent) -> None:
        """Count the next event of the stream, if it is one of a document that is counted."""
        if not self._lasts:
            return
        if not event.is_write:
            # What it does to which documents, the archive says.
            self.forget()
            return
        key = identity(event.key)
        last = self._lasts.get(key)
        if last is not None:
            self._count(key, last, event)

    async def of(self, events: Collection[ChangeEvent]) -> Mapping[str, Numbered]:
        """The numbers of writes that are known, by token. At most one read of its own."""
        if not self._current():
            return {}
        unknown = {
            identity(each.key): each.key
            for each in events
            if each.token not in self._numbered and identity(each.key) not in self._lasts
        }
        asked = {key: id_ for key, id_ in unknown.items() if key not in self._loading}
        if asked:
            loading = asyncio.ensure_future(self._load(asked))
            self._loading.update(dict.fromkeys(asked, loading))
            loading.add_done_callback(partial(self._loaded, asked))
        for each in {self._loading[key] for key in unknown}:
            # Shielded: it is read for others as well.
            await asyncio.shield(each)
        known = self._numbered
        return {each.token: known[each.token] for each in events if each.token in known}

    def _loaded(self, asked: Collection[Any], loading: asyncio.Future[None]) -> None:
        for key in asked:
            del self._loading[key]
        if not loading.cancelled():
            loading.exception()  # seen, even where nobody waits any more

    async def _load(self, keys: Mapping[Any, Any]) -> None:
        """Count these documents from their last versions on."""
        tenure, ring = self._tenure, self._hub.ring(self._archive.collection)
        # Taken before the read, which therefore finds all that stands up to here.
        archived = self._progress.known(self._archive.collection)
        if archived < ring.floor or ring.waiting(archived)[0] > _MOST_BEHIND:
            return
        # As of there, too: the recorder may be faster, and an event's own version does not tell the
        # number of the one before it.
        at = tokens.cluster_time(archived)
        found = await self._archive.newest(
            [{"key": each, "at": at} for each in keys.values()],
            limit=1,
            projection={"doc": 1, "v": 1, "op": 1, "readAt": 1},
        )
        later = self._later(tenure, archived)
        if later is None:
            return
        behind: defaultdict[Any, list[ChangeEvent]] = defaultdict(list)
        for event in later:
            behind[identity(event.key)].append(event)
        for record in found:
            key = identity(record["doc"])
            # One that was read again may already be what its next events say.
            if "readAt" in record or key in self._lasts:
                continue
            last = _Last(record["_id"], record["v"], record["op"] == "DELETE")
            self._lasts[key] = last
            for event in behind[key]:
                if event.token > record["_id"]:
                    counting = self._lasts.get(key)
                    if counting is None:
                        break
                    self._count(key, counting, event)
        while len(self._lasts) > _DOCUMENTS:
            self._lasts.popitem(last=False)

    def _later(self, tenure: object | None, archived: str) -> Sequence[ChangeEvent] | None:
        """All events behind a token; None where there is no telling."""
        if not self._current() or self._tenure is not tenure:
            return None
        later = self._hub.ring(self._archive.collection).after(archived)
        if later is None or not all(each.is_write for each in later):
            return None
        return later

    def _count(self, key: Any, last: _Last, event: ChangeEvent) -> None:
        gone = event.operation == "delete"
        told = event.after is not None or gone
        fits = event.operation == "insert" if last.gone else event.operation in _CHANGES or gone
        if not (told and fits) or event.token <= last.token:
            # What the recorder makes of it is not for sure.
            del self._lasts[key]
            return
        number = next_number(last.number, event.after, self._version_field)
        self._lasts[key] = _Last(event.token, number, gone)
        self._lasts.move_to_end(key)
        self._numbered[event.token] = Numbered(number, last.number)
        if len(self._numbered) > _EVENTS:
            self._numbered.popitem(last=False)

    def _current(self) -> bool:
        """Whether the recorders are here; what was counted before a break counts no more."""
        tenure = self._progress.tenure(self._archive.collection)
        if tenure is not self._tenure:
            self._tenure = tenure
            self.forget()
        return tenure is not None
