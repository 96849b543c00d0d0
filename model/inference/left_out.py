"""Fields of documents that a model leaves out."""

from __future__ import annotations

from revstream.model.compiler.validation.fields import KEPT_BESIDE, stored_name_problem

__all__ = ["LEFT_OUT", "is_left_out"]

LEFT_OUT = {
    "__v": "Mongoose's version key",
    "_class": "Spring Data's class name",
    "_class_id": "Beanie's class name",
}
"""Fields of libraries that say nothing about the data, with the reason."""


def is_left_out(name: str) -> bool:
    """Return whether a field of that stored name is in no model."""
    return name in KEPT_BESIDE or name in LEFT_OUT or bool(stored_name_problem(name))
