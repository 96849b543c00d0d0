"""Codecs of documents: decoded, or raw, to be decoded where they are used.

Guarantees: decoding creates no DBRef. The driver converts any embedded document with `$ref` and
`$id` to one; in revstream it stays an ordinary document.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bson
from bson import Code, CodecOptions
from bson.binary import UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.raw_bson import RawBSONDocument

__all__ = ["DECODED", "RAW", "REPLY", "SHOWN", "Document", "decode", "plain_value"]

Document = dict[str, Any]

# No stored value may stop the stream: dates outside Python's years become DatetimeMS, binaries of
# the UUID subtype stay Binary, since they need not have 16 bytes, and text that is not UTF-8, which
# MongoDB does not check, gets replacement characters.
DECODED: CodecOptions[Document] = CodecOptions(
    document_class=dict,
    tz_aware=True,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)
# For results that are only shown: dates are UTC without a time zone.
SHOWN: CodecOptions[Document] = DECODED.with_options(tz_aware=False)
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    tz_aware=True,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",
)

# An element of type string, with that name.
_REFERENCE = b"\x02$ref\0"


def decode(raw: bytes | memoryview, options: CodecOptions[Document] = DECODED) -> Document:
    """Decode a document, embedded ones as dicts in their own order, whatever fields they have."""
    data = bytes(raw)
    if _REFERENCE not in data:
        return bson.decode(data, options)
    found: Document = plain_value(bson.decode(data, RAW.with_options(tz_aware=options.tz_aware)))
    return found


def plain_value(value: Any) -> Any:
    """Return a value with raw documents as dicts."""
    if isinstance(value, RawBSONDocument):
        return {name: plain_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain_value(each) for each in value]
    if isinstance(value, Code) and value.scope is not None:
        return Code(str(value), plain_value(value.scope))
    return value


class _Reply(RawBSONDocument):
    """Raw reply to which PyMongo can add the error's labels.

    PyMongo 4.15 to 4.20 adds them to a write concern error in place, where they are read to decide
    whether to retry the write (helpers_shared._check_command_response).
    """

    _added: Mapping[str, Any] = {}

    def update(self, added: Mapping[str, Any]) -> None:
        self._added = added

    def __getitem__(self, name: str) -> Any:
        return self._added[name] if name in self._added else super().__getitem__(name)


# For commands that write: raw, and the error of an unconfirmed write can be read.
REPLY: CodecOptions[RawBSONDocument] = RAW.with_options(document_class=_Reply)
