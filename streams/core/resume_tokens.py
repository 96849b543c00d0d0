"""Resume tokens: positions in the change stream, as text that sorts in stream order.

Internally, a token is the cluster time as 16 hexadecimal digits, followed by
  - the rest of MongoDB's own `_data` for an event, in one form for all server versions and bounded
    in length (`streams.core.server_token`),
  - `~` for a time: after everything at or before that cluster time (`~` sorts after every
    hexadecimal digit),
  - `~!` within a snapshot, from which a client cannot resume, since the other documents would be
    missing,
  - `-` or `~` and a counter where several records belong to one event (a drop) or one time
    (baselines).
For clients it ends with `.` and the deployment's tag, so that a token of another deployment is
refused.

Source: `_data` is a KeyString, `82` + time + increment + …; measured equal on collection, database
and cluster streams (DESIGN).
"""

from __future__ import annotations

import re

from bson import Timestamp

from revstream.streams.core import server_token
from revstream.streams.core.errors import ResumeTokenInvalid

__all__ = [
    "BEGINNING",
    "canonical_token",
    "cluster_time",
    "decode",
    "divided_event",
    "encode",
    "is_snapshot_token",
    "numbered_token",
    "require_resumable",
    "snapshot_token",
    "time_prefix",
    "token_after_event",
    "token_before_event",
    "token_from_stream",
    "token_from_time",
    "upper_bound",
]

_TIMESTAMP_TYPE = "82"
_TOKEN = re.compile(r"[0-9A-F]{16}([0-9A-F]*(-[0-9]{8}|~)?|~([0-9]{8}|!)?)\Z")
# The start of an event's token, up to its index in the transaction.
_PLACE = re.compile(rf"[0-9A-F]{{16}}2B0[24]{server_token.INTEGER}{{2}}(?=6[EF])")
_WIRE_LIMIT = 4096
_LONGEST = server_token.LONGEST + len("-00000000")
_LAST_NUMBER = 99_999_999


def token_from_stream(data: str) -> str:
    """Return the token of MongoDB's own `_data`.

    Raises:
        ValueError: Not a KeyString that begins with a timestamp: an unknown, newer server.
    """
    token = data[2:].upper()
    if not data.startswith(_TIMESTAMP_TYPE) or not _TOKEN.match(token):
        raise ValueError(f"resume token: {data[:60]!r}, expected one that begins with a time")
    return server_token.canonical_data(token)


def canonical_token(token: str) -> str:
    """Return the token in today's form.

    Tokens that earlier versions stored or gave to clients have the form of the server that created
    them; only canonical tokens may be compared.
    """
    if not token.startswith("2B04", 16):
        return token
    event, dash, number = token.partition("-")
    return server_token.canonical_data(event) + dash + number


def upper_bound(token: str) -> str:
    """Return a text that sorts after all forms of a token and after its records.

    For an event, it sorts after all events of its cluster time, but before the token of that time.
    """
    return f"{token[:16]}2B05" if token.startswith("2B02", 16) else token


def token_from_time(time: Timestamp) -> str:
    """Return the token after everything at or before a cluster time."""
    return time_prefix(time) + "~"


def numbered_token(token: str, number: int) -> str:
    """Return the token of the `number`-th record that belongs to one event or time."""
    return f"{token}{number:08d}" if token.endswith("~") else f"{token}-{number:08d}"


def token_after_event(token: str) -> str:
    """Return a token after all records of one event."""
    return numbered_token(token, _LAST_NUMBER)


def token_before_event(token: str) -> str:
    """Return the token of a record just before an event, after all earlier events."""
    found = _PLACE.match(token)
    return numbered_token(token[:16] if found is None else found[0], 1)


def divided_event(token: str) -> str | None:
    """Return the event that this record shares with others that may follow; else None."""
    event, _, number = token.partition("-")
    return event if number and int(number) < _LAST_NUMBER else None


def snapshot_token(time: Timestamp) -> str:
    """Return the token within a snapshot at a cluster time; it cannot be used to resume."""
    return token_from_time(time) + "!"


def is_snapshot_token(token: str) -> bool:
    """Return whether a token is within a snapshot."""
    return token.endswith("!")


def require_resumable(token: str) -> str:
    """Return the same token.

    Raises:
        ResumeTokenInvalid: The token is within a snapshot.
    """
    if is_snapshot_token(token):
        raise ResumeTokenInvalid(
            "resume token: of an unfinished snapshot, expected one of its CHECKPOINT or of a later "
            "event; subscribe again with snapshot: true"
        )
    return token


def time_prefix(time: Timestamp) -> str:
    """Return a text that sorts before every token of this cluster time."""
    return f"{time.time:08X}{time.inc:08X}"


def cluster_time(token: str) -> Timestamp:
    """Return the cluster time of a token."""
    return Timestamp(int(token[:8], 16), int(token[8:16], 16))


def encode(token: str, deployment: str) -> str:
    """Return the token for clients, with the deployment's tag."""
    if len(token) > _LONGEST:
        # Stored by an earlier version. The result sorts after it and before all that follows.
        token = f"{token[: server_token.LONGEST]}~"
    return f"{token}.{deployment}"


def decode(text: str, deployment: str) -> str:
    """Return the internal token of a client's text.

    Raises:
        ResumeTokenInvalid: Malformed, or created by another deployment.
    """
    token, dot, tag = text.rpartition(".")
    if not dot or len(text) > _WIRE_LIMIT or not _TOKEN.match(token):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise ResumeTokenInvalid(
            f"resume token: {shown!r}, expected one of this service; "
            "take one from an event, a connection or Query.resumeToken"
        )
    if tag != deployment:
        raise ResumeTokenInvalid(
            f"resume token: of deployment {tag!r}, expected {deployment!r}; take a new one of this "
            "deployment"
        )
    return canonical_token(token)


BEGINNING = token_from_time(Timestamp(1, 0))
"""The token before every version."""
