"""Cache of the version numbers of documents that have not changed since they were read.

Guarantees: an entry is evicted when this process sees or makes a change of the document, and is
stored again only from a read of the archive that reaches that change. So a cached number is the
archive's at this process's position in the stream. It is not returned for a document that was read
before that version.

Used by one event loop: no locks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from bson import Timestamp

from revstream.streams.changefeed.event import ChangeEvent, identities, identity
from revstream.streams.core import resume_tokens
from revstream.streams.live.hub import Hub

__all__ = ["VersionNumberCache"]


class VersionNumberCache:
    """Cached version numbers by collection.

    Args:
        hub: the source of the changes that evict entries.
        most: maximum number of documents per collection; about 200 bytes each.
    """

    def __init__(self, hub: Hub, *, most: int = 100_000) -> None:
        self._hub = hub
        self._most = most
        self._of: dict[str, _CollectionNumbers] = {}

    def last_numbers(
        self, collection: str, documents: Sequence[Mapping[str, Any]], seen: str
    ) -> list[int | None]:
        """Return the numbers of the last versions of documents; None for unknown ones.

        Args:
            seen: a resume token that was reached before the documents were read.
        """
        known = self._of.get(collection)
        if known is None:
            return [None] * len(documents)
        return known.last_numbers(identities([each["_id"] for each in documents]), seen)

    def learn(self, collection: str, found: Iterable[tuple[Any, int, str]], upto: str) -> None:
        """Store numbers that were read from the archive.

        Args:
            found: `_id`, number and token of last versions.
            upto: the token up to which the archive was read; a change after it may be missing.
        """
        known = self._of.get(collection)
        if known is None:
            self._hub.add_observer(
                collection,
                partial(self._changed, collection),
                partial(self._begin_anew, collection),
            )
            known = self._of[collection] = _CollectionNumbers(self._hub.position)
        for key, number, token in found:
            name = identity(key)
            if upto >= known.changed.get(name, known.floor):
                known.learn(name, number, token, self._most)

    def forget(self, collection: str, key: Any, at: Timestamp) -> None:
        """Evict a document that this process has written."""
        known = self._of.get(collection)
        if known is not None:
            known.change(identity(key), resume_tokens.token_from_time(at), self._most)

    def _changed(self, collection: str, event: ChangeEvent) -> None:
        if event.is_write:
            self._of[collection].change(identity(event.key), event.token, self._most)
        else:
            # Dropped or renamed: every entry may be wrong.
            self._of[collection] = _CollectionNumbers(event.token)

    def _begin_anew(self, collection: str) -> None:
        self._of[collection] = _CollectionNumbers(self._hub.position)


class _CollectionNumbers:
    """Cached numbers of one collection.

    Attributes:
        numbers: numbers of last versions, by document.
        tokens: resume tokens of these versions.
        newest: the highest of these tokens.
        changed: tokens of the last changes by document, the latest last.
        floor: no change of a document that is not in `changed` is after this token.
    """

    __slots__ = ("changed", "floor", "newest", "numbers", "tokens")

    def __init__(self, floor: str) -> None:
        self.numbers: dict[Any, int] = {}
        self.tokens: dict[Any, str] = {}
        self.newest = ""
        self.changed: dict[Any, str] = {}
        self.floor = floor

    def last_numbers(self, names: Sequence[Any], seen: str) -> list[int | None]:
        found = list(map(self.numbers.get, names))
        if self.newest > seen:
            found = [
                None if number is None or self.tokens[name] > seen else number
                for name, number in zip(names, found, strict=True)
            ]
        return found

    def learn(self, name: Any, number: int, token: str, most: int) -> None:
        self.numbers[name] = number
        self.tokens[name] = token
        self.newest = max(self.newest, token)
        while len(self.numbers) > most:
            self._forget(next(iter(self.numbers)))

    def _forget(self, name: Any) -> None:
        self.numbers.pop(name, None)
        self.tokens.pop(name, None)

    def change(self, name: Any, token: str, most: int) -> None:
        self._forget(name)
        token = max(token, self.changed.pop(name, ""))
        self.changed[name] = token
        if len(self.changed) > most:
            oldest = next(iter(self.changed))
            self.floor = max(self.floor, self.changed.pop(oldest))
