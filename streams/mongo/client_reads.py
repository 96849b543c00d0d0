"""Documents read for clients: counted as they arrive, and decoded in portions.

Between two portions other tasks run: decoding 16 MB of small values takes a quarter of a second,
and
200 MB of memory.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from bson import CodecOptions
from bson.raw_bson import RawBSONDocument

from revstream.streams.core.operation import MOST_TOGETHER, OPERATION
from revstream.streams.core.read_memory import SMALL_BYTES, LargeRead, count_values
from revstream.streams.mongo.driver.codecs import Document, decode

__all__ = ["await_result", "collect", "count_lost_reply", "count_reply", "decode_portions"]

_PORTION_BYTES = 256 * 1024


def count_reply(size: int) -> None:
    """Count a reply before it is decoded.

    The values of a small reply are counted here; those of a large one while it is decoded in
    portions.

    Raises:
        LargeRead, GatewayError: See `streams.core.operation`.
    """
    operation = OPERATION.get()
    if operation is not None:
        operation.count_read(size, count_values(None, size) if size < SMALL_BYTES else 0)
    elif size > SMALL_BYTES and 0 < MOST_TOGETHER.get() < size:
        raise LargeRead


def count_lost_reply(size: int) -> None:
    """Count a reply whose documents will be read again: the operation then counts as a large one.

    The second read is counted when it is made.

    Raises:
        LargeRead, GatewayError: As `count_reply`.
    """
    count_reply(size)
    operation = OPERATION.get()
    if operation is not None:
        operation.count_read(-size, 0)


async def decode_portions(
    documents: Sequence[RawBSONDocument], options: CodecOptions[Document]
) -> list[Document]:
    """Decode the documents of a large reply that is counted already.

    Raises:
        LargeRead, GatewayError: As `count_reply`.
    """
    decoding = _Decoding(options)
    found: list[Document] = []
    try:
        for each in documents:
            found.append(decoding.decode(each, 0))
            await decoding.let_others()
    except BaseException:
        found.clear()
        raise
    return found


async def collect(
    documents: AsyncIterator[RawBSONDocument], options: CodecOptions[Document] | None
) -> list[Any]:
    """Return the documents of a cursor; raw where `options` is None.

    Raises:
        LargeRead, GatewayError: As `count_reply`.
    """
    decoding = _Decoding(options)
    found: list[Any] = []
    try:
        async for each in documents:
            found.append(decoding.decode(each, len(each.raw)))
            await decoding.let_others()
    except BaseException:
        found.clear()
        raise
    return found


class _Decoding:
    """Decoder of many documents, one by one.

    Args:
        options: Codec; None leaves the documents raw.
    """

    def __init__(self, options: CodecOptions[Document] | None) -> None:
        self._options = options
        self._operation = OPERATION.get()
        self._most_together = MOST_TOGETHER.get()
        self._together = 0
        self._portion = 0
        self._busy_s = 0.0

    def decode(self, raw: RawBSONDocument, uncounted: int) -> Any:
        """Decode a document and count it as `uncounted` bytes.

        Raises:
            LargeRead, GatewayError: As `count_reply`.
        """
        began = time.thread_time()
        size = len(raw.raw)
        document = raw if self._options is None else decode(raw.raw, self._options)
        if self._operation is not None:
            values = 0 if self._options is None else count_values(document, size)
            self._operation.count_read(uncounted, values)
        else:
            self._together += size
            if 0 < self._most_together < self._together:
                raise LargeRead
        self._portion += size
        self._busy_s += time.thread_time() - began
        return document

    async def let_others(self) -> None:
        """Let other tasks run after each portion, for as long as it took."""
        if self._portion > _PORTION_BYTES:
            self._portion = 0
            busy_s, self._busy_s = self._busy_s, 0.0
            await asyncio.sleep(busy_s)


async def await_result(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
