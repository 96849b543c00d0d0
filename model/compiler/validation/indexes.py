"""Read `@index` and `@unique`: which stored paths they cover, and whether MongoDB can do it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from graphql.language import Node

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    FieldDeclaration,
    TypeDeclaration,
)
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.definition import Index, Scalar
from revstream.model.naming import did_you_mean

__all__ = ["check_indexes", "follow", "indexes_of", "path_problem", "stored_path"]

# "A single compound index can contain up to 32 fields" (MongoDB's manual, limits and thresholds).
_MAXIMUM_FIELDS = 32


@dataclass(frozen=True, slots=True)
class _Path:
    """A dotted path as far as it could be followed, and the word that leads nowhere."""

    fields: tuple[FieldDeclaration, ...]
    lost: str | None = None
    lost_in: TypeDeclaration | None = None


def indexes_of(type_: TypeDeclaration, declarations: Declarations) -> tuple[Index, ...]:
    """The indexes of an entity without mistakes: of `@index`, then of `@unique`, as written."""
    written = tuple(
        Index(
            fields=tuple(
                stored_path(type_, name, declarations) for name in directive.texts("fields") or ()
            ),
            unique=directive.flag("unique"),
            points=tuple(
                stored_path(type_, name, declarations)
                for name in directive.texts("fields") or ()
                if _is_point(type_, name, declarations)
            ),
        )
        for directive in type_.directives.all("index")
    )
    unique = tuple(
        Index(fields=(each.stored,), unique=True)
        for each in type_.stored_fields
        if "unique" in each.directives
    )
    return written + unique


def check_indexes(declarations: Declarations) -> None:
    """Report what is wrong with each `@index` and `@unique`, and fields that are indexed twice."""
    for type_ in declarations.types.values():
        first_uses: dict[tuple[str, ...], str] = {}
        for directive in type_.directives.all("index"):
            if not type_.is_entity:
                type_.place.error(
                    directive.node,
                    f"@index: {type_.name} is embedded, expected an entity",
                    "put it on the entity, with the path to the field: dimensions.width",
                )
                continue
            names = directive.texts("fields")
            if (
                names is not None
                and _check_index(type_, names, directive.at("fields"), declarations)
                and _check_points(type_, names, directive, declarations)
            ):
                shown = f"@index(fields: [{', '.join(f'{each!r}' for each in names)}])".replace(
                    "'", '"'
                )
                stored = tuple(stored_path(type_, each, declarations) for each in names)
                _check_twice(type_, stored, shown, directive.node, first_uses)
        for field in type_.stored_fields:
            unique = field.directives.one("unique")
            if (
                unique
                and field.name != "id"
                and _check_unique(type_, field, unique.node, declarations)
            ):
                _check_twice(
                    type_, (field.stored,), f'@unique on "{field.name}"', unique.node, first_uses
                )


def _check_twice(
    type_: TypeDeclaration,
    stored: tuple[str, ...],
    shown: str,
    node: Node,
    first_uses: dict[tuple[str, ...], str],
) -> None:
    first = first_uses.setdefault(stored, shown)
    if first is not shown:
        both = (
            f"{shown}: twice, expected once"
            if first == shown
            else f"{shown} and {first} are the same"
        )
        type_.place.error(node, both, "remove one of them")


def _check_unique(
    type_: TypeDeclaration, field: FieldDeclaration, node: Node, declarations: Declarations
) -> bool:
    if not type_.is_entity:
        field.place.error(
            node,
            f"@unique: {type_.name} is embedded, expected an entity",
            f'write it on the entity: @index(fields: ["….{field.name}"], unique: true)',
        )
        return False
    if _is_whole(field, declarations):
        field.place.error(
            node,
            f"@unique: {field.type_text}, expected a single value",
            "put it on a field with a single value",
        )
        return False
    return True


def _check_index(
    type_: TypeDeclaration, names: tuple[str, ...], node: Node, declarations: Declarations
) -> bool:
    """Report what is wrong; True where nothing is."""
    place = type_.place
    if not names:
        place.error(node, "@index: no fields, expected at least one", "name at least one")
        return False
    if [stored_path(type_, each, declarations) for each in names] == ["_id"]:
        place.error(node, '@index: "id" is always indexed', "remove the index")
        return False
    if len(names) > _MAXIMUM_FIELDS:
        place.error(
            node,
            f"@index: {len(names)} fields, maximum is {_MAXIMUM_FIELDS}",
            "name fewer",
        )
        return False
    sound = True
    for name in names:
        problem = path_problem(type_, name, declarations, "@index")
        if problem:
            place.error(node, *problem)
            sound = False
    if not sound:
        return False
    # Two members may have a field in common: `dog.weight` and `cat.weight`.
    first: dict[str, str] = {}
    for name in names:
        path = stored_path(type_, name, declarations)
        if path in first:
            both = f'"{first[path]}" and "{name}", which are stored as "{path}"'
            twice = f'"{name}" twice' if first[path] == name else both
            place.error(node, f"@index names {twice}", "name it once")
            return False
        first[path] = name
    lists = sorted({each for name in names for each in _lists_on(type_, name, declarations)})
    # One inside the other is fine: a sorted chain of prefixes.
    for outer, inner in pairwise(lists):
        if not inner.startswith(f"{outer}."):
            place.error(
                node,
                f'"{outer}" and "{inner}" are lists, maximum of an index is one list',
                "create two indexes",
            )
            return False
    return True


def path_problem(
    type_: TypeDeclaration, name: str, declarations: Declarations, directive: str
) -> tuple[str, str] | None:
    if name == "version" and _version(type_) is not None:
        return None
    path = follow(type_, name, declarations)
    if path.lost is not None and path.lost_in is not None:
        known = [each.name for each in path.lost_in.stored_fields]
        lost = path.lost_in.fields.get(path.lost)
        reference = lost.directives.one("reference") if lost else None
        problem = f'{directive}: {path.lost_in.name} has no stored field "{path.lost}"'
        if reference and reference.text("by"):
            return problem, f'did you mean "{reference.text("by")}"?'
        keys = _member_keys(path.lost_in, path.lost, declarations)
        if keys and directive == "@index":
            return problem, f'did you mean "{keys[0]}.{path.lost}"?'
        return problem, did_you_mean(path.lost, known, f"it has {', '.join(known)}")
    last = path.fields[-1]
    if path.lost is not None:
        return (
            f'{directive}: "{last.name}" is {last.type_text} and has no field "{path.lost}"',
            f'name "{last.name}" itself, or remove it',
        )
    kind = declarations.kind(last)
    if kind is None:
        return None
    if isinstance(kind, TypeDeclaration):
        inside = next((each.name for each in kind.stored_fields), "…")
        return (
            f'{directive}: "{name}" is an embedded {kind.name}, expected a field with a single '
            "value",
            f'name a field in it, for example "{name}.{inside}"',
        )
    if kind is Scalar.JSON:
        return (
            f'{directive}: "{name}" is JSON, and the API does not filter or sort by it',
            "name another field",
        )
    return None


def _member_keys(type_: TypeDeclaration, name: str, declarations: Declarations) -> Sequence[str]:
    """Return the keys of the members that have a field of this name."""
    members = type_.discriminator.members if type_.discriminator else ()
    return [each.key for each in members if name in declarations.types[each.type].fields]


def _is_whole(field: FieldDeclaration, declarations: Declarations) -> bool:
    kind = declarations.kind(field)
    return kind in (Scalar.JSON, Scalar.POINT) or isinstance(kind, TypeDeclaration)


def _is_point(type_: TypeDeclaration, name: str, declarations: Declarations) -> bool:
    fields = follow(type_, name, declarations).fields
    return bool(fields) and declarations.kind(fields[-1]) is Scalar.POINT


def _check_points(
    type_: TypeDeclaration,
    names: tuple[str, ...],
    index: DirectiveUsage,
    declarations: Declarations,
) -> bool:
    point = next((each for each in names if _is_point(type_, each, declarations)), None)
    if point is None or not index.flag("unique"):
        return True
    type_.place.error(
        index.node, f'@index: unique, with the Point "{point}", expected no Point', "remove unique"
    )
    return False


def follow(type_: TypeDeclaration, name: str, declarations: Declarations) -> _Path:
    here: TypeDeclaration | None = type_
    fields: list[FieldDeclaration] = []
    words = name.split(".")
    for number, word in enumerate(words, start=1):
        if here is None:
            return _Path(tuple(fields), word)
        member = declarations.member(here, word)
        if member is not None and number < len(words):
            # A member of a union adds a name to the path, but none to the document.
            here = member
            continue
        field = here.fields.get(word)
        if field is None or not field.is_stored:
            return _Path(tuple(fields), word, here)
        fields.append(field)
        here = declarations.embedded(field)
    return _Path(tuple(fields))


def _lists_on(type_: TypeDeclaration, name: str, declarations: Declarations) -> Iterator[str]:
    """Every prefix of the path that is a list: `lines` and `lines.tags` of `lines.tags`."""
    fields = follow(type_, name, declarations).fields
    for count, field in enumerate(fields, start=1):
        if field.is_list:
            yield ".".join(each.name for each in fields[:count])


def _version(type_: TypeDeclaration) -> str | None:
    collection = type_.directives.one("collection")
    return collection.text("version") if collection else None


def stored_path(type_: TypeDeclaration, name: str, declarations: Declarations) -> str:
    version = _version(type_)
    if name == "version" and version is not None:
        return version
    if name == "id":
        return "_id"
    return ".".join(each.stored for each in follow(type_, name, declarations).fields)
