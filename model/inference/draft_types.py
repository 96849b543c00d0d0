"""Types of a drafted model: what is written to the file, before the compiler has accepted it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

__all__ = [
    "DraftEnum",
    "DraftField",
    "DraftSearch",
    "DraftType",
    "DraftUnion",
    "DraftVariants",
    "back_reference_directive",
    "reference_directive",
    "sdl",
]

# Names that GraphQL does not allow for values of enums.
_NOT_VALUES = {"TRUE": "IS_TRUE", "FALSE": "IS_FALSE", "NULL": "IS_NULL"}
_LINE_END = re.compile(r"[\r\n]+")


@dataclass(slots=True, kw_only=True)
class DraftField:
    """Field of a type.

    Attributes:
        name: Name in the API.
        stored: Name in MongoDB; None for a reference.
        type_text: The type as it is written.
        directives: Further directives, as they are written.
        comment: Text behind the field.
    """

    name: str
    stored: str | None
    type_text: str
    directives: list[str] = field(default_factory=list)
    comment: str | None = None

    def line(self) -> str:
        """Return the field's line."""
        parts = [f"{self.name}: {self.type_text}"]
        if self.stored is not None and self.stored not in (self.name, "_id"):
            parts.append(f"@stored(as: {json.dumps(self.stored)})")
        elif self.stored == "_id" and self.name != "id":
            parts.append('@stored(as: "_id")')
        text = " ".join([*parts, *self.directives])
        return f"  {text}" + (f"  {_comment(self.comment)}" if self.comment else "")


@dataclass(slots=True, kw_only=True)
class DraftSearch:
    """Text index: for each field the fields that lead to it, and its weight."""

    paths: list[tuple[DraftField, ...]]
    weights: list[int]
    language: str

    def text(self) -> str:
        """Return the directive."""
        parts = [f"fields: {json.dumps(_names(self.paths))}"]
        if set(self.weights) != {1}:
            parts.append(f"weights: {json.dumps(self.weights)}")
        if self.language != "none":
            parts.append(f"language: {json.dumps(self.language)}")
        return f"@search({', '.join(parts)})"


def _names(paths: list[tuple[DraftField, ...]]) -> list[str]:
    return [".".join(each.name for each in path) for path in paths]


@dataclass(slots=True, kw_only=True)
class DraftType:
    """Entity, or embedded type if it has no collection.

    Attributes:
        variant: Text in the discriminator, of a member of a union or interface.
        variants: The types of which it is the interface or a member.
        comments: Lines above the type.
        notes: Lines at its end, such as fields that are left out.
        indexes: Fields that lead to each indexed field, from the type itself.
    """

    name: str
    collection: str | None = None
    plural: str | None = None
    counted: bool = False
    fields: list[DraftField] = field(default_factory=list)
    directives: list[str] = field(default_factory=list)
    variant: str | None = None
    variants: DraftVariants | None = None
    comments: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    indexes: list[tuple[DraftField, ...]] = field(default_factory=list)
    search: DraftSearch | None = None

    def stored_field(self, stored: str) -> DraftField | None:
        """Return the field of that name in MongoDB."""
        return next((each for each in self.fields if each.stored == stored), None)

    def all_fields(self) -> list[DraftField]:
        """Return the fields of the type, and of its other variants."""
        types = [self] if self.variants is None else self.variants.types()
        return [each for type_ in types for each in type_.fields]

    def free_name(self, *wanted: str) -> str:
        """Return the first of the names that no field has; the last with a number if need be."""
        taken = {each.name for each in self.all_fields()}
        if self.variants is not None:
            taken.add(self.variants.discriminator)
        numbered = (f"{wanted[-1]}{number}" for number in range(2, len(taken) + 3))
        return next(each for each in (*wanted, *numbered) if each not in taken)

    def field_name(self, stored: str, *wanted: str) -> str:
        """Return the name for a field: that of the same field in other variants, or a free one."""
        known = (each.name for each in self.all_fields() if each.stored == stored)
        return next(known, None) or self.free_name(*wanted)

    def text(self) -> str:
        """Return the definition."""
        head, fields = self._head(), [*self._repeated(), *self.fields]
        lines = [*map(_comment, self.comments)]
        if not fields:
            return "\n".join([*lines, head, *map(_comment, self.notes)])
        lines += [f"{head} {{", *(each.line() for each in fields)]
        lines += [f"  {_comment(each)}" for each in self.notes]
        return "\n".join([*lines, "}"])

    def _repeated(self) -> list[DraftField]:
        """Return the fields of the interface, which a member repeats without directives."""
        interface = None if self.variants is None else self.variants.interface
        if interface is None or interface is self:
            return []
        return [
            DraftField(name=each.name, stored=None, type_text=each.type_text)
            for each in interface.fields
        ]

    def _head(self) -> str:
        interface = None if self.variants is None else self.variants.interface
        head = f"{'interface' if interface is self else 'type'} {self.name}"
        if interface is not None and interface is not self:
            head += f" implements {interface.name}"
        if self.collection is not None:
            facts = [f"name: {json.dumps(self.collection)}"]
            if self.plural is not None:
                facts.append(f'plural: "{self.plural}"')
            if not self.counted:
                facts.append("version: null")
            head += f" @collection({', '.join(facts)})"
        if interface is self and self.variants is not None:
            head += f" {self.variants.directive()}"
        if self.variant is not None and self.variant != self.name:
            head += f" @variant(value: {json.dumps(self.variant)})"
        indexes = [f"@index(fields: [{json.dumps(each)}])" for each in _names(self.indexes)]
        search = [] if self.search is None else [self.search.text()]
        return " ".join([head, *self.directives, *indexes, *search])


