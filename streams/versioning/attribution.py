"""Attribution of a write: its author, reason and trace, from the `_change` that it has set.

A `_change` belongs to one write of one document. Programs that clone, restore or write back whole
documents keep the `_change` of an earlier write: an id that the archive knows attributes nothing.

`{id, by, why, restoredFrom, draft, traceparent, op, doc, in, mark}`: `doc` and `in`, the document's
`_id` and its collection, may name the document it was made for; its id is then unique only per
document.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Hashable, Mapping
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from bson import Binary, Decimal128, ObjectId, json_util
from bson.binary import UUID_SUBTYPE
from bson.raw_bson import RawBSONDocument

from revstream.model.compiler.validation.fields import CHANGE_FIELD
from revstream.streams.changefeed.event import ChangeEvent, identity
from revstream.streams.core.traceparent import read_traceparent
from revstream.streams.mongo.driver.codecs import plain_value
from revstream.streams.raw_bson.diff import is_same

__all__ = [
    "COPIER",
    "RESERVED_NAMES",
    "Claim",
    "claim_from_event",
    "claimed_change",
    "copier_mark",
    "declared_operation",
    "is_reserved_name",
    "read_attribution",
    "whole_number",
]

RESERVED_NAMES = "revstream:"
"""Prefix of names that no caller and no program may have."""

COPIER = f"{RESERVED_NAMES}copier"
"""Author of the versions that the copier writes."""

# Id types that can be looked up as they are: a regular expression, for example, would match others.
_ID_TYPES = (str, int, float, ObjectId, UUID, Binary)
_CHANGED = frozenset({"update", "replace"})
_NO_NUMBER = 2**31
_FIELD = CHANGE_FIELD.encode()
_NAME = _FIELD + b"\0"


class Claim(NamedTuple):
    """A `_change` that a write claims to have set.

    Attributes:
        change: The whole `_change`.
        id: Its id; None where it has none that can be looked up.
        bound: It names the document that it was made for.
        fits: That document is the written one, as far as it is named.
    """

    change: Mapping[str, Any]
    id: Any
    bound: bool
    fits: bool

    @property
    def name(self) -> Hashable:
        name: Hashable = identity(self.id)
        return name


def is_reserved_name(name: object) -> bool:
    return isinstance(name, str) and name.startswith(RESERVED_NAMES)


def copier_mark(secret: str, change_id: str) -> str:
    """Sign the id of a `_change` of the copier; other writers lack the secret."""
    return hmac.new(secret.encode(), change_id.encode(), hashlib.sha256).hexdigest()[:32]


def claimed_change(
    event: ChangeEvent,
    after: Mapping[str, Any] | None,
    earlier: Any,
    deletion: Mapping[str, Any] | None = None,
) -> Mapping[str, Any] | None:
    """Return the `_change` that the event claims to have set; None where the write set none.

    None also where the write only kept the `_change` that the document had.

    Args:
        after: The document after the write.
        earlier: The `_change` that the document had before.
        deletion: For an attributed delete, the `_change` that the document would have.
    """
    carried = deletion if after is None else after.get(CHANGE_FIELD)
    if not isinstance(carried, Mapping):
        return None
    if event.operation == "delete":
        return carried
    if event.update is not None:
        return carried if _updates_change(event.update) else None
    set_now = event.operation == "insert" or not _carried_along(earlier, carried)
    return carried if set_now else None


def claim_from_event(event: ChangeEvent, collection: str) -> Claim | None:
    """Return the claim of a write other than a deletion; None where it claims nothing.

    The `_change` that the document had before plays no part.
    """
    if event.operation == "delete":
        return None
    if event.update is not None and not _updates_change(event.update):
        return None
    change = _carried(event.after)
    if change is None and event.update is not None:
        change = (event.update.get("updatedFields") or {}).get(CHANGE_FIELD)
    if not isinstance(change, Mapping):
        return None
    id_ = change.get("id")
    bound, where = "doc" in change, change.get("in")
    fits = where is None or where == collection
    if bound:
        fits = fits and identity(change["doc"]) == identity(event.key)
    usable = isinstance(id_, _ID_TYPES) and not isinstance(id_, bool)
    return Claim(change, id_ if usable else None, bound, fits)


def read_attribution(claimed: Mapping[str, Any], *, by_copier: bool = False) -> dict[str, Any]:
    """Read a `_change`: by, why, restoredFrom, draft, traceparent.

    Args:
        by_copier: It has the copier's signature; otherwise reserved names are left out.
    """
    # Any program may write these fields, as values of any type.
    texts = {name: _text(claimed.get(name)) for name in ("by", "why")}
    texts["traceparent"] = read_traceparent(claimed.get("traceparent"))
    if is_reserved_name(texts["by"]) and not by_copier:
        texts["by"] = None
    numbers = {name: whole_number(claimed.get(name)) for name in ("restoredFrom", "draft")}
    # Version and draft numbers are in this range.
    fitting = {name: n for name, n in numbers.items() if n is not None and 0 < n < _NO_NUMBER}
    return {name: text for name, text in texts.items() if text is not None} | fitting


def declared_operation(event: ChangeEvent, claimed: Mapping[str, Any] | None) -> str | None:
    """Return UPDATE or REPLACE, where the writer declares which of them was meant.

    The server logs an update that leaves little of a document as a replacement, and a replacement
    as an update, if that saves bytes.
    """
    if claimed is None or event.operation not in _CHANGED:
        return None
    said = claimed.get("op")
    return said if said in ("UPDATE", "REPLACE") else None


def whole_number(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _carried(after: RawBSONDocument | None) -> Any:
    # Reading a field of a raw document costs several Python calls.
    return None if after is None or _NAME not in bytes(after.raw) else after.get(CHANGE_FIELD)


def _updates_change(update: RawBSONDocument) -> bool:
    # Most updates name it nowhere, and are not decoded to find out.
    if _FIELD not in bytes(update.raw):
        return False
    updated = update.get("updatedFields") or {}
    return any(n == CHANGE_FIELD or n.startswith(CHANGE_FIELD + ".") for n in updated)


def _carried_along(earlier: Any, carried: Mapping[str, Any]) -> bool:
    if not isinstance(earlier, Mapping):
        return False
    one, other = earlier.get("id"), carried.get("id")
    return is_same(earlier, carried) if one is None or other is None else is_same(one, other)


def _text(value: Any) -> str | None:
    """Return the text of a value of any type, as the API shows such values."""
    if value is None or isinstance(value, str):
        return value
    number = whole_number(value)
    if number is not None:
        return str(number)
    if isinstance(value, Binary) and value.subtype == UUID_SUBTYPE and len(value) == 16:
        return str(value.as_uuid())
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        date: str = json_util.default(value, json_util.RELAXED_JSON_OPTIONS)["$date"]
        return date
    if isinstance(value, ObjectId | Decimal128 | UUID):
        return str(value)
    return json_util.dumps(plain_value(value), json_options=json_util.RELAXED_JSON_OPTIONS)
