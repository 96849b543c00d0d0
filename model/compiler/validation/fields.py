"""Check what each stored field is: its type, its name in MongoDB, the id, the fence."""

from __future__ import annotations

import re

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    FieldDeclaration,
    TypeDeclaration,
)
from revstream.model.definition import Scalar
from revstream.model.naming import suggestion

__all__ = [
    "CHANGE_FIELD",
    "COPIES_FIELD",
    "ID_SCALARS",
    "KEPT_BESIDE",
    "check_fields",
    "stored_name_problem",
]

# The reserved sub-document in which a writer names the author and the reason:
# {id, by, why, restoredFrom, draft, traceparent, op}.
CHANGE_FIELD = "_change"
# Another one, in which the Copier keeps what its copies are of: see
# `streams.versioning.copied_field`.
COPIES_FIELD = "_copies"
KEPT_BESIDE = {
    CHANGE_FIELD: "the author and the reason of a change",
    COPIES_FIELD: "the sources of copies",
}
"""What revstream keeps in documents, by its stored names."""

ID_SCALARS = (Scalar.ID, Scalar.OBJECTID, Scalar.STRING, Scalar.INT, Scalar.LONG, Scalar.UUID)
"""What an `id` may be stored as."""

FENCE_SCALARS = (Scalar.INT, Scalar.LONG)

# Type names of other languages and databases, and the names here.
_ELSEWHERE = {
    "any": Scalar.JSON,
    "bindata": Scalar.BINARY,
    "bigint": Scalar.LONG,
    "blob": Scalar.BINARY,
    "bool": Scalar.BOOLEAN,
    "buffer": Scalar.BINARY,
    "bytes": Scalar.BINARY,
    "decimal128": Scalar.DECIMAL,
    "double": Scalar.FLOAT,
    "geojson": Scalar.POINT,
    "geopoint": Scalar.POINT,
    "guid": Scalar.UUID,
    "int64": Scalar.LONG,
    "integer": Scalar.INT,
    "map": Scalar.JSON,
    "number": Scalar.FLOAT,
    "object": Scalar.JSON,
    "text": Scalar.STRING,
    "time": Scalar.DATETIME,
}

# Why a directive makes no sense on `id`.
_NOT_ON_ID = {
    "stored": 'the id is stored as "_id", always',
    "unique": "the id is unique, always",
    "fence": "the id never changes, a fence does with each event",
    "copy": "the id never changes, a copy does",
    "reference": "the id cannot be a reference; add another field for it",
    "referencedBy": "the id cannot be a list of documents",
}

_DIGITS = re.compile("[0-9]+")


def check_fields(declarations: Declarations) -> None:
    """Report what is wrong with the stored fields of every type."""
    for type_ in declarations.types.values():
        if type_.is_entity:
            _check_id(type_, declarations)
        for field in type_.fields.values():
            _check_type(field, declarations)
        _check_stored_names(type_)
        _check_fences(type_, declarations)


def stored_name_problem(name: str) -> str | None:
    """Why MongoDB, or a query to it, could not do with a field of that name; None where it can."""
    if not name:
        return "a field's name in MongoDB cannot be empty"
    if "\0" in name:
        return "a field's name in MongoDB cannot have a NUL character"
    if "." in name:
        return "a name with a dot is read as a path into an embedded document"
    if name.startswith("$"):
        return "a name that begins with $ is read as an operator"
    if _DIGITS.fullmatch(name):
        return "a name of digits is read as an index of a list"
    return None


def _check_id(type_: TypeDeclaration, declarations: Declarations) -> None:
    allowed = ", ".join(each.value for each in ID_SCALARS)
    field = type_.fields.get("id")
    if field is None:
        type_.place.error(
            type_.node, 'the entity has no "id"', f'add "id: ID!"; its type may be {allowed}'
        )
        return
    for name, reason in _NOT_ON_ID.items():
        directive = field.directives.one(name)
        if directive:
            field.place.error(directive.node, f"@{name} cannot be on the id: {reason}", "remove it")
    kind = declarations.kind(field)
    if kind is None:
        return
    if kind not in ID_SCALARS:
        field.place.error(
            field.node.type, f"an id cannot be {field.type_name}", f"choose from {allowed}"
        )
    elif field.is_list or not field.required:
        field.place.error(
            field.node.type,
            f"id: {field.type_text}, expected one value that is never null",
            f'write "id: {field.type_name}!"',
        )
    if not any(each.name != "id" for each in type_.stored_fields):
        # GraphQL has no interface or input without fields, and there would be one of each.
        type_.place.error(
            type_.node,
            'the entity has no stored field except "id"',
            "add a field, for example of type JSON",
        )


