"""Objects with the same attributes as another one: as `copy.copy`, at a third of its price.

Up to thirty attributes that are set one by one lie in the object itself: 0.3 KB. In a dictionary
that was filled from another one they may take 1.6 KB, which is much for what each subscriber has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["cloner"]

T = TypeVar("T")


def cloner(kind: type[T], names: Iterable[str]) -> Callable[[T], T]:
    """Args:
    names: of all attributes that they have.
    """
    lines = [f"    made.{name} = given.{name}" for name in names]
    text = "\n".join(["def cloned(given):", "    made = new(kind)", *lines, "    return made"])
    known: dict[str, Any] = {"new": object.__new__, "kind": kind}
    exec(compile(text, "<clone>", "exec"), known)
    made: Callable[[T], T] = known["cloned"]
    return made
