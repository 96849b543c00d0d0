"""Types of a drafted model: what is written to the file, before the compiler has accepted it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from revstream.model.naming import lower_first, upper_first

__all__ = ["DraftEnum", "DraftField", "DraftSearch", "DraftType", "DraftUnion", "sdl"]

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
        variant: Text in the discriminator, of a member of a union.
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
    comments: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    indexes: list[tuple[DraftField, ...]] = field(default_factory=list)
    search: DraftSearch | None = None

    def stored_field(self, stored: str) -> DraftField | None:
        """Return the field of that name in MongoDB."""
        return next((each for each in self.fields if each.stored == stored), None)

    def free_name(self, *wanted: str) -> str:
        """Return the first of the names that no field has; the last with a number if need be."""
        taken = {each.name for each in self.fields}
        numbered = (f"{wanted[-1]}{number}" for number in range(2, len(taken) + 3))
        return next(each for each in (*wanted, *numbered) if each not in taken)

    def text(self) -> str:
        """Return the definition."""
        head = f"type {self.name}"
        if self.collection is not None:
            facts = [f"name: {json.dumps(self.collection)}"]
            if self.plural is not None:
                facts.append(f'plural: "{self.plural}"')
            if not self.counted:
                facts.append("version: null")
            head += f" @collection({', '.join(facts)})"
        if self.variant is not None and self.variant != self.name:
            head += f" @variant(value: {json.dumps(self.variant)})"
        indexes = [f"@index(fields: [{json.dumps(each)}])" for each in _names(self.indexes)]
        search = [] if self.search is None else [self.search.text()]
        head = " ".join([head, *self.directives, *indexes, *search])
        lines = [*map(_comment, self.comments)]
        if not self.fields:
            return "\n".join([*lines, head, *map(_comment, self.notes)])
        lines += [f"{head} {{", *(each.line() for each in self.fields)]
        lines += [f"  {_comment(each)}" for each in self.notes]
        return "\n".join([*lines, "}"])


@dataclass(slots=True, kw_only=True)
class DraftUnion:
    """Union of embedded types.

    Attributes:
        discriminator: Name in the API of the field that tells them apart.
        stored: Its name in MongoDB.
        members: The types, by the text in that field.
        names: Names of the members' fields by stored name; the same in all members.
    """

    name: str
    discriminator: str
    stored: str
    members: dict[str, DraftType] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def field_name(self, stored: str, *wanted: str) -> str:
        """Return the name of a field in all members: the first that no other one has."""
        if stored not in self.names:
            taken = self.names.values()
            numbered = (f"{wanted[-1]}{number}" for number in range(2, len(taken) + 3))
            self.names[stored] = next(each for each in (*wanted, *numbered) if each not in taken)
        return self.names[stored]

    def rename_field(self, name: str) -> None:
        """Rename a field in all members, with the name of the union before it."""
        stored = next(each for each, known in self.names.items() if known == name)
        del self.names[stored]
        plain = name.lstrip("_")
        self.field_name(stored, f"{lower_first(self.name)}{upper_first(plain)}")
        if name == self.discriminator:
            self.discriminator = self.names[stored]
        for member in self.members.values():
            for each in member.fields:
                if each.stored == stored:
                    each.name = self.names[stored]

    def text(self) -> str:
        """Return the definition."""
        stored = (
            "" if self.stored == self.discriminator else f", storedAs: {json.dumps(self.stored)}"
        )
        names = " | ".join(each.name for each in self.members.values())
        return f'union {self.name} @discriminator(field: "{self.discriminator}"{stored}) = {names}'


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


def _comment(text: str) -> str:
    """Return a comment of one line: a name in it may have any characters."""
    return "# " + _LINE_END.sub(" ", text)


def sdl(
    types: list[DraftType], unions: list[DraftUnion], enums: list[DraftEnum], header: list[str]
) -> str:
    """Return the file's text."""
    parts = ["\n".join(map(_comment, header))]
    first = {id(each.members[text]): each for each in unions for text in [*each.members][:1]}
    for each in types:
        union = first.get(id(each))
        parts += [each.text()] if union is None else [union.text(), each.text()]
    parts += [each.text() for each in enums]
    return "\n\n".join(parts) + "\n"