def _check_type(field: FieldDeclaration, declarations: Declarations) -> None:
    kind = declarations.kind(field)
    if kind is None:
        field.place.error(
            field.node.type,
            f'"{field.type_name}": unknown type',
            _mend_type(field.type_name, declarations),
        )
    elif isinstance(kind, TypeDeclaration) and kind.member_of is not None:
        union = declarations.types[kind.member_of]
        field.place.error(
            field.node.type,
            f"{kind.name} is a member of {union.name}, expected the {union.spot.word}",
            f'write "{field.name}: {field.type_text.replace(kind.name, union.name)}"',
        )
    elif declarations.entity(field) and field.is_stored and field.name != "id":
        by = f"{field.name}Id"
        entity = field.type_name
        mend = (
            f'add @referencedBy(field: "…"), naming the field of {entity} that holds the id'
            if field.is_list
            else f'store its id, {by}: ID, and write {field.name}: {entity} @reference(by: "{by}")'
        )
        field.place.error(
            field.node.type,
            f"{entity} is an entity, expected an embedded type, an enum or a scalar",
            mend,
        )
    elif kind is Scalar.POINT and field.is_list:
        field.place.error(
            field.node.type,
            f"{field.type_text}, expected one Point",
            "declare an embedded type with a field of type Point, and a list of it",
        )


def _mend_type(name: str, declarations: Declarations) -> str:
    elsewhere = _ELSEWHERE.get(name.lower())
    known = [*declarations.types, *declarations.enums, *(each.value for each in Scalar)]
    meant = elsewhere.value if elsewhere else suggestion(name, known)
    if meant:
        return f'did you mean "{meant}"?'
    scalars = ", ".join(each.value for each in Scalar)
    return f"declare a type or an enum of that name, or choose a scalar: {scalars}"


def _check_stored_names(type_: TypeDeclaration) -> None:
    taken: dict[str, str] = {}
    collection = type_.directives.one("collection")
    if collection:
        taken["_id"] = 'the "id"'
        version = collection.text("version")
        if version:
            taken[version] = "the version, by @collection(version:)"
    for field in type_.stored_fields:
        if collection and field.name in ("id", "_id", "version"):
            # An entity's id has its own rules, the other names are refused whatever they store.
            continue
        directive = field.directives.one("stored")
        node = directive.at("as") if directive else field.node.name
        stored = directive.text("as") if directive else field.name
        if stored is None:
            continue
        problem = stored_name_problem(stored)
        if problem:
            field.place.error(
                node,
                f'it is stored as "{_visible(stored)}": {problem}',
                "choose another name with @stored(as:)",
            )
        elif collection and stored in KEPT_BESIDE:
            field.place.error(
                node,
                f'it is stored as "{stored}", where revstream stores {KEPT_BESIDE[stored]}',
                "remove it: versions show it as author and comment"
                if stored == CHANGE_FIELD
                else "choose another name with @stored(as:)",
            )
        elif stored in taken:
            mend = (
                "remove it: the API shows it as version"
                if collection and stored == collection.text("version")
                else "choose another name with @stored(as:)"
            )
            field.place.error(node, f'it is stored as "{stored}", like {taken[stored]}', mend)
        else:
            taken[stored] = f'"{field.name}"'


def _visible(name: str) -> str:
    return name.replace("\0", "\\0")


def _check_fences(type_: TypeDeclaration, declarations: Declarations) -> None:
    first: FieldDeclaration | None = None
    for field in type_.stored_fields:
        fence = field.directives.one("fence")
        if not fence or field.name == "id":
            continue
        kind = declarations.kind(field)
        if not type_.is_entity:
            field.place.error(
                fence.node,
                f"@fence: {type_.name} is embedded, expected an entity",
                "move it to a field of the entity",
            )
        elif kind is not None and (field.is_list or kind not in FENCE_SCALARS):
            field.place.error(
                fence.node,
                f"@fence: {field.type_text}, expected a number",
                "declare it as Long! or Int!",
            )
        elif "copy" in field.directives:
            field.place.error(
                fence.node,
                "@fence: on a @copy, expected a field that each event sets",
                "remove @fence or @copy",
            )
        elif first:
            field.place.error(
                fence.node,
                f'{type_.name} already has the fence "{first.name}"',
                "remove one of them",
            )
        first = first or field
