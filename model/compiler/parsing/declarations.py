"""The types and enums that a schema.graphql declares, each read by itself.

`read_declarations` reports what no model may hold: inputs, scalars, extensions, operations,
arguments, lists of lists, names used twice. What the declarations say is checked by the
modules of each subject, and turned into a `Model` by `model.compiler.builder`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphql.language import (
    DefinitionNode,
    DocumentNode,
    EnumTypeDefinitionNode,
    FieldDefinitionNode,
    InterfaceTypeDefinitionNode,
    ListTypeNode,
    NamedTypeNode,
    NameNode,
    NonNullTypeNode,
    ObjectTypeDefinitionNode,
    StringValueNode,
    TypeNode,
    UnionTypeDefinitionNode,
)

from revstream.model.compiler.parsing.diagnostics import DeclarationLocation, Report
from revstream.model.compiler.parsing.directives import Directives, Spot, read_directives
from revstream.model.definition import Discriminator, EnumType, Scalar

__all__ = ["Declarations", "FieldDeclaration", "Kind", "TypeDeclaration", "read_declarations"]

ROOT_TYPES = ("Query", "Mutation", "Subscription")

_SCALARS = ", ".join(each.value for each in Scalar)

_TypeNode = ObjectTypeDefinitionNode | InterfaceTypeDefinitionNode | UnionTypeDefinitionNode

# By syntax kind: what it is called, and what to do instead.
_REFUSED = {
    "input_object_type_definition": (
        "an input type",
        "remove it; revstream creates the inputs of the API",
    ),
    "scalar_type_definition": ("a scalar", f"remove it; the scalars are {_SCALARS}"),
    "directive_definition": ("a directive definition", "remove it; revstream knows its directives"),
    "schema_definition": (
        "a schema definition",
        "remove it; revstream creates Query, Mutation and Subscription",
    ),
    "operation_definition": (
        "an operation",
        "remove it; a model has types only, operations are sent to the gateway",
    ),
    "fragment_definition": (
        "a fragment",
        "remove it; a model has types only, fragments are sent to the gateway",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDeclaration:
    """Parsed field. `place` reports its mistakes, `node` is its syntax node."""

    name: str
    type_name: str
    required: bool
    is_list: bool
    item_required: bool
    description: str | None
    directives: Directives
    node: FieldDefinitionNode
    place: DeclarationLocation

    @property
    def is_reference(self) -> bool:
        return "reference" in self.directives

    @property
    def is_back_reference(self) -> bool:
        return "referencedBy" in self.directives

    @property
    def is_stored(self) -> bool:
        """True if the document holds the field, which is false for a link to another document."""
        return not (self.is_reference or self.is_back_reference)

    @property
    def stored(self) -> str:
        """The field's name in MongoDB, except for `id`."""
        directive = self.directives.one("stored")
        return (directive and directive.text("as")) or self.name

    @property
    def type_text(self) -> str:
        """The type as GraphQL writes it: `[String!]!`."""
        inner = f"{self.type_name}{'!' if self.item_required else ''}"
        return f"{f'[{inner}]' if self.is_list else inner}{'!' if self.required else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDeclaration:
    """Parsed object type, interface or union; `fields` by name, in source order.

    `named`: the members that a union names, or the interfaces that a type implements. Set by
    `model.compiler.parsing.unions`: `discriminator` of a union or interface, and `member_of`, the
    name of a member's union or interface.
    """

    name: str
    description: str | None
    directives: Directives
    fields: dict[str, FieldDeclaration]
    node: NameNode
    place: DeclarationLocation
    spot: Spot = Spot.TYPE
    named: tuple[NamedTypeNode, ...] = ()
    discriminator: Discriminator | None = None
    member_of: str | None = None

    @property
    def is_abstract(self) -> bool:
        """True for unions and interfaces."""
        return self.spot is not Spot.TYPE

    @property
    def is_entity(self) -> bool:
        return "collection" in self.directives

    @property
    def stored_fields(self) -> Iterator[FieldDeclaration]:
        return (each for each in self.fields.values() if each.is_stored)

    @property
    def references(self) -> Iterator[FieldDeclaration]:
        return (each for each in self.fields.values() if each.is_reference)


