"""Documents that come again and again in the same bytes: decoded once, and then the same objects.

What is read is read each time; only what is made of it is not made again. Nothing has to be told
when a document changes: other bytes are another document.

A reply that was not seen to come again costs as good as nothing: its first document alone is looked
at. So somebody who reads a whole collection once does not drive out what others ask for all day.

Source: docs/decisions/0032-interned-documents.md
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Any, NoReturn

import bson

from streams.documents import SHOWN, Document

__all__ = ["Interned", "Interning"]

_length = struct.Struct("<i")
# An answer to `find` or `aggregate`: {cursor: {firstBatch: [...], id, ns}, ok, ...}.
_CURSOR, _BATCH = b"\x03cursor\0", b"\x04firstBatch\0"
_AT_BATCH = 4 + len(_CURSOR) + 4
_AT_DOCUMENTS = _AT_BATCH + len(_BATCH)
_EMPTY_BYTES = 5
# The id of a cursor that has no more, and that all is well.
_WHOLE = b"\x12id\0" + bytes(8)
_OK = b"\x01ok\0" + struct.pack("<d", 1.0)

# What a document takes beside its bytes, and for each of them: measured, between half and one and a
# half times as much.
_DOCUMENT_BYTES, _DECODED = 700, 6
# Larger replies are left alone: they would drive out all others.
_PART_OF_CAPACITY = 32
_FIRST_MOST = 10_000
# How much longer it rests than it worked for too little.
_REST = 4


class Interned(Document):
    """A document that others have, too: it does not change.

    Attributes:
        shown, shown_by, shown_number: what a response last had of it, for the use of whoever made
            that: by which function, and with which version number.
    """

    __slots__ = ("shown", "shown_by", "shown_number")

    def __init__(self, document: Document) -> None:
        super().__init__(document)
        self.shown: Any = None
        self.shown_by: str | None = None
        self.shown_number: int | None = None

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("an interned document is read by others, too: change a copy of it")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


class Interning:
    """Args:
        capacity_bytes: of memory, about; who came first leaves first. 0: all is decoded anew.

    Attributes:
        size_bytes: taken of it.
        recognized, decoded: documents, of replies that were looked through.
        left: documents that are not known any more.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.size_bytes = 0
        self.left = 0
        self.recognized = self.decoded = 0
        self._capacity_bytes = capacity_bytes
        self._known: dict[bytes, Interned] = {}
        self._order: deque[bytes] = deque()
        # Of replies that came once: hashes of their first documents.
        self._first: set[int] = set()
        self._first_bytes = 0
        # How many had left when it was last judged; and what was counted then.
        self._judged = 0
        self._then = 0, 0, 0
        self._replies = 0
        # Replies to be left alone.
        self._rest = 0

    def documents(self, answer: memoryview) -> list[Document] | None:
        """Those of a whole answer, as the options SHOWN decode them; None of any other reply, and
        of one that did not come before."""
        if len(answer) > self._capacity_bytes // _PART_OF_CAPACITY:
            return None
        reply = bytes(answer)
        if reply[4 : _AT_BATCH - 4] != _CURSOR or reply[_AT_BATCH:_AT_DOCUMENTS] != _BATCH:
            return None
        (size,) = _length.unpack_from(reply, _AT_DOCUMENTS)
        end = _AT_DOCUMENTS + size
        if not (reply.startswith(_WHOLE, end) and reply.find(_OK, end) > 0):
            return None
        if size <= _EMPTY_BYTES or not self._comes_again(reply):
            return None
        return self._found(reply, _AT_DOCUMENTS + 4, end - 1)

    def _comes_again(self, reply: bytes) -> bool:
        """Whether its first document is known, or was looked at before."""
        if self._rest:
            self._rest -= 1
            return False
        # Behind the length: its type, and "0" for its name.
        start = _AT_DOCUMENTS + 7
        first = reply[start : start + _length.unpack_from(reply, start)[0]]
        if first in self._known:
            return True
        name = hash(first)
        if name in self._first:
            return True
        # Of as many as there is room for: what comes again behind more than that would have left.
        self._first_bytes += _DOCUMENT_BYTES + _DECODED * len(reply)
        if self._first_bytes > self._capacity_bytes or len(self._first) >= _FIRST_MOST:
            self._first.clear()
            self._first_bytes = 0
        self._first.add(name)
        return False

    def _found(self, reply: bytes, start: int, end: int) -> list[Document] | None:
        """None where they are not where they should be."""
        found: list[Document] = []
        add, get, size_at = found.append, self._known.get, _length.unpack_from
        # A type and a name: "0" to "9" first, then ten times as many with one digit more.
        head, left = 3, 10
        while start < end:
            start += head
            behind = start + size_at(reply, start)[0]
            raw = reply[start:behind]
            known = get(raw)
            add(self._intern(raw) if known is None else known)
            start = behind
            left -= 1
            if not left:
                left = 9 * 10 ** (head - 2)
                head += 1
        if start != end:
            return None
        self._replies += 1
        self.recognized += len(found)
        while self.size_bytes > self._capacity_bytes:
            self._forget(self._order.popleft())
        return found

    def _intern(self, raw: bytes) -> Interned:
        made = self._known[raw] = Interned(bson.decode(raw, SHOWN))
        self._order.append(raw)
        self.size_bytes += _DOCUMENT_BYTES + _DECODED * len(raw)
        self.recognized -= 1
        self.decoded += 1
        return made

    def _forget(self, raw: bytes) -> None:
        del self._known[raw]
        self.size_bytes -= _DOCUMENT_BYTES + _DECODED * len(raw)
        self.left += 1
        if self.left - self._judged > len(self._known):
            self._judge()

    def _judge(self) -> None:
        """Once all are others: where few of them were asked for again, looking for them took longer
        than decoding all."""
        recognized, decoded, replies = self._then
        if self.recognized - recognized < self.decoded - decoded:
            self._rest = _REST * (self._replies - replies)
        self._judged = self.left
        self._then = self.recognized, self.decoded, self._replies
