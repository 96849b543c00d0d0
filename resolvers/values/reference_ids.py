"""Validity of the ids that references hold, and their size."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import bson

from revstream.model.definition import Field
from revstream.resolvers.errors import DocumentMisfit, LimitExceeded
from revstream.resolvers.values.output import TEXT_IDS, Convert, ValueLocation, converter
from revstream.streams.mongo.driver.codecs import DECODED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from revstream.model.definition import Entity

__all__ = ["MOST_ID_BYTES", "check_id_bytes", "id_converter", "is_id"]

MOST_ID_BYTES = 4 * 1024 * 1024
"""Size of the ids of a query; a command may have 16 MB, and may name them twice."""

_NOWHERE = ValueLocation("", None)


@lru_cache(maxsize=1024)
def id_converter(by: Field) -> Convert:
    """Return the conversion that refuses values that cannot be an id of the target's documents."""
    scalar = by.stored_scalar
    if scalar is None or scalar in TEXT_IDS:
        return converter(by, nullable=True)
    return converter(replace(by, type=scalar), nullable=True)


def is_id(convert: Convert, id_: Any) -> bool:
    """Return whether a conversion accepts a value."""
    try:
        convert(id_, _NOWHERE)
    except DocumentMisfit:
        return False
    return True


def check_id_bytes(target: Entity, ids: Sequence[Any]) -> None:
    """Check the size of the ids of related documents, which are part of a query.

    Raises:
        LimitExceeded: they are too large.
    """
    size = len(bson.encode({"": ids}, codec_options=DECODED))
    if size > MOST_ID_BYTES:
        raise LimitExceeded(
            f"{target.name}: {size:,} bytes of ids of related documents, maximum is "
            f"{MOST_ID_BYTES:,}; add conditions, so that fewer documents match",
            limit="memory",
            asked=size,
            bound=MOST_ID_BYTES,
        )
