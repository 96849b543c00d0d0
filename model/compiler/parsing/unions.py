"""Unions and interfaces of embedded documents: members, discriminator and shared fields.

    union Payment @discriminator(field: "kind") = Card | Transfer

`join_unions` adds the discriminator to the fields of the union and of its members, and the shared
fields of an interface to its members as the interface declares them, so that the other checks see
them like any field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from graphql.language import FieldDefinitionNode, NamedTypeNode, NameNode, NonNullTypeNode

from revstream.model.compiler.parsing.declarations import (
    Declarations,
    FieldDeclaration,
    TypeDeclaration,
)
from revstream.model.compiler.parsing.directives import Directives, DirectiveUsage, Spot
from revstream.model.definition import Discriminator, UnionMember
from revstream.model.naming import did_you_mean, is_name, lower_first, with_article

__all__ = ["join_unions"]

# Of embedded types: they need a place in the document that is the same in all members.
_NOT_SHARED = ("reference", "referencedBy", "copy")
# Of the fields of one member of an entity: they hold for all documents of the collection.
_OF_ALL = ("unique", "fence", "copy", "referencedBy")


def join_unions(declarations: Declarations) -> Declarations:
    """Return the declarations with unions and members joined; mistakes between them are reported.

    A union with a mistake in its discriminator stays without one.
    """
    types = dict(declarations.types)
    owners: dict[str, str] = {}
    for union in declarations.types.values():
        if union.is_abstract:
            _join(union, types, owners, declarations)
        else:
            _check_interfaces(union, declarations)
    for type_ in types.values():
        _check_alone(type_)
    return replace(declarations, types=types)


def _join(
    union: TypeDeclaration,
    types: dict[str, TypeDeclaration],
    owners: dict[str, str],
    declarations: Declarations,
) -> None:
    members = list(_members(union, owners, declarations))
    for field in union.fields.values() if not union.is_entity else ():
        _check_shared(field)
    collection = union.directives.one("collection")
    known = tuple(_values(members, union))
    discriminator = _discriminator_field(union, known)
    first = {} if discriminator is None else {discriminator.name: discriminator}
    if discriminator is not None and discriminator.name in union.fields:
        _report_declared(union, discriminator.name)
    types[union.name] = replace(
        union,
        fields={**first, **union.fields},
        discriminator=None
        if discriminator is None
        else Discriminator(name=discriminator.name, stored=discriminator.stored, members=known),
    )
    for member in members:
        if discriminator is not None and discriminator.name in member.fields:
            _report_declared(member, discriminator.name)
        applied = member.directives.applied
        types[member.name] = replace(
            member,
            fields={**first, **member.fields, **_shared_fields(union, member)},
            directives=Directives((*applied, collection) if collection else applied),
            member_of=union.name,
        )
        if collection is not None:
            _check_of_all(union, member)
    _check_names(types[union.name], [types[each.name] for each in members])


def _members(
    union: TypeDeclaration, owners: dict[str, str], declarations: Declarations
) -> Iterator[TypeDeclaration]:
    if union.spot is Spot.INTERFACE:
        for each in union.named:
            union.place.error(
                each,
                f'it implements "{each.name.value}", but interfaces of a model implement none',
                "write the fields of both in one interface",
            )
        named = [
            (node, each)
            for each in declarations.types.values()
            for node in each.named
            if each.spot is Spot.TYPE and node.name.value == union.name
        ]
    else:
        named = list(_named_members(union, declarations))
    found: list[str] = []
    for node, member in named:
        place = union.place if union.spot is Spot.UNION else member.place
        if member.name in found:
            place.error(node, f'"{node.name.value}" twice, expected once', "remove one of them")
        elif member.is_abstract or member.is_entity:
            what = "an entity" if member.is_entity else with_article(member.spot.word)
            place.error(
                node,
                f"{member.name} is {what}, expected a type without @collection as a member of "
                f"{union.name}",
                "remove its @collection, or remove it from the union"
                if member.is_entity
                else "name the members of both in one union",
            )
        elif member.name in owners:
            place.error(
                node,
                f"{member.name} already is a member of {owners[member.name]}, maximum is one union",
                f"declare a type of its own for {union.name}",
            )
        else:
            owners[member.name] = union.name
            found.append(member.name)
            yield member
    if not named and "discriminator" in union.directives:
        union.place.error(
            union.node,
            f"the {union.spot.word} has no members, expected at least one embedded type",
            f"add implements {union.name} to the types that its documents have"
            if union.spot is Spot.INTERFACE
            else f"name the types that its documents have: union {union.name} … = Card | Transfer",
        )


def _named_members(
    union: TypeDeclaration, declarations: Declarations
) -> Iterator[tuple[NamedTypeNode, TypeDeclaration]]:
    for node in union.named:
        name = node.name.value
        if name in declarations.types:
            yield node, declarations.types[name]
            continue
        union.place.error(
            node,
            f'"{name}": expected a type of the model'
            if name not in declarations.enums
            else f"{name} is an enum, expected a type",
            did_you_mean(name, declarations.types, "declare a type of that name, or remove it"),
        )


def _check_interfaces(type_: TypeDeclaration, declarations: Declarations) -> None:
    """Report what a type implements that is no interface of the model."""
    interfaces = [each.name for each in declarations.types.values() if each.spot is Spot.INTERFACE]
    for node in type_.named:
        name = node.name.value
        if name not in interfaces:
            type_.place.error(
                node,
                f'it implements "{name}", expected an interface of the model',
                did_you_mean(
                    name,
                    interfaces,
                    f"remove it; the API's interface {type_.name}State is created by revstream",
                ),
            )


def _discriminator_field(
    union: TypeDeclaration, members: Sequence[UnionMember]
) -> FieldDeclaration | None:
    directive = union.directives.one("discriminator")
    if directive is None:
        union.place.error(
            union.node,
            f"the {union.spot.word} has no @discriminator, expected the field that tells its "
            "members apart",
            f'write {union.spot.word} {union.name} @discriminator(field: "kind")',
        )
        return None
    name = directive.text("field")
    if name is None:
        return None
    given = directive.text("storedAs")
    stored = name if given is None else given
    if not is_name(name) or name.startswith("__"):
        union.place.error(
            directive.at("field"),
            f'@discriminator(field: "{name}"): expected a name of GraphQL without __ at its start',
            f'write @discriminator(field: "kind", storedAs: "{stored}")',
        )
        return None
    argument = directive.at("field" if given is None else "storedAs")
    written = NameNode(value="String")
    node = FieldDefinitionNode(
        name=NameNode(value=name, loc=directive.at("field").loc),
        type=NonNullTypeNode(type=NamedTypeNode(name=written), loc=directive.node.loc),
        loc=directive.node.loc,
    )
    stored_as = DirectiveUsage(
        name="stored", node=directive.node, arguments={"as": stored}, nodes={"as": argument}
    )
    return FieldDeclaration(
        name=name,
        type_name="String",
        required=True,
        is_list=False,
        item_required=False,
        description=f"The type of the document: {', '.join(each.value for each in members)}.",
        directives=Directives((stored_as,)),
        node=node,
        place=union.place.for_field(name),
    )


def _report_declared(type_: TypeDeclaration, name: str) -> None:
    field = type_.fields[name]
    field.place.error(
        field.node.name,
        f'"{name}" is the discriminator, which @discriminator adds',
        "remove the field",
    )


def _values(members: list[TypeDeclaration], union: TypeDeclaration) -> Iterator[UnionMember]:
    first: dict[str, str] = {}
    for member in members:
        directive = member.directives.one("variant")
        value = directive.text("value") if directive else member.name
        if value is None:
            continue
        if value in first:
            member.place.error(
                directive.at("value") if directive else member.node,
                f'@variant(value: "{value}"): the same as that of {first[value]}, expected '
                f"another one in {union.name}",
                'give each member a value: @variant(value: "…")',
            )
        first.setdefault(value, member.name)
        yield UnionMember(type=member.name, key=lower_first(member.name), value=value)


def _shared_fields(
    union: TypeDeclaration, member: TypeDeclaration
) -> Mapping[str, FieldDeclaration]:
    """Return the interface's fields; the member has to repeat their names and types."""
    for field in union.fields.values():
        text = f"{field.name}: {field.type_text}"
        repeated = member.fields.get(field.name)
        if repeated is None:
            member.place.error(
                member.node, f"it has no {field.name}, which {union.name} has", f'add "{text}"'
            )
        elif repeated.type_text != field.type_text:
            repeated.place.error(
                repeated.node.type,
                f"it is {repeated.type_text}, and {field.type_text} in {union.name}",
                f'write "{text}"',
            )
        elif repeated.directives.applied:
            repeated.place.error(
                repeated.directives.applied[0].node,
                f"@{repeated.directives.applied[0].name}: on a field of {union.name}, expected "
                "there",
                f"move it to {union.name}.{field.name}",
            )
    for reference in member.references:
        directive = reference.directives.one("reference")
        by = directive.text("by") if directive else None
        if directive and by in union.fields and reference.name not in union.fields:
            reference.place.error(
                directive.at("by"),
                f'@reference(by: "{by}"): a field of {union.name}, expected one of {member.name} '
                "alone",
                f"remove {by} from {union.name}",
            )
    return {
        name: replace(field, description=member.fields[name].description or field.description)
        if name in member.fields
        else field
        for name, field in union.fields.items()
    }


