"""What is posted to a receiver, and what became of it.

Whoever only speaks of posts needs nothing that makes them
(`streams.listeners.webhooks.http_client`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import urlsplit

__all__ = ["DeliveryOutcome", "DeliveryResult", "Message", "redact_url"]


class DeliveryOutcome(Enum):
    """TAKEN: it is the receiver's now. REFUSED: it was looked at, and is not wanted. FAILED: the
    receiver was reached, and did not do it, or did not say. AWAY: nobody was reached, so that no
    message can be at fault."""

    TAKEN = "taken"
    REFUSED = "refused"
    FAILED = "failed"
    AWAY = "away"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """`reason`: for everybody; `said`: the receiver's own words, which may tell what only its owner
    should know. `posted`: whether there was a message to post: else the receiver has no part in it.
    `at_once`: it may help to try again without a pause. `retry_after_s`: what the
    receiver has asked for. `gone`: it says that it will never be there again (410)."""

    outcome: DeliveryOutcome
    reason: str = ""
    said: str = ""
    posted: bool = True
    at_once: bool = False
    retry_after_s: float | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`id`: the same each time that it is sent. `headers`: beside those of the signature."""

    id: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def redact_url(url: str) -> str:
    """Without what may be a secret: user, password, path and query. Whoever knows the path of many
    a webhook may post to it."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}/" + ("…" if parts.path.strip("/") or parts.query else "")
