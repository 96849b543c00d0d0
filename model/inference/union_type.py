"""Types of documents that a text in one of their fields tells apart."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from revstream.model.inference.profile import MOST_VARIANTS, Kind, ObjectProfile

__all__ = ["UnionProfile", "choose_interface", "choose_union", "may_discriminate", "short_name"]

# Documents of each type, on average, where the field is not one of a library.
_LEAST_SEEN = 10
# Other fields tell shapes apart by chance, such as the status of an order.
_NAME = re.compile(
    r"_?_?(type|kind|class|class_id|cls|t)|@type|discriminator|.*(Type|Kind|_type|_kind)", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionProfile:
    """Profiles of the members, by the text in the field that tells them apart.

    Attributes:
        shared: Profile of the fields of an interface, which are not among those of the members.
    """

    discriminator: str
    members: Mapping[str, ObjectProfile]
    shared: ObjectProfile = field(default_factory=ObjectProfile)


def short_name(text: str) -> str:
    """Return the last word of a text, such as the name of a class without its package."""
    return re.split(r"[.$:/\\]", text)[-1]


def may_discriminate(name: str) -> bool:
    """Return whether a field is named like one that tells types apart."""
    return _NAME.fullmatch(name) is not None


def choose_union(profile: ObjectProfile) -> UnionProfile | None:
    """Return the union that embedded documents are of; None if they have one shape."""
    for name, members in profile.variants.items():
        if _tells_apart(profile, name, members):
            return UnionProfile(discriminator=name, members=members)
    return None


def choose_interface(profile: ObjectProfile) -> UnionProfile | None:
    """Return the types of the documents of a collection; None if they have one shape.

    A document of a type that is added later is not served. So the text is the name of a class, in
    the field of a library, or all that only some types have is always there in these.
    """
    for name, members in profile.variants.items():
        by_library = name.startswith("_")
        least = 0.5 if by_library else 1.0
        usual = by_library or profile.count >= _LEAST_SEEN * len(members)
        short = {short_name(text) for text in members}
        if usual and len(short) == len(members) and _tells_apart(profile, name, members, least):
            return _interface(profile, name, members)
    return None


def _interface(
    profile: ObjectProfile, name: str, members: Mapping[str, ObjectProfile]
) -> UnionProfile:
    special = _special(members)
    shared = profile.fields.keys() - special - {name}
    return UnionProfile(
        discriminator=name,
        shared=_with_fields(profile, shared),
        members={text: _with_fields(member, special) for text, member in members.items()},
    )


def _with_fields(profile: ObjectProfile, names: Set[str]) -> ObjectProfile:
    fields = {name: each for name, each in profile.fields.items() if name in names}
    return ObjectProfile(count=profile.count, fields=fields)


def _special(members: Mapping[str, ObjectProfile]) -> set[str]:
    """Return the fields that some members have, and others have not."""
    names = [member.fields.keys() for member in members.values()]
    return set().union(*names) - set(names[0]).intersection(*names)


def _tells_apart(
    profile: ObjectProfile, name: str, members: Mapping[str, ObjectProfile], least: float = 0.5
) -> bool:
    """Return whether each document has the text, and what only some types have is always there in
    these.

    Args:
        least: Share of these fields that are always there.
    """
    field = profile.fields[name]
    always = field.count == profile.count and not field.rarely_missing
    if not always or field.kinds.keys() != {Kind.STRING}:
        return False
    if not 1 < len(members) <= MOST_VARIANTS or not all(members):
        return False
    special = _special(members) - {name}
    there = [
        each.count == member.count
        for member in members.values()
        for other, each in member.fields.items()
        if other in special
    ]
    return bool(there) and sum(there) >= least * len(there)