def _check_of_all(union: TypeDeclaration, member: TypeDeclaration) -> None:
    """Report what holds for the whole collection, on one member of an entity."""
    for directive in member.directives.applied:
        if directive.name != "variant":
            member.place.error(
                directive.node,
                f"@{directive.name}: {member.name} is a member of {union.name}, expected on "
                f"{union.name}",
                f"move it to {union.name}",
            )
    for field in member.fields.values():
        for directive in field.directives.applied if field.name not in union.fields else ():
            if directive.name in _OF_ALL:
                field.place.error(
                    directive.node,
                    f"@{directive.name}: on a field of {member.name} alone, expected on a field of "
                    f"{union.name}",
                    f"remove it, or move the field to {union.name}",
                )


def _check_shared(field: FieldDeclaration) -> None:
    for name in _NOT_SHARED:
        directive = field.directives.one(name)
        if directive is not None:
            field.place.error(
                directive.node,
                f"@{name}: on a field of an interface, expected on a field of a member",
                "write the field in each member and remove it here",
            )


def _check_names(union: TypeDeclaration, members: list[TypeDeclaration]) -> None:
    """Report names that lead to two places: filters and histories name fields by their paths."""
    stored: dict[str, tuple[str, str]] = {}
    shown: dict[str, tuple[str, str]] = {}
    for member in members:
        for field in member.stored_fields:
            if field.name in union.fields:
                continue
            other, name = stored.setdefault(field.stored, (member.name, field.name))
            if name != field.name:
                field.place.error(
                    field.node.name,
                    f'it is stored as "{field.stored}", like {other}.{name}, expected the same '
                    f"name in all members of {union.name}",
                    f'rename it: {name}: {field.type_text} @stored(as: "{field.stored}")',
                )
                continue
            other, path = shown.setdefault(field.name, (member.name, field.stored))
            if path != field.stored:
                field.place.error(
                    field.node.name,
                    f'it is stored as "{field.stored}", and {other}.{field.name} as "{path}", '
                    f"expected the same in all members of {union.name}",
                    "rename one of them",
                )
    keys: dict[str, str] = {}
    for member in members:
        key = lower_first(member.name)
        clash = key in union.fields or key in ("and", "or", "not", "exists") or key in keys
        keys.setdefault(key, member.name)
        if clash:
            member.place.error(
                member.node,
                f'filters of {union.name} have "{key}" for it, which they already have',
                f'rename the type, for example "{union.name}{member.name}"',
            )


def _check_alone(type_: TypeDeclaration) -> None:
    """Report what only members of a union may have, in other types."""
    variant = type_.directives.one("variant")
    if variant is not None and type_.member_of is None:
        type_.place.error(
            variant.node,
            f"@variant: {type_.name} is no member of a union, expected one",
            "remove it, or name the type in a union",
        )
    access = type_.directives.one("access")
    if access is not None and type_.member_of is not None and not type_.is_entity:
        type_.place.error(
            access.node,
            f"@access: {type_.name} is a member of {type_.member_of}, expected on the union or on "
            "fields",
            f"move it to {type_.member_of}, or to fields of {type_.name}",
        )
    if not type_.fields and not type_.is_abstract and type_.member_of is None:
        type_.place.error(type_.node, "the type has no fields", "give it fields, or remove it")
