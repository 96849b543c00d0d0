"""Enums that are the same for every model.

Their values are plain strings in Python, too.
"""

from __future__ import annotations

from revstream.gql.schema.common.type_builder import Types

__all__ = ["define_enums"]


def define_enums(types: Types) -> None:
    """Define the enums that do not depend on the model."""
    types.add_enum(
        "Operation",
        {
            "BASELINE": "The document existed before its history began.",
            "INSERT": "The document was inserted.",
            "UPDATE": "Some fields of the document were changed.",
            "REPLACE": "The document was replaced as a whole.",
            "DELETE": "The document was deleted.",
        },
        "The write that created a version.",
    )
    types.add_enum(
        "SortDirection",
        {
            "ASC": "Smallest value first; documents without a value come before all others.",
            "DESC": "Largest value first.",
        },
        "The direction of an order.",
    )
    types.add_enum(
        "ChangeKind",
        {
            "SNAPSHOT": "A document as it was when the subscription began.",
            "CHANGE": "A write to a document.",
            "CHECKPOINT": "No change: a newer resume token for the client to store.",
        },
        "The kind of an event of a subscription.",
    )
    types.add_enum(
        "Transition",
        {
            "ENTER": "The document matches now, and did not match before.",
            "STAY": "The document matched before and still matches.",
            "LEAVE": "The document matched before and no longer matches, or it was deleted.",
        },
        "The effect of a change on the result of the subscription's filter.",
    )
    types.add_enum(
        "FieldChangeKind",
        {
            "ADDED": "The field had no value before.",
            "REMOVED": "The field no longer has a value.",
            "CHANGED": "The field has another value.",
        },
        "The kind of difference between two states of a field.",
    )
    types.add_enum(
        "DraftStatus",
        {
            "PROPOSED": "The draft is not decided yet.",
            "PUBLISHED": "The draft became a version, or part of one.",
            "REJECTED": "The draft was rejected.",
        },
        "The status of a draft.",
    )