Kind = Scalar | EnumType | TypeDeclaration


@dataclass(frozen=True, slots=True, kw_only=True)
class Declarations:
    """Everything that the file declares, by name and in source order."""

    types: dict[str, TypeDeclaration]
    enums: dict[str, EnumType]
    enum_nodes: dict[str, NameNode]

    @property
    def entities(self) -> Iterator[TypeDeclaration]:
        return (each for each in self.types.values() if each.is_entity and each.member_of is None)

    @property
    def members(self) -> Iterator[TypeDeclaration]:
        """Members of entities that are interfaces."""
        return (each for each in self.types.values() if each.is_entity and each.member_of)

    @property
    def embeddeds(self) -> Iterator[TypeDeclaration]:
        return (each for each in self.types.values() if not each.is_entity)

    @property
    def fields(self) -> Iterator[tuple[TypeDeclaration, FieldDeclaration]]:
        """Every field with its type."""
        return ((type_, each) for type_ in self.types.values() for each in type_.fields.values())

    def kind(self, field: FieldDeclaration) -> Kind | None:
        """Return the type of a field; None for an unknown name."""
        name = field.type_name
        if name in self.types:
            return self.types[name]
        if name in self.enums:
            return self.enums[name]
        return next((each for each in Scalar if each.value == name), None)

    def embedded(self, field: FieldDeclaration) -> TypeDeclaration | None:
        """The embedded type that a stored field holds, or None."""
        kind = self.kind(field)
        return kind if isinstance(kind, TypeDeclaration) and not kind.is_entity else None

    def member(self, type_: TypeDeclaration, key: str) -> TypeDeclaration | None:
        """The member of a union that has that key in filters, or None."""
        found = type_.discriminator and next(
            (each for each in type_.discriminator.members if each.key == key), None
        )
        return self.types[found.type] if found else None

    def entity(self, field: FieldDeclaration) -> TypeDeclaration | None:
        """The entity that a field leads to, or None."""
        kind = self.kind(field)
        return kind if isinstance(kind, TypeDeclaration) and kind.is_entity else None


def read_declarations(document: DocumentNode, report: Report) -> Declarations:
    """Read the declarations of a file. Those that are not allowed are reported and left out."""
    types: dict[str, TypeDeclaration] = {}
    enums: dict[str, EnumType] = {}
    nodes: dict[str, NameNode] = {}
    for definition in document.definitions:
        if isinstance(definition, _TypeNode | EnumTypeDefinitionNode):
            name = definition.name.value
            place = report.place(name)
            first = nodes.setdefault(name, definition.name)
            if first is not definition.name:
                line = first.loc.start_token.line if first.loc else 1
                place.error(
                    definition.name,
                    f'"{name}" is already declared on line {line}',
                    "rename or remove one of them",
                )
            if isinstance(definition, EnumTypeDefinitionNode):
                enums.setdefault(name, _read_enum(definition, place))
            elif name in ROOT_TYPES and not _is_entity(definition):
                place.error(
                    definition.name,
                    f'"{name}": created by revstream from the entities',
                    "remove it; a model has stored types only",
                )
            else:
                # Read even if the name is taken, to report its other mistakes as well.
                declaration = _read_type(definition, place)
                types.setdefault(name, declaration)
        else:
            _refuse(definition, report)
    return Declarations(
        types=types,
        enums={name: each for name, each in enums.items() if name not in types},
        enum_nodes={name: nodes[name] for name in enums if name not in types},
    )


def _is_entity(definition: _TypeNode) -> bool:
    return any(each.name.value == "collection" for each in definition.directives or ())


def _refuse(definition: DefinitionNode, report: Report) -> None:
    name = getattr(definition, "name", None)
    place = report.place(name.value if isinstance(name, NameNode) else None)
    if definition.kind.endswith("_extension"):
        place.error(
            definition,
            "an extension: not supported in a model",
            "write it in the declaration of the type",
        )
        return
    what, mend = _REFUSED[definition.kind]
    place.error(
        name if isinstance(name, NameNode) else definition,
        f"{what}: not supported in a model",
        mend,
    )


