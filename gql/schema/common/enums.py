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
            "BASELINE": "It was there before its history began.",
            "INSERT": "It was inserted.",
            "UPDATE": "Some of its fields were changed.",
            "REPLACE": "It was replaced as a whole.",
            "DELETE": "It was deleted.",
        },
        "What was done to a document.",
    )
    types.add_enum(
        "SortDirection",
        {
            "ASC": "The smallest first; what has no value comes before all others.",
            "DESC": "The largest first.",
        },
        "Which end comes first.",
    )
    types.add_enum(
        "ChangeKind",
        {
            "SNAPSHOT": "A document as it was when the subscription began.",
            "CHANGE": "A write.",
            "CHECKPOINT": "Nothing to see: a fresher token to hold.",
        },
        "What an event of a subscription is about.",
    )
    types.add_enum(
        "Transition",
        {
            "ENTER": "The document matches now, and did not before.",
            "STAY": "It matched before and still does.",
            "LEAVE": "It matched before and no longer does, or was deleted.",
        },
        "What a change means to the subscription's filter.",
    )
    types.add_enum(
        "FieldChangeKind",
        {
            "ADDED": "There was no value before.",
            "REMOVED": "There is no value any more.",
            "CHANGED": "There is another value.",
        },
        "How a field differs.",
    )
    types.add_enum(
        "DraftStatus",
        {
            "PROPOSED": "Nobody has decided about it yet.",
            "PUBLISHED": "It has become a version, or part of one.",
            "REJECTED": "It will not become one.",
        },
        "What has become of a draft.",
    )
