"""Resume tokens: where in the change stream an event or a read stands, as text that sorts in stream
order.

Inside, a token is the cluster time as 16 hexadecimal digits, followed by
  - the rest of MongoDB's own `_data` for an event, in one form for all server versions and bounded
    in length (`streams.core.server_token`),
  - `~` for a moment: after everything at or before that cluster time (`~` sorts after every
    hexadecimal digit),
  - `~!` within a snapshot, which cannot be resumed from: its other documents would be missing,
  - `-` or `~` and a counter where several records stand at one event (a drop) or one moment
    (baselines).
On the wire it ends with `.` and the deployment's tag, so that a token of another deployment is
refused.

Source: `_data` is a KeyString, `82` + time + increment + …; measured equal on collection,
database and cluster streams (DESIGN).
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
# Of an event: up to its index in the transaction.
_PLACE = re.compile(rf"[0-9A-F]{{16}}2B0[24]{server_token.INTEGER}{{2}}(?=6[EF])")
_WIRE_LIMIT = 4096
_LONGEST = server_token.LONGEST + len("-00000000")
_LAST_NUMBER = 99_999_999


def token_from_stream(data: str) -> str:
    """The token of MongoDB's own `_data`.

    Raises:
        ValueError: not a KeyString that begins with a timestamp; a server newer than this code
            knows.
    """
    token = data[2:].upper()
    if not data.startswith(_TIMESTAMP_TYPE) or not _TOKEN.match(token):
        raise ValueError(f"resume token {data[:60]!r} does not begin with a cluster time")
    return server_token.canonical_data(token)


def canonical_token(token: str) -> str:
    """The same token, as it is made today.

    Tokens that earlier versions stored or gave to clients are in the form of the server that made
    them: only canonical ones are compared.
    """
    if not token.startswith("2B04", 16):
        return token
    event, dash, number = token.partition("-")
    return server_token.canonical_data(event) + dash + number


def upper_bound(token: str) -> str:
    """Sorts behind all forms of a token and its records: of an event, behind all events of its
    cluster time, but before the moment."""
    return f"{token[:16]}2B05" if token.startswith("2B02", 16) else token


def token_from_time(time: Timestamp) -> str:
    """After everything at or before this cluster time."""
    return time_prefix(time) + "~"


def numbered_token(token: str, number: int) -> str:
    """The token of the `number`-th record that stands at one place."""
    return f"{token}{number:08d}" if token.endswith("~") else f"{token}-{number:08d}"


def token_after_event(token: str) -> str:
    """After all records that stand at one event."""
    return numbered_token(token, _LAST_NUMBER)


def token_before_event(token: str) -> str:
    """The token of a record that stands before an event, and behind all that come before that."""
    found = _PLACE.match(token)
    return numbered_token(token[:16] if found is None else found[0], 1)


def divided_event(token: str) -> str | None:
    """The event at which this record stands with others that may follow; None where it does not."""
    event, _, number = token.partition("-")
    return event if number and int(number) < _LAST_NUMBER else None


def snapshot_token(time: Timestamp) -> str:
    """Within a snapshot as of this cluster time: says when, but is refused as a place to resume
    from."""
    return token_from_time(time) + "!"


def is_snapshot_token(token: str) -> bool:
    """Return whether a token stands within a snapshot."""
    return token.endswith("!")


def require_resumable(token: str) -> str:
    """The same token.

    Raises:
        ResumeTokenInvalid: it stands within a snapshot.
    """
    if is_snapshot_token(token):
        raise ResumeTokenInvalid(
            "this token was sent within a snapshot that was not finished; "
            "subscribe again with snapshot: true, "
            "and resume from the tokens of its CHECKPOINT and of what follows"
        )
    return token


def time_prefix(time: Timestamp) -> str:
    """Sorts before every token of this cluster time."""
    return f"{time.time:08X}{time.inc:08X}"


def cluster_time(token: str) -> Timestamp:
    return Timestamp(int(token[:8], 16), int(token[8:16], 16))


def encode(token: str, deployment: str) -> str:
    """For the wire."""
    if len(token) > _LONGEST:
        # Stored by an earlier version; this place stands behind it and before all that follows.
        token = f"{token[: server_token.LONGEST]}~"
    return f"{token}.{deployment}"


def decode(text: str, deployment: str) -> str:
    """From the wire.

    Raises:
        ResumeTokenInvalid: malformed, or made by another deployment.
    """
    token, dot, tag = text.rpartition(".")
    if not dot or len(text) > _WIRE_LIMIT or not _TOKEN.match(token):
        shown = text if len(text) <= 60 else f"{text[:57]}..."
        raise ResumeTokenInvalid(
            f"{shown!r} is not a resume token; "
            "take one from an event, a connection or Query.resumeToken"
        )
    if tag != deployment:
        raise ResumeTokenInvalid(
            f"this resume token was made by deployment {tag!r}, and this is {deployment!r}; "
            "take a new one from here"
        )
    return canonical_token(token)


BEGINNING = token_from_time(Timestamp(1, 0))
"""Before every version."""
