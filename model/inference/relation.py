"""Relations between collections: fields that may hold ids of other collections.

The names and the kinds of values make candidates; the database says which ids exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from revstream.model.inference.naming_words import field_name, reference_base, singular_word
from revstream.model.inference.profile import FieldProfile, Kind, ObjectProfile

__all__ = ["Candidate", "Relation", "candidates", "is_named_after"]

_IDS = frozenset({Kind.STRING, Kind.INT, Kind.LONG, Kind.OBJECTID, Kind.UUID})
# Ids that no other value is mistaken for.
_UNMISTAKABLE = frozenset({Kind.OBJECTID, Kind.UUID})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Field that may hold ids of another collection.

    Attributes:
        path: Stored names from the document to the field.
        lists: Whether the field is a list of ids.
        target: The other collection.
        named: Whether the field's name says so.
    """

    collection: str
    path: tuple[str, ...]
    lists: bool
    target: str
    named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """Field that holds ids of another collection; `found` is the share of them that exists."""

    candidate: Candidate
    found: float


def candidates(profiles: Mapping[str, ObjectProfile]) -> list[Candidate]:
    """Return all candidates; those whose names say so come first."""
    ids = {
        name: profile.fields["_id"].kinds_of_values()
        for name, profile in profiles.items()
        if "_id" in profile.fields
    }
    found = []
    for collection, profile in profiles.items():
        for path, kinds, lists in _fields(profile, ()):
            for target, kinds_of_id in ids.items():
                named = is_named_after(path, target, own=target == collection)
                if kinds <= _IDS and kinds == kinds_of_id and (named or kinds <= _UNMISTAKABLE):
                    found.append(
                        Candidate(
                            collection=collection,
                            path=path,
                            lists=lists,
                            target=target,
                            named=named,
                        )
                    )
    return sorted(found, key=lambda each: not each.named)


def _fields(
    profile: ObjectProfile, before: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], frozenset[Kind], bool]]:
    """Yield path, kinds, and whether it is a list, of each field with values, `_id` excepted."""
    for name, each in profile.fields.items():
        path = (*before, name)
        kinds = each.kinds_of_values()
        if name == "_id" or not kinds:
            continue
        if kinds == {Kind.LIST}:
            yield from _items(each, path)
        elif kinds == {Kind.OBJECT} and each.fields is not None:
            yield from _fields(each.fields, path)
        else:
            yield path, kinds, False


def _items(
    field: FieldProfile, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], frozenset[Kind], bool]]:
    items = field.items
    kinds = items.kinds_of_values() if items else frozenset()
    if items is None or not kinds:
        return
    if kinds == {Kind.OBJECT} and items.fields is not None:
        yield from _fields(items.fields, path)
    else:
        yield path, kinds, True


def is_named_after(path: tuple[str, ...], target: str, *, own: bool) -> bool:
    """Return whether a field is named after a collection: `supplierId`, `supplier_id`, `supplier`,
    `suppliers`; `parentId` for one of the same collection.
    """
    name = field_name(path[-1])
    base = reference_base(name) or name
    wanted = singular_word(field_name(target)).lower()
    word = singular_word(base).lower()
    if own and word in ("parent", "previous", "root"):
        return reference_base(name) is not None
    # `billingAddressId` leads to `addresses`.
    return word == wanted or (word.endswith(wanted) and base[-len(wanted) :][:1].isupper())
