"""Framing of streamed results: server-sent events, and multipart as Apollo Client takes it.

Source: PROTOCOL.md of enisdenjo/graphql-sse, "Distinct connections mode"; HTML, 9.2 Server-sent
events; Apollo's "Multipart subscriptions over HTTP"; RFC 2046, 5.1.1. docs/decisions/0023
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Mapping
from typing import Any, Protocol

import orjson

from revstream.gql.http.media_types import MediaType

__all__ = ["MULTIPART", "SSE", "Framing"]

# Range of the reconnect delay of an EventSource, random so that not all reconnect at once.
_RETRY_MS = (500, 2500)


class Framing(Hashable, Protocol):
    """Conversion of results to the bytes of a stream."""

    @property
    def media_type(self) -> MediaType: ...

    @property
    def heartbeat(self) -> bytes: ...

    @property
    def complete(self) -> bytes: ...

    def opening(self) -> bytes: ...

    def result(self, body: bytes, token: str | None) -> bytes: ...

    def interrupted(self, body: Mapping[str, Any]) -> bytes:
        """Return the end of a stream that can be resumed."""
        ...


class _ServerSentEvents:
    media_type = MediaType("text/event-stream")
    heartbeat = b":\n\n"
    # With a data field: an EventSource ignores events without one.
    complete = b"event: complete\ndata:\n\n"

    def opening(self) -> bytes:
        return b"retry: %d\n:\n\n" % random.randint(*_RETRY_MS)

    def result(self, body: bytes, token: str | None) -> bytes:
        id_ = b"" if token is None else b"id: %b\n" % token.encode()
        return b"%bevent: next\ndata: %b\n\n" % (id_, body)

    def interrupted(self, body: Mapping[str, Any]) -> bytes:
        # A comment, since the client reconnects by itself; people who read the stream see it. The
        # message must not contain a line break.
        error = body["errors"][0]
        text = f"{error['extensions']['code']} {' '.join(error['message'].split())}"
        return b": %b\n\n" % text.encode()


class _Multipart:
    # Apollo's iOS client compares the parameter, and the part's header, letter by letter.
    media_type = MediaType("multipart/mixed", {"boundary": "graphql", "subscriptionSpec": "1.0"})
    complete = b"--\r\n"

    def opening(self) -> bytes:
        return b"--graphql"

    def _part(self, content: bytes) -> bytes:
        # The boundary follows at once: a part is complete for a client once it has seen the next.
        return b"\r\ncontent-type: application/json\r\n\r\n%b\r\n--graphql" % content

    @property
    def heartbeat(self) -> bytes:
        return self._part(b"{}")

    def result(self, body: bytes, token: str | None) -> bytes:
        return self._part(b'{"payload":%b}' % body)

    def interrupted(self, body: Mapping[str, Any]) -> bytes:
        failed = orjson.dumps({"payload": None, "errors": body["errors"]})
        return self._part(failed) + self.complete


SSE: Framing = _ServerSentEvents()
MULTIPART: Framing = _Multipart()
