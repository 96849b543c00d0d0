"""Unions of embedded documents: a text in one of their fields tells their shapes apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from revstream.model.inference.profile import MOST_VARIANTS, Kind, ObjectProfile

__all__ = ["UnionProfile", "choose_union", "may_discriminate"]

# Other fields tell shapes apart by chance, such as the status of an order.
_NAME = re.compile(
    r"_?_?(type|kind|class|cls|t)|@type|discriminator|.*(Type|Kind|_type|_kind)", re.ASCII
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnionProfile:
    """Profiles of the members, by the text in the field that tells them apart."""

    discriminator: str
    members: Mapping[str, ObjectProfile]


def may_discriminate(name: str) -> bool:
    """Return whether a field is named like one that tells types apart."""
    return _NAME.fullmatch(name) is not None


def choose_union(profile: ObjectProfile) -> UnionProfile | None:
    """Return the union that embedded documents are of; None if they have one shape."""
    for name, members in profile.variants.items():
        if _tells_apart(profile, name, members):
            return UnionProfile(discriminator=name, members=members)
    return None


def _tells_apart(profile: ObjectProfile, name: str, members: Mapping[str, ObjectProfile]) -> bool:
    """Return whether each document has the text, and most of what only some types have is always
    there in these.
    """
    field = profile.fields[name]
    always = field.count == profile.count and not field.rarely_missing
    if not always or field.kinds.keys() != {Kind.STRING}:
        return False
    if not 1 < len(members) <= MOST_VARIANTS or not all(members):
        return False
    special = [
        each.count == member.count
        for member in members.values()
        for other, each in member.fields.items()
        if other != name and not all(other in one.fields for one in members.values())
    ]
    return bool(special) and 2 * sum(special) >= len(special)
