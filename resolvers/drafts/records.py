"""Stored drafts and comments, parsed leniently: any program may write to their collections, and a
record that is neither must not take a page, a subscription or a proposal along.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from bson import ObjectId

from revstream.model.definition import Entity, Scalar
from revstream.resolvers.values.json_value import REFUSED
from revstream.resolvers.values.output import ID_TO_API, INT_LIMIT, any_id
from revstream.streams.core.log_throttle import LogThrottle

__all__ = ["InvalidRecord", "RecordParser", "document_id", "text_or_none", "value_of"]

log = logging.getLogger(__name__)

T = TypeVar("T")


class InvalidRecord(ValueError):
    """A record that is neither a draft nor a comment; the message names no stored value."""


class RecordParser(Generic[T]):
    """Parse records of one kind; those that are none are logged, now and then.

    Args:
        kind: suffix of the collections.
        parse: raises InvalidRecord.
    """

    def __init__(self, kind: str, parse: Callable[[Entity, Mapping[str, Any]], T]) -> None:
        self._kind = kind
        self._parse = parse
        self._invalid = LogThrottle(log, "record is neither a draft nor a comment: left out")

    def __call__(self, entity: Entity, record: Mapping[str, Any]) -> T | None:
        """Return None for a record that is none."""
        try:
            value_of(record, "_id", ObjectId)
            return self._parse(entity, record)
        except InvalidRecord as exc:
            self._invalid.note(
                collection=f"{entity.collection}.{self._kind}",
                key=any_id(record.get("_id")),
                reason=str(exc),
            )
            return None


def value_of(record: Mapping[str, Any], name: str, *kinds: type | None) -> Any:
    """Return the value of a field.

    Args:
        kinds: classes that it may have; None: it may be null or missing.

    Raises:
        InvalidRecord: it has none of them, or is an integer that is no `Int`.
    """
    value = record.get(name)
    if value is None and None in kinds:
        return None
    classes = tuple(each for each in kinds if each is not None)
    fits = isinstance(value, classes) and not isinstance(value, bool)
    if not fits or (isinstance(value, int) and not -INT_LIMIT <= value < INT_LIMIT):
        expected = " or ".join("null" if each is None else each.__name__ for each in kinds)
        found = "nothing" if value is None else type(value).__name__
        raise InvalidRecord(f"{name}: {found}, expected {expected}")
    return value


def text_or_none(record: Mapping[str, Any], name: str) -> str | None:
    """Return a value as text, whatever it is: of facts that a program may give as it likes."""
    value = record.get(name)
    return None if value is None else any_id(value)


def document_id(entity: Entity, record: Mapping[str, Any]) -> Any:
    """Return the `_id` of the document that a record is of.

    Raises:
        InvalidRecord: no document of the entity can have it.
    """
    scalar = entity.id.stored_scalar or Scalar.ID
    if "doc" not in record or ID_TO_API[scalar](record["doc"]) is REFUSED:
        raise InvalidRecord(f"doc: not a document id, expected {scalar.value}")
    return record["doc"]
