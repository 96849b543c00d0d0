"""How documents come out of MongoDB: decoded, or raw, to be decoded where somebody looks."""

from __future__ import annotations

from typing import Any

from bson import CodecOptions
from bson.binary import UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.raw_bson import RawBSONDocument

__all__ = ["DECODED", "RAW", "Document"]

Document = dict[str, Any]

# Nothing that a program can store may stop the stream: dates outside of Python's years become
# DatetimeMS, and binaries of the UUID subtype stay Binary, since they need not have 16 bytes.
DECODED: CodecOptions[Document] = CodecOptions(
    document_class=dict,
    tz_aware=True,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    tz_aware=True,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
