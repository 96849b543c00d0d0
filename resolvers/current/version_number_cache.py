"""Version numbers that this process knows without asking the archive: of documents that it has
asked about, and that have not changed since.

Guarantees: what is known of a document is forgotten when this process sees that it has changed, or
has changed it itself, and is learned again only from an archive that has come so far. So a number
that is known is the one that the archive would have told as of this process's place in the stream;
who has read the document before that version was made is not told it.

One event loop's property: no locks.
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
    """Args:
    hub: whose collections they are of.
    most: documents known per collection; about 200 bytes each.
    """

    def __init__(self, hub: Hub, *, most: int = 100_000) -> None:
        self._hub = hub
        self._most = most
        self._of: dict[str, _CollectionNumbers] = {}

    def of(
        self, collection: str, documents: Sequence[Mapping[str, Any]], seen: str
    ) -> list[int | None]:
        """The numbers of their last versions.

        Args:
            seen: a place that the documents were read behind.
        """
        known = self._of.get(collection)
        if known is None:
            return [None] * len(documents)
        return known.of(identities([each["_id"] for each in documents]), seen)

    def learn(self, collection: str, found: Iterable[tuple[Any, int, str]], archived: str) -> None:
        """What the archive said: `_id`, number and token of last versions.

        Args:
            archived: so far it had come before it was asked.
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
            if archived >= known.changed.get(name, known.floor):
                known.learn(name, number, token, self._most)

    def forget(self, collection: str, key: Any, at: Timestamp) -> None:
        """This process has written to a document."""
        known = self._of.get(collection)
        if known is not None:
            known.change(identity(key), resume_tokens.token_from_time(at), self._most)

    def _changed(self, collection: str, event: ChangeEvent) -> None:
        if event.is_write:
            self._of[collection].change(identity(event.key), event.token, self._most)
        else:
            # Dropped or renamed: whatever was known may be otherwise now.
            self._of[collection] = _CollectionNumbers(event.token)

    def _begin_anew(self, collection: str) -> None:
        self._of[collection] = _CollectionNumbers(self._hub.position)


class _CollectionNumbers:
    """Of one collection.

    Attributes:
        numbers: of last versions.
        tokens: theirs.
        newest: no token of them is behind it.
        changed: where documents that have changed were changed last, the latest last.
        floor: where those were changed at the latest that are not in it.
    """

    __slots__ = ("changed", "floor", "newest", "numbers", "tokens")

    def __init__(self, floor: str) -> None:
        self.numbers: dict[Any, int] = {}
        self.tokens: dict[Any, str] = {}
        self.newest = ""
        self.changed: dict[Any, str] = {}
        self.floor = floor

    def of(self, names: Sequence[Any], seen: str) -> list[int | None]:
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
