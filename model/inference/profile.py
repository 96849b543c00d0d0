"""Profiles of stored values: how often a field has which kind of value.

Pure: `streams.maintenance.document_profile` classifies BSON values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

__all__ = ["MOST_DAYS", "MOST_VARIANTS", "FieldProfile", "Kind", "ObjectProfile"]

# Texts that are remembered: an enum has fewer.
MOST_TEXTS = 20
# Longer texts are no values of an enum.
LONGEST_TEXT = 40
# Days that are remembered: dates of as many are days without a time.
MOST_DAYS = 10
# Whole numbers that are remembered: enough to tell a constant.
MOST_NUMBERS = 2
# Members of a union.
MOST_VARIANTS = 12
# Such as the name of a class with its package.
_LONGEST_VARIANT = 200


class Kind(Enum):
    """Kind of a stored value; the value is the word in comments."""

    NULL = "null"
    STRING = "string"
    INT = "int"
    LONG = "long"
    HUGE = "long beyond 2^53"
    FLOAT = "double"
    NOT_FINITE = "NaN or infinity"
    DECIMAL = "decimal"
    BOOLEAN = "boolean"
    DATETIME = "date"
    DAY = "day"
    OBJECTID = "objectId"
    UUID = "UUID"
    BINARY = "binary"
    TIMESTAMP = "timestamp"
    POINT = "point"
    OBJECT = "object"
    LIST = "list"
    OTHER = "other"


@dataclass(slots=True)
class FieldProfile:
    """Observed values of one field, or the items of its lists.

    Values of rare documents, which were looked for, do not count in the shares.

    Attributes:
        count: Observed values of the sample, null included.
        kinds: Number of values by kind; 0 for a kind that only rare documents have.
        rarely_missing: Whether a rare document lacks the field.
        declared: All values that the collection's validator allows, if it has a list of texts.
        texts: Number of values by text, of at most `MOST_TEXTS` short texts; None if there are more
            or longer ones.
        days: Different days of dates that are midnight in UTC, at most `MOST_DAYS`; None if a date
            is not.
        numbers: Different whole numbers, at most `MOST_NUMBERS`.
        fields: Profile of the values that are objects.
        items: Profile of the items of the values that are lists.
    """

    count: int = 0
    kinds: dict[Kind, int] = field(default_factory=dict)
    rarely_missing: bool = False
    declared: tuple[str, ...] = ()
    texts: dict[str, int] | None = field(default_factory=dict)
    days: set[int] | None = field(default_factory=set)
    numbers: set[int] = field(default_factory=set)
    fields: ObjectProfile | None = None
    items: FieldProfile | None = None

    def add(self, kind: Kind, *, rare: bool = False) -> None:
        """Count a value."""
        self.count += not rare
        self.kinds[kind] = self.kinds.get(kind, 0) + (not rare)

    def add_text(self, text: str, *, rare: bool = False) -> None:
        """Count a text."""
        self.add(Kind.STRING, rare=rare)
        if self.texts is None:
            return
        if len(text) > LONGEST_TEXT or (text not in self.texts and len(self.texts) == MOST_TEXTS):
            self.texts = None
        else:
            self.texts[text] = self.texts.get(text, 0) + (not rare)

    def add_date(self, day: int | None, *, rare: bool = False) -> None:
        """Count a date.

        Args:
            day: Number of the day; None if the date has a time.
        """
        self.add(Kind.DATETIME, rare=rare)
        if day is None:
            self.days = None
        elif self.days is not None and len(self.days) < MOST_DAYS:
            self.days.add(day)

    def add_number(self, kind: Kind, number: int, *, rare: bool = False) -> None:
        """Count a whole number."""
        self.add(kind, rare=rare)
        if len(self.numbers) < MOST_NUMBERS:
            self.numbers.add(number)

    def object_fields(self) -> ObjectProfile:
        """Return the profile of the values that are objects."""
        if self.fields is None:
            self.fields = ObjectProfile()
        return self.fields

    def list_items(self) -> FieldProfile:
        """Return the profile of the items of lists."""
        if self.items is None:
            self.items = FieldProfile()
        return self.items

    def kinds_of_values(self) -> frozenset[Kind]:
        """Return the kinds, without null."""
        return frozenset(self.kinds) - {Kind.NULL}


@dataclass(slots=True)
class ObjectProfile:
    """Observed objects: documents of a collection, or embedded ones.

    Attributes:
        count: Observed objects of the sample.
        fields: Profiles by stored name, in the order of first sight.
        discriminators: Fields that may tell the types of whole documents apart; others do for
            embedded ones.
        variants: Profiles of the objects with one text in a field that may tell types apart, by
            field and text; more than `MOST_VARIANTS`, and long texts, are one, with an empty text.
    """

    count: int = 0
    fields: dict[str, FieldProfile] = field(default_factory=dict)
    discriminators: frozenset[str] = frozenset()
    variants: dict[str, dict[str, ObjectProfile]] = field(default_factory=dict)

    def field_profile(self, name: str) -> FieldProfile:
        """Return the profile of a field."""
        found = self.fields.get(name)
        if found is None:
            found = self.fields[name] = FieldProfile()
        return found

    def variant(self, name: str, text: str) -> ObjectProfile:
        """Return the profile of the objects with a text in a field."""
        known = self.variants.setdefault(name, {})
        if len(text) > _LONGEST_VARIANT or (text not in known and len(known) >= MOST_VARIANTS):
            text = ""
        return known.setdefault(text, ObjectProfile())
