"""Check what `@collection` says: the collection, the list's name, the version field, the
partitions.
"""

from __future__ import annotations

import re

from revstream.model.compiler.parsing.declarations import Declarations, TypeDeclaration
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.compiler.validation.fields import KEPT_BESIDE, stored_name_problem
from revstream.model.compiler.validation.retention import check_keep
from revstream.model.naming import camel_case, is_name, lower_first

__all__ = ["OWN_SUFFIXES", "check_collections", "name_problem", "plural", "singular"]

OWN_SUFFIXES = (".versions", ".overflow", ".drafts", ".comments")
"""What revstream keeps beside a collection, by what it adds to the name."""

OWN_PREFIX = "revstream."

# MongoDB allows 255 bytes for `<database>.<collection>`; 64 go to the database and its dot, 9 to
# ".versions".
_MAXIMUM_BYTES = 255 - 64 - 9

_MOST_PARTITIONS = 64

# As the names of a partition's lease and checkpoint end.
_PARTITION = re.compile(r":[0-9]+/[0-9]+\Z")


def singular(type_: TypeDeclaration) -> str:
    """The root field of one document."""
    return lower_first(type_.name)


def plural(type_: TypeDeclaration) -> str | None:
    """The root field of the list; None where no name comes of the collection's, or it is broken."""
    directive = type_.directives.one("collection")
    if directive is None:
        return None
    given = directive.text("plural")
    if given is not None or "plural" not in directive.arguments:
        return given
    return camel_case(directive.text("name") or "")


def check_collections(declarations: Declarations) -> None:
    """Report what is wrong with each `@collection`, and between them."""
    owners: dict[str, TypeDeclaration] = {}
    for type_ in declarations.entities:
        directive = type_.directives.one("collection")
        assert directive is not None
        _check_version(type_, directive)
        _check_partitions(type_, directive)
        check_keep(type_, directive)
        name = directive.text("name")
        if name is None:
            continue
        problem = name_problem(name)
        if problem:
            type_.place.error(directive.at("name"), problem, "name another collection")
            continue
        _check_plural(type_, directive, name)
        owner = owners.setdefault(name, type_)
        if owner is not type_:
            type_.place.error(
                directive.at("name"),
                f'the collection "{name}" already belongs to {owner.name}',
                "name another collection, or remove one of the types",
            )
    _check_own_collections(owners)


def _check_own_collections(owners: dict[str, TypeDeclaration]) -> None:
    for name, type_ in owners.items():
        for suffix in OWN_SUFFIXES:
            owner = owners.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            directive = type_.directives.one("collection")
            if owner and directive:
                kept = suffix.removeprefix(".")
                type_.place.error(
                    directive.at("name"),
                    f'the collection "{name}" is used by revstream for the {kept} of {owner.name}',
                    f"remove the type; the API serves the {kept} of {owner.name} without it",
                )


def name_problem(name: str) -> str | None:
    """Why no collection can have that name, or none of a user; None where it can."""
    shown = name.replace("\0", "\\0")
    if not name:
        return "a collection's name cannot be empty"
    for character, word in (("$", "$"), ("\0", "a NUL character")):
        if character in name:
            return f'the collection\'s name "{shown}" has {word}, which MongoDB does not allow'
    if name.startswith(".") or name.endswith(".") or ".." in name:
        return f'the collection\'s name "{shown}" has an empty part beside a dot'
    if name.startswith("system."):
        return f'the collection "{shown}" would be MongoDB\'s own: it begins with "system."'
    if name.startswith(OWN_PREFIX):
        return f'the collection "{shown}" would be revstream\'s own: it begins with "{OWN_PREFIX}"'
    if _PARTITION.search(name):
        return f'the collection\'s name "{shown}" ends like the name of a partition'
    size = len(name.encode())
    if size > _MAXIMUM_BYTES:
        return f"bytes of the collection's name: {size}, maximum is {_MAXIMUM_BYTES}"
    return None


def _check_plural(type_: TypeDeclaration, directive: DirectiveUsage, name: str) -> None:
    list_name = plural(type_)
    if "plural" not in directive.arguments:
        return
    if list_name is None:
        type_.place.error(
            directive.at("name"),
            f'no name for the list can be derived from the collection "{name}"',
            'give one with @collection(plural: "…")',
        )
    elif not is_name(list_name) or list_name.startswith("__"):
        type_.place.error(
            directive.at("plural"),
            f'the plural "{list_name}" is not a GraphQL name',
            "write letters, digits and _ only, beginning with a letter",
        )
    elif list_name == singular(type_):
        type_.place.error(
            directive.at("plural"),
            f'one document and the list would both be called "{list_name}"',
            f'name the list with @collection(plural: "{list_name}List"), or another plural',
        )


def _check_version(type_: TypeDeclaration, directive: DirectiveUsage) -> None:
    version = directive.text("version")
    if version is None:
        return
    problem = stored_name_problem(version)
    if version in ("_id", *KEPT_BESIDE):
        problem = f'"{version}" is taken'
    if problem:
        type_.place.error(
            directive.at("version"),
            f'the version field is "{version}": {problem}',
            "name the field that counts writes, or write version: null where there is none",
        )


def _check_partitions(type_: TypeDeclaration, directive: DirectiveUsage) -> None:
    count = directive.number("partitions")
    if count is not None and not 1 <= count <= _MOST_PARTITIONS:
        type_.place.error(
            directive.at("partitions"),
            f"partitions: {count}, expected 1 to {_MOST_PARTITIONS}",
            f"write a number from 1 to {_MOST_PARTITIONS}",
        )
