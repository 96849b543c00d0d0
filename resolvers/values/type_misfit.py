"""The error for a document of an entity that is of no type of the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from revstream.model.definition import Discriminator
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.values.output import ValueLocation, any_id, describe_value

__all__ = ["type_misfit"]


def type_misfit(
    place: ValueLocation, union: Discriminator, document: Mapping[str, Any]
) -> DocumentMisfit:
    """Create the error, whose mend names what is stored for the types of the model."""
    kind = document.get(union.stored)
    values = ", ".join(each.value for each in union.members)
    mend = f"store one of {values} in {union.stored}"
    return DocumentMisfit(
        collection=place.collection,
        document_id=any_id(place.document_id),
        field=place.path + union.name,
        found=describe_value(kind),
        expected=f"one of {values}",
        mend=f"{mend}, or declare a type for it" if isinstance(kind, str) else mend,
        past=place.past,
    )
