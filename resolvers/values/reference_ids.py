"""Validity of the ids that references hold."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

from revstream.model.definition import Field
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.values.output import TEXT_IDS, Convert, ValueLocation, converter

__all__ = ["id_converter", "is_id"]

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