def _read_enum(definition: EnumTypeDefinitionNode, place: DeclarationLocation) -> EnumType:
    read_directives(definition.directives, Spot.ENUM, place)
    descriptions: dict[str, str] = {}
    values: list[str] = []
    stored_as: dict[str, str] = {}
    names = {each.name.value for each in definition.values or ()}
    for node in definition.values or ():
        value = node.name.value
        of_value = place.for_field(value)
        directive = read_directives(node.directives, Spot.ENUM_VALUE, of_value).one("stored")
        text = directive.text("as") if directive else None
        if value in values:
            of_value.error(
                node.name, f'the value "{value}": twice, expected once', "remove one of them"
            )
            continue
        if value.startswith("__"):
            of_value.error(
                node.name,
                "names that begin with __ are reserved by GraphQL",
                f"rename it, for example {value.lstrip('_') or 'VALUE'}",
            )
        values.append(value)
        if directive is not None and text is not None and text != value:
            if text in names or text in stored_as.values():
                of_value.error(
                    directive.at("as"),
                    f'it is stored as "{text}", like another value',
                    "store each value as a different text",
                )
            stored_as[value] = text
        description = _text(node.description)
        if description is not None:
            descriptions[value] = description
    if not values:
        place.error(definition.name, "the enum has no values", "give it at least one, or remove it")
    return EnumType(
        name=definition.name.value,
        values=tuple(values),
        stored_as=stored_as,
        value_descriptions=descriptions,
        description=_text(definition.description),
    )


def _read_type(definition: _TypeNode, place: DeclarationLocation) -> TypeDeclaration:
    nodes: Sequence[FieldDefinitionNode] | None = None
    spot = Spot.TYPE if isinstance(definition, ObjectTypeDefinitionNode) else Spot.INTERFACE
    if isinstance(definition, UnionTypeDefinitionNode):
        spot, named = Spot.UNION, definition.types
    else:
        nodes, named = definition.fields, definition.interfaces
    fields: dict[str, FieldDeclaration] = {}
    for node in nodes or ():
        name = node.name.value
        field = _read_field(node, place.for_field(name))
        if name in fields:
            field.place.error(
                node.name, f'the type has a field "{name}" already', "rename or remove one of them"
            )
            continue
        fields[name] = field
    return TypeDeclaration(
        name=definition.name.value,
        description=_text(definition.description),
        directives=read_directives(definition.directives, spot, place),
        fields=fields,
        node=definition.name,
        place=place,
        spot=spot,
        named=tuple(named or ()),
    )


def _read_field(node: FieldDefinitionNode, place: DeclarationLocation) -> FieldDeclaration:
    if node.arguments:
        place.error(
            node.arguments[0],
            "the fields of a model take no arguments",
            "remove them; the API defines the arguments of fields",
        )
    outer, required = _unwrap(node.type)
    item_required = False
    is_list = isinstance(outer, ListTypeNode)
    if isinstance(outer, ListTypeNode):
        outer, item_required = _unwrap(outer.type)
        if isinstance(outer, ListTypeNode):
            place.error(
                node.type,
                "lists of lists are not supported",
                "declare it as JSON, or as a list of an embedded type with a list in it",
            )
            while isinstance(outer, ListTypeNode):
                outer, item_required = _unwrap(outer.type)
    assert isinstance(outer, NamedTypeNode)
    # `[X!]!` has two answers to "may be null"; without a list there is only one.
    return FieldDeclaration(
        name=node.name.value,
        type_name=outer.name.value,
        required=required,
        is_list=is_list,
        item_required=item_required,
        description=_text(node.description),
        directives=read_directives(node.directives, Spot.FIELD, place),
        node=node,
        place=place,
    )


def _unwrap(type_: TypeNode) -> tuple[TypeNode, bool]:
    """The type without its `!`, and whether it had one."""
    return (type_.type, True) if isinstance(type_, NonNullTypeNode) else (type_, False)


def _text(description: StringValueNode | None) -> str | None:
    return description.value if description else None