@dataclass(slots=True, kw_only=True)
class DraftVariants:
    """Types that the text in one field tells apart. The same field has the same name in all.

    Attributes:
        discriminator: Name in the API of the field that tells them apart.
        stored: Its name in MongoDB.
        interface: The type with the fields that all have in common; None for a union.
        members: The types, by the text in that field.
    """

    discriminator: str
    stored: str
    interface: DraftType | None = None
    members: dict[str, DraftType] = field(default_factory=dict)

    def types(self) -> list[DraftType]:
        """Return the interface, if there is one, and the members."""
        return [*([] if self.interface is None else [self.interface]), *self.members.values()]

    def directive(self) -> str:
        """Return the directive that names the discriminator."""
        stored = (
            "" if self.stored == self.discriminator else f", storedAs: {json.dumps(self.stored)}"
        )
        return f'@discriminator(field: "{self.discriminator}"{stored})'


@dataclass(slots=True, kw_only=True)
class DraftUnion:
    """Union of embedded types."""

    name: str
    variants: DraftVariants

    def text(self) -> str:
        """Return the definition."""
        names = " | ".join(each.name for each in self.variants.members.values())
        return f"union {self.name} {self.variants.directive()} = {names}"


@dataclass(slots=True, kw_only=True)
class DraftEnum:
    """Enum; its values by name, with the stored text."""

    name: str
    values: dict[str, str]

    def names(self) -> dict[str, str]:
        """Return the names of the values in the file, by stored text."""
        return {text: _NOT_VALUES.get(value, value) for value, text in self.values.items()}

    def text(self) -> str:
        """Return the definition."""
        lines = []
        for stored, name in self.names().items():
            lines.append(
                f"  {name}" + (f" @stored(as: {json.dumps(stored)})" if stored != name else "")
            )
        return "\n".join([f"enum {self.name} {{", *lines, "}"])


def reference_directive(by: str) -> str:
    """Return the directive of a reference by a field."""
    return f'@reference(by: "{by}")'


def back_reference_directive(field: str) -> str:
    """Return the directive of the list of documents that refer by a field."""
    return f'@referencedBy(field: "{field}")'


def _comment(text: str) -> str:
    """Return a comment of one line: a name in it may have any characters."""
    return "# " + _LINE_END.sub(" ", text)


def sdl(
    types: list[DraftType], unions: list[DraftUnion], enums: list[DraftEnum], header: list[str]
) -> str:
    """Return the file's text."""
    parts = ["\n".join(map(_comment, header))]
    first = {id(each.variants.types()[0]): each for each in unions}
    for each in types:
        union = first.get(id(each))
        parts += [each.text()] if union is None else [union.text(), each.text()]
    parts += [each.text() for each in enums]
    return "\n\n".join(parts) + "\n"
