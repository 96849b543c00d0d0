"""MongoDB's own resume tokens in one form for each event, independent of the server version.

A token's `_data` is a KeyString in hexadecimal digits: cluster time, version of the format, type
(a high-water mark before an event), index in the transaction, whether it is of an invalidate event,
the collection's UUID, and an identification of the event. Up to 6.0 that is the document key, from
7.0 on an object with the operation's name and the key. Nothing after the index in the transaction
orders the events of a replica set, but the text must be the same, because tokens are stored,
compared and looked up. So tokens of the second format are rewritten in the first one.

Source: mongo/src/mongo/db/pipeline/resume_token.cpp, mongo/src/mongo/db/storage/key_string.cpp.
"""

from __future__ import annotations

import re

__all__ = ["INTEGER", "LONGEST", "canonical_data"]

LONGEST = 2048
"""Maximum number of digits of a canonical token; a longer one, with a long document key, is
truncated.

Neither order nor identity is lost, as both come before the key.
"""

# A non-negative integer; the first byte holds its size.
INTEGER = "(?:29|2B[0-9A-F]{2}|2C[0-9A-F]{4}|2D[0-9A-F]{6}|2E[0-9A-F]{8})"
_SECOND_FORMAT = re.compile(
    "(?P<time>[0-9A-F]{16})2B04"
    f"(?P<place>{INTEGER}{{2}}6[EF])"
    "(?:(?P<uuid>5A1004[0-9A-F]{32})|14)?"
    "(?P<event>46[0-9A-F]*)?04",
)


def _field(kind: str, name: str) -> str:
    return f"{kind}{name.encode().hex().upper()}00"


_STRING, _OBJECT = "3C", "46"
# {operationType: …, documentKey: …}
_OF_DOCUMENT = re.compile(
    f"{_OBJECT}{_field(_STRING, 'operationType')}{_STRING}(?:(?!00)[0-9A-F]{{2}})+00"
    f"{_field(_OBJECT, 'documentKey')}(?P<key>{_OBJECT}[0-9A-F]*)00"
)


def canonical_data(token: str) -> str:
    """Return the text that is the same for all tokens of one event.

    Args:
        token: `_data` without its first byte, the type of the cluster time.
    """
    # Nearly all tokens have the first format, or this form already.
    if token.startswith("2B04", 16) and (found := _SECOND_FORMAT.fullmatch(token)) is not None:
        of_document = _OF_DOCUMENT.fullmatch(found["event"] or "")
        key = "" if of_document is None else of_document["key"]
        token = f"{found['time']}2B02{found['place']}{found['uuid'] or ''}{key}04"
    return token[:LONGEST]
