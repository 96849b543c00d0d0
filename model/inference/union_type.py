"""Types of documents that a text in one of their fields tells apart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from revstream.model.inference.left_out import is_left_out
from revstream.model.inference.profile import MOST_VARIANTS, Kind, ObjectProfile
from revstream.model.inference.relation import is_named_after

__all__ = [
    "UnionProfile",
    "choose_interface",
    "choose_union",
    "document_discriminators",
    "may_discriminate",
    "short_name",
]

# Fields in which libraries store the class of a whole document.
_OF_LIBRARIES = frozenset({"__t", "_t", "_type", "_kind", "_class", "_class_id", "_cls"})
_PLAIN = frozenset({"type", "kind"})
# Documents of each type, where the field is not one of a library.
_LEAST_SEEN = 10
# Of embedded documents. Other fields tell shapes apart by chance, such as the status of an order.
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


def document_discriminators(collections: Iterable[str]) -> frozenset[str]:
    """Return the fields that may tell the types of whole documents apart.

    Args:
        collections: Of the database; a field that is named after one of them is a reference.
    """
    names = [*collections]
    return _OF_LIBRARIES | {
        each
        for each in _PLAIN
        if not any(is_named_after((each,), name, own=False) for name in names)
    }


def may_discriminate(name: str) -> bool:
    """Return whether a field is named like one that tells the types of embedded documents apart."""
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
    # Those of libraries come first.
    for name, members in sorted(profile.variants.items(), key=lambda each: each[0] in _PLAIN):
        by_library = name in _OF_LIBRARIES
        least = 0.5 if by_library else 1.0
        usual = by_library or all(each.count >= _LEAST_SEEN for each in members.values())
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
    """Return the fields of a model that some members have, and others have not."""
    names = [member.fields.keys() for member in members.values()]
    found = set().union(*names) - set(names[0]).intersection(*names)
    return {each for each in found if not is_left_out(each) and _has_values(members, each)}


def _has_values(members: Mapping[str, ObjectProfile], name: str) -> bool:
    fields = (member.fields.get(name) for member in members.values())
    return any(each is not None and each.kinds_of_values() for each in fields)


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
        each.count == member.count and not each.rarely_missing
        for member in members.values()
        for other, each in member.fields.items()
        if other in special
    ]
    return bool(there) and sum(there) >= least * len(there)
