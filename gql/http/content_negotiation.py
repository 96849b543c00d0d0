"""Content negotiation: the response formats that an Accept header allows.

Source: RFC 9110, 12.5.1; the specification "GraphQL over HTTP".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from revstream.gql.http.media_types import JSON, Accept, MediaType
from revstream.gql.http.stream_framing import MULTIPART, SSE, Framing

__all__ = ["RESPONSE_JSON", "AcceptedFormats", "negotiate"]

RESPONSE_JSON = MediaType("application/graphql-response+json", {"charset": "utf-8"})
_HTML = MediaType("text/html")


@dataclass(frozen=True, slots=True)
class AcceptedFormats:
    """Formats that a client accepts.

    Attributes:
        page: True if the client prefers a page to JSON.
        json: type of a response that is one object; None if not accepted.
        stream: framing of a stream; None if not accepted.
    """

    page: bool
    json: MediaType | None
    stream: Framing | None


# Clients repeat the header in each request, and parsing it takes as long as a small query.
@lru_cache(maxsize=128)
def negotiate(header: str) -> AcceptedFormats:
    """Parse an Accept header; an empty one accepts anything."""
    accept = Accept(header)
    plain, modern = accept.rank(JSON), accept.rank(RESPONSE_JSON)
    best = max(plain, modern)
    # A client that names the newer type understands it; any other understands the older one.
    newer = modern > plain or (modern == plain and modern[1] == 2)
    json = (RESPONSE_JSON if newer else JSON) if best[0] else None
    events = accept.rank(SSE.media_type)
    # Without the parameter it is the multipart of incremental delivery, which is another format.
    parts = accept.rank(MULTIPART.media_type, naming="subscriptionspec")
    stream = None
    if parts[0] and (json is not None or parts > events):
        stream = MULTIPART
    elif events[0] and json is None:
        stream = SSE
    return AcceptedFormats(accept.rank(_HTML) > best, json, stream)
