"""Check what leads from one document to another: `@reference`, `@referencedBy` and `@copy`.

`named_ids` says which fields hold the id of another document, and how that id is stored: such a
field shows ID, and is stored as the `_id` that it leads to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    FieldDeclaration,
    TypeDeclaration,
)
from revstream.model.compiler.parsing.directives import DirectiveUsage
from revstream.model.compiler.validation.fields import ID_SCALARS
from revstream.model.definition import Scalar
from revstream.model.naming import did_you_mean, with_article

__all__ = ["check_relations", "named_ids", "stored_id"]

# What only a field that is stored can have.
_OF_STORED_FIELDS = ("stored", "unique", "fence", "copy")

FieldKey = tuple[str, str]
"""Names of a type and of a field of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Naming:
    """A directive that says: the field `named` of `holder` holds the id of a `target`."""

    by: FieldDeclaration
    directive: DirectiveUsage
    argument: str
    holder: TypeDeclaration
    target: TypeDeclaration

    @property
    def named(self) -> FieldDeclaration | None:
        return self.holder.fields.get(self.directive.text(self.argument) or "")

    @property
    def text(self) -> str:
        return f'@{self.directive.name}({self.argument}: "{self.directive.text(self.argument)}")'


def stored_id(type_: TypeDeclaration, declarations: Declarations) -> Scalar | None:
    """Return the scalar in which an entity's id is stored; None if it is invalid."""
    field = type_.fields.get("id")
    kind = declarations.kind(field) if field else None
    if not isinstance(kind, Scalar) or kind not in ID_SCALARS:
        return None
    return Scalar.STRING if kind is Scalar.ID else kind


def named_ids(declarations: Declarations) -> dict[FieldKey, Scalar]:
    """Return the stored scalar of each field that a `@reference` or `@referencedBy` names.

    Keys: type and field.
    """
    ids: dict[FieldKey, Scalar] = {}
    for naming in _namings(declarations):
        stored = stored_id(naming.target, declarations)
        if naming.named and stored:
            union = naming.holder.discriminator
            # Members have the fields of their interface, and a back reference names the interface.
            members = [each.type for each in union.members] if union else []
            for name in (naming.holder.name, *members):
                ids.setdefault((name, naming.named.name), stored)
    return ids


def check_relations(declarations: Declarations) -> None:
    """Report what is wrong with each relation, and between them."""
    for type_, field in declarations.fields:
        for name in ("reference", "referencedBy"):
            directive = field.directives.one(name)
            if directive and not (type_.is_entity and field.name == "id"):
                _check_relation(type_, field, directive, declarations)
    first: dict[FieldKey, _Naming] = {}
    for naming in _namings(declarations):
        if naming.named is None:
            unknown = naming.directive.text(naming.argument)
            if unknown is not None:
                _report_unknown(naming, unknown)
        elif _check_named(naming, naming.named, declarations):
            before = first.setdefault((naming.holder.name, naming.named.name), naming)
            _check_agreement(before, naming, declarations)


def _namings(declarations: Declarations) -> Iterator[_Naming]:
    for type_, field in declarations.fields:
        target = declarations.entity(field)
        if target is None:
            continue
        reference = field.directives.one("reference")
        back = field.directives.one("referencedBy")
        if reference:
            yield _Naming(by=field, directive=reference, argument="by", holder=type_, target=target)
        elif back and type_.is_entity:
            yield _Naming(by=field, directive=back, argument="field", holder=target, target=type_)


