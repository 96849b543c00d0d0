"""Messages that are posted to a receiver, and the results of posts.

Independent of the HTTP client (`streams.listeners.webhooks.http_client`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

__all__ = ["DeliveryOutcome", "DeliveryResult", "Message", "redact_url"]


class DeliveryOutcome(Enum):
    """Outcome of a post.

    TAKEN: accepted by the receiver. REFUSED: rejected by the receiver after a look at it. FAILED:
    the
    receiver was reached, and failed or gave no answer. AWAY: no receiver was reached, so no message
    can
    be at fault.
    """

    TAKEN = "taken"
    REFUSED = "refused"
    FAILED = "failed"
    AWAY = "away"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """Result of a post.

    Attributes:
        reason: For all readers.
        said: The receiver's own text, which may be confidential.
        posted: Whether there was a message to post; otherwise the receiver has no part in the
            failure.
        at_once: Whether an immediate retry may help.
        retry_after_s: Pause that the receiver requested.
        gone: The receiver answered that it is gone for ever (410).
    """

    outcome: DeliveryOutcome
    reason: str = ""
    said: str = ""
    posted: bool = True
    at_once: bool = False
    retry_after_s: float | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Message of one event.

    Attributes:
        id: The same at each attempt.
        headers: In addition to those of the signature.
    """

    id: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def redact_url(url: str) -> str:
    """Return a URL without possible secrets: user, password, path and query.

    The path of many webhooks is enough to post to them.
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}/" + ("…" if parts.path.strip("/") or parts.query else "")
