"""Make the names of the API from those of the model, and guess which name was meant.

type Product @collection(name: "order_lines")  ->  singular `product`, plural `orderLines`
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "camel_case",
    "did_you_mean",
    "is_name",
    "lower_first",
    "suggestion",
    "upper_first",
    "with_article",
]

_NAME = re.compile(r"[_A-Za-z][_0-9A-Za-z]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9]+", re.ASCII)

# Leading capitals of one word: `URL` in `URLs`, `URL` and `URLEntry` (its E begins the next word),
# `P` in `Product`.
_CAPITALS = re.compile(r"[A-Z]+(?=s(?![a-z]))|[A-Z]+(?![a-z])|[A-Z]")

# Names that are spoken with a vowel first.
_AN = re.compile(r"[ai]|o(?!ne)|e(?!u)|u(?!n[ei]|s[aeiu]|ti|uid|rl)|hour|hono", re.IGNORECASE)

# Cut-off of difflib's ratio: `suplier` finds `supplier`, `contains` does not find `notIn` (0.62).
_CLOSE = 0.65


def is_name(text: str) -> bool:
    """Return whether a text is a valid name in GraphQL."""
    return _NAME.fullmatch(text) is not None


def lower_first(name: str) -> str:
    """`Product` -> `product`, `URLEntry` -> `urlEntry`, `SKU` -> `sku`."""
    capitals = _CAPITALS.match(name)
    return name[: capitals.end()].lower() + name[capitals.end() :] if capitals else name


def upper_first(name: str) -> str:
    """`readings` -> `Readings`."""
    return name[:1].upper() + name[1:]


def with_article(name: str) -> str:
    """Return a name with its indefinite article."""
    return f"{'an' if _AN.match(name) else 'a'} {name}"


def camel_case(collection: str) -> str | None:
    """`order_lines`, `order-lines`, `OrderLines` -> `orderLines`; None where none comes of it."""
    if not collection.isascii():
        return None
    # Capitals separate no words in a name that has nothing else.
    text = collection if any(each.islower() for each in collection) else collection.lower()
    words = _WORD.findall(text)
    name = "".join([*map(lower_first, words[:1]), *map(upper_first, words[1:])])
    return name if is_name(name) else None


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, whatever its case; None where none is close."""
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=_CLOSE)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return advice for an unknown name: the likely one, or `otherwise`."""
    meant = suggestion(name, known)
    return f'did you mean "{meant}"?' if meant else otherwise