def _check_relation(
    type_: TypeDeclaration,
    field: FieldDeclaration,
    directive: DirectiveUsage,
    declarations: Declarations,
) -> None:
    to_one = directive.name == "reference"
    for name in _OF_STORED_FIELDS:
        other = field.directives.one(name)
        if other:
            field.place.error(
                other.node,
                f"@{name}: a @{directive.name} is not stored, expected a stored field",
                f'put it on "{directive.text("by")}"'
                if to_one and directive.text("by")
                else "remove it",
            )
    if not to_one and "reference" in field.directives:
        field.place.error(
            directive.node,
            "a field cannot be both @reference and @referencedBy",
            "remove one of them",
        )
        return
    if not to_one and not type_.is_entity:
        field.place.error(
            directive.node,
            f"@referencedBy: {type_.name} is embedded, expected an entity, which has an id",
            "move the field to the entity",
        )
        return
    kind = declarations.kind(field)
    if kind is None:
        return
    if declarations.entity(field) is None:
        what = "an embedded type" if isinstance(kind, TypeDeclaration) else "a value"
        field.place.error(
            field.node.type,
            f"@{directive.name}: {field.type_name} is {what}, expected an entity",
            f"remove @{directive.name}, or name a type with @collection",
        )
    elif not to_one and not field.is_list:
        field.place.error(
            field.node.type,
            f"@referencedBy: {field.type_text}, expected a list",
            f'write "[{field.type_name}!]!"',
        )


def _report_unknown(naming: _Naming, name: str) -> None:
    holder = naming.holder
    known = [each.name for each in holder.stored_fields]
    otherwise = f'add "{name}: ID" to {holder.name}, or name one of its fields: {", ".join(known)}'
    if "." in name:
        otherwise = (
            f"name a field of {holder.name} itself; fields of embedded documents are not supported"
        )
    naming.by.place.error(
        naming.directive.at(naming.argument),
        f"{naming.text} names no field of {holder.name}",
        otherwise if "." in name else did_you_mean(name, known, otherwise),
    )


def _check_named(naming: _Naming, named: FieldDeclaration, declarations: Declarations) -> bool:
    """Report what is wrong with the field that holds the id; True where nothing is."""
    place = naming.by.place
    node = naming.directive.at(naming.argument)
    target = naming.target.name
    stored = stored_id(naming.target, declarations)
    kind = declarations.kind(named)
    if not named.is_stored:
        place.error(
            node,
            f'{naming.text}: "{named.name}" is a reference itself, expected a stored field',
            f"name the field that holds the id of {with_article(target)}",
        )
        return False
    if kind is None or stored is None:
        return False
    if naming.argument == "by" and named.is_list != naming.by.is_list:
        wanted = f"[{naming.by.type_name}!]!" if named.is_list else naming.by.type_name
        place.error(
            node,
            f'{naming.text}: "{named.name}" is {named.type_text}, and "{naming.by.name}" is '
            f"{naming.by.type_text}, expected two lists, or none",
            f'write "{naming.by.name}: {wanted}", or name another field',
        )
        return False
    is_own_id = naming.holder.is_entity and named.name == "id"
    fits = (
        _stored_alike(kind, stored)
        if is_own_id
        else kind is Scalar.ID or _stored_alike(kind, stored)
    )
    if not fits:
        id_name = naming.target.fields["id"].type_name
        place.error(
            node,
            f'{naming.text}: "{named.name}" is {named.type_name}, '
            f"and the id of {target} is {id_name}",
            "declare both ids with the same type"
            if is_own_id
            else f'declare it "{named.name}: ID{"!" if named.required else ""}"',
        )
        return False
    is_one = naming.argument == "by" and not named.is_list
    if is_one and naming.by.required and not named.required:
        place.error(
            naming.by.node.type,
            f'it is never null, but "{named.name}" may be',
            f'write "{naming.by.type_name}", or make "{named.name}" {named.type_name}!',
        )
    return True


def _stored_alike(kind: object, stored: Scalar) -> bool:
    return kind is stored or (kind is Scalar.ID and stored is Scalar.STRING)


def _check_agreement(before: _Naming, naming: _Naming, declarations: Declarations) -> None:
    one = stored_id(before.target, declarations)
    other = stored_id(naming.target, declarations)
    if one and other and one is not other and naming.named:
        naming.by.place.error(
            naming.directive.at(naming.argument),
            f'"{naming.named.name}" cannot hold the id of a {naming.target.name} ({other.value}): '
            f'"{before.by.name}" makes it the id of a {before.target.name} ({one.value})',
            "use a field for each",
        )
