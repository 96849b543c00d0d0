"""Names of types and fields, from those of collections and stored fields."""

from __future__ import annotations

import re
import unicodedata

from revstream.model.naming import camel_case, is_name, upper_first

__all__ = [
    "enum_value",
    "field_name",
    "plural_word",
    "reference_base",
    "singular_word",
    "type_name",
]

_IRREGULAR = {
    "children": "child",
    "data": "datum",
    "feet": "foot",
    "indices": "index",
    "matrices": "matrix",
    "media": "medium",
    "men": "man",
    "mice": "mouse",
    "movies": "movie",
    "people": "person",
    "women": "woman",
}
_LETTERS = str.maketrans({"ß": "ss", "æ": "ae", "Æ": "Ae", "œ": "oe", "ø": "o", "Ø": "O", "ł": "l"})
_UNCHANGED = ("news", "series", "species", "status", "address", "analysis", "basis", "access")
# Endings of plurals and of their singulars; the first that fits is used.
_ENDINGS = (
    ("ies", "y"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("sses", "ss"),
    ("uses", "us"),
    ("xes", "x"),
    ("zes", "ze"),
    ("ss", "ss"),
    ("us", "us"),
    ("is", "is"),
    ("s", ""),
)
_ID_SUFFIX = re.compile(r"(?<=[a-z0-9])(?:Ids?|IDs?|Uuids?|UUIDs?|Refs?)$")
_WORDS = re.compile(r"[A-Za-z0-9]+")
_NOT_OF_NAMES = re.compile(r"[^A-Za-z0-9]+")


def singular_word(name: str) -> str:
    """Return the singular of a name's last word: `orderLines` gives `orderLine`."""
    last = re.search(r"[A-Z]?[a-z0-9]*$", name)
    start = last.start() if last else 0
    before, word = name[:start], name[start:]
    lower = word.lower()
    if lower in _IRREGULAR:
        found = _IRREGULAR[lower]
        return before + (upper_first(found) if word[:1].isupper() else found)
    if lower.endswith(_UNCHANGED):
        return name
    for ending, instead in _ENDINGS:
        if lower.endswith(ending) and len(lower) > len(ending) + 1:
            return before + word[: len(word) - len(ending)] + instead
    return name


def plural_word(name: str) -> str:
    """Return the plural of a singular name; with `List` if it has no other, such as `news`."""
    lower = name.lower()
    if lower.endswith(_UNCHANGED) and not lower.endswith("address"):
        return f"{name}List"
    if lower.endswith(("s", "x", "z", "ch", "sh")):
        return f"{name}es"
    if lower.endswith("y") and lower[-2:-1] not in "aeiou":
        return f"{name[:-1]}ies"
    return f"{name}s"


def type_name(collection: str) -> str:
    """Return the name of a collection's type: `order_lines` gives `OrderLine`."""
    return upper_first(singular_word(field_name(collection)))


def field_name(stored: str) -> str:
    """Return the name in the API of a stored field, in camelCase: `added_at` gives `addedAt`."""
    # Letters that have no decomposition would be lost.
    plain = stored.translate(_LETTERS)
    plain = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    found = camel_case(plain)
    if found is None:
        words = _WORDS.findall(plain)
        found = camel_case("field " + " ".join(words)) or "field"
    return found


def reference_base(name: str) -> str | None:
    """Return the name of the reference by an id field: `supplierId` gives `supplier`; None if the
    name does not end as that of an id.
    """
    base = _ID_SUFFIX.sub("", name)
    return base if base and base != name else None


def enum_value(text: str) -> str:
    """Return the name of an enum's value: `in-progress` and `inProgress` give `IN_PROGRESS`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text)
    found = _NOT_OF_NAMES.sub("_", words).strip("_").upper()
    return found if is_name(found) else f"VALUE_{found}"
