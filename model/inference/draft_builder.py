"""ModelDraft of a model from profiles of collections and the relations between them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from revstream.model.compiler.validation.fields import KEPT_BESIDE, stored_name_problem
from revstream.model.compiler.validation.search import LANGUAGES
from revstream.model.definition import Scalar
from revstream.model.inference.draft_types import (
    DraftEnum,
    DraftField,
    DraftSearch,
    DraftType,
    DraftUnion,
)
from revstream.model.inference.field_type import FieldType, choose_id, choose_type, shares
from revstream.model.inference.naming_words import (
    enum_value,
    field_name,
    plural_word,
    reference_base,
    singular_word,
    type_name,
)
from revstream.model.inference.profile import FieldProfile, Kind, ObjectProfile
from revstream.model.inference.relation import Relation
from revstream.model.inference.union_type import UnionProfile
from revstream.model.naming import camel_case, lower_first, upper_first

__all__ = ["CollectionFacts", "ModelDraft", "build_draft", "has_fields"]

LEFT_OUT = {
    "__v": "Mongoose's version key",
    "_class": "Spring Data's class name",
    "_class_id": "Beanie's class name",
}
"""Fields of libraries that say nothing about the data, with the reason."""
_COUNTER = "version"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionFacts:
    """Facts about a collection beside its documents.

    Attributes:
        profile: Its documents.
        unique: Stored names of the fields that a unique index covers alone.
        points: Stored paths of the fields that an index of kind 2dsphere covers alone.
        weights: Weights of the fields of its text index, by stored path.
        language: The language of its text index.
        comment: The line above the type.
        title: Name that the type has elsewhere.
    """

    profile: ObjectProfile
    unique: frozenset[str] = frozenset()
    points: frozenset[str] = frozenset()
    weights: Mapping[str, int] = field(default_factory=dict)
    language: str = "none"
    comment: str = ""
    title: str | None = None


@dataclass(slots=True, kw_only=True)
class ModelDraft:
    """Types and enums, entities first."""

    types: list[DraftType]
    enums: list[DraftEnum]
    unions: list[DraftUnion] = field(default_factory=list)


def has_fields(profile: ObjectProfile) -> bool:
    """Return whether a model can name a field of the documents, beside the id."""
    return any(
        choose_type(each, profile.count)
        for name, each in profile.fields.items()
        if name not in {"_id", *KEPT_BESIDE, *LEFT_OUT} and not stored_name_problem(name)
    )


def build_draft(
    collections: Mapping[str, CollectionFacts], relations: Sequence[Relation]
) -> ModelDraft:
    """Return the draft. Its names are not checked against those that the API takes."""
    builder = _Builder(collections, relations)
    for name, facts in collections.items():
        builder.add_entity(name, facts)
    for relation in relations:
        builder.add_back_reference(relation)
    entities = [*builder.entities.values()]
    return ModelDraft(
        types=[*entities, *builder.embedded], enums=builder.enums, unions=builder.unions
    )


def _may_be_unique(chosen: FieldType) -> bool:
    return chosen.fields is None and chosen.scalar not in (Scalar.JSON, Scalar.POINT)


class _Builder:
    def __init__(
        self, collections: Mapping[str, CollectionFacts], relations: Sequence[Relation]
    ) -> None:
        self._titles = {name: facts.title for name, facts in collections.items()}
        self.entities: dict[str, DraftType] = {}
        self.embedded: list[DraftType] = []
        self.enums: list[DraftEnum] = []
        self.unions: list[DraftUnion] = []
        self._relations = {
            (each.candidate.collection, each.candidate.path): each for each in relations
        }
        self._names: dict[str, str] = {}
        for name in collections:
            self._names[name] = self._free_type(type_name(self._titles.get(name) or name))
        # Names of the references by collection and path, for the other direction.
        self._references: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}

    def add_entity(self, collection: str, facts: CollectionFacts) -> None:
        profile = facts.profile
        type_ = DraftType(
            name=self._names[collection], collection=collection, comments=[facts.comment]
        )
        if lower_first(type_.name) == camel_case(collection):
            type_.plural = plural_word(lower_first(type_.name))
        self.entities[collection] = type_
        counter = profile.fields.get(_COUNTER)
        type_.counted = (
            counter is not None
            and counter.count == profile.count
            and not counter.rarely_missing
            and counter.kinds_of_values() <= {Kind.INT, Kind.LONG}
            and Kind.NULL not in counter.kinds
        )
        self._add_id(type_, profile.fields.get("_id"))
        self._add_fields(type_, profile, collection, (), facts.unique)
        for stored in sorted(facts.points):
            path = self._path(type_, stored)
            if path and path[-1].type_text.rstrip("!") == Scalar.POINT.value:
                type_.indexes.append(path)
        if facts.weights:
            self._add_search(type_, facts)

    def _add_search(self, type_: DraftType, facts: CollectionFacts) -> None:
        paths = {stored: self._path(type_, stored) for stored in facts.weights}
        texts = Scalar.STRING.value
        fits = all(path and path[-1].type_text.strip("[]!") == texts for path in paths.values())
        if fits and facts.language in LANGUAGES:
            type_.search = DraftSearch(
                paths=[*paths.values()],
                weights=[*facts.weights.values()],
                language=facts.language,
            )
        else:
            type_.notes.append(
                "left out: a text index over other fields than text, or in an unknown language"
            )

    def _path(self, type_: DraftType, stored: str) -> tuple[DraftField, ...]:
        """Return the fields that lead to a stored path; none if a type has no such field."""
        found: list[DraftField] = []
        inner: DraftType | None = type_
        for name in stored.split("."):
            field = inner.stored_field(name) if inner else None
            if field is None:
                return ()
            found.append(field)
            kind = field.type_text.strip("[]!")
            inner = next((each for each in self.embedded if each.name == kind), None)
        return tuple(found)

    def add_back_reference(self, relation: Relation) -> None:
        """Add the list of the documents that refer to a target, if they do so at their top."""
        of = relation.candidate
        named = self._references.get((of.collection, of.path))
        if named is None or len(of.path) > 1:
            return
        reference, by = named
        target, source = self.entities[of.target], self.entities[of.collection]
        many = source.plural or field_name(of.collection)
        others = [
            each
            for each in self._relations.values()
            if each.candidate.target == of.target
            and each.candidate.collection == of.collection
            and len(each.candidate.path) == 1
        ]
        long = f"{many}By{upper_first(reference)}"
        name = target.free_name(*([many] if len(others) == 1 else []), long)
        target.fields.append(
            DraftField(
                name=name,
                stored=None,
                type_text=f"[{source.name}!]!",
                directives=[f'@referencedBy(field: "{by}")'],
            )
        )

    def _free_type(self, *wanted: str) -> str:
        """Return the first of the names that no type has; the last with a number if need be."""
        # A type with the name of a scalar would take its place in all fields.
        taken = {*self._names.values(), *(each.value for each in Scalar)}
        taken |= {each.name for each in self.embedded} | {each.name for each in self.unions}
        taken |= {each.name for each in self.enums}
        numbered = (f"{wanted[-1]}{number}" for number in range(2, len(taken) + 3))
        return next(each for each in (*wanted, *numbered) if each not in taken)

    def _add_id(self, type_: DraftType, profile: FieldProfile | None) -> None:
        scalar = choose_id(profile)
        comment = shares(profile, profile.count) if profile else None
        type_.fields.append(
            DraftField(name="id", stored="_id", type_text=f"{scalar.value}!", comment=comment)
        )

    def _add_fields(
        self,
        type_: DraftType,
        profile: ObjectProfile,
        collection: str,
        before: tuple[str, ...],
        unique: frozenset[str],
        union: DraftUnion | None = None,
    ) -> None:
        for stored, each in profile.fields.items():
            top = not before
            if union is not None and stored == union.stored:
                continue
            if stored in KEPT_BESIDE or (top and stored == "_id"):
                continue
            if top and stored == _COUNTER and type_.counted:
                continue
            reason = LEFT_OUT.get(stored) or stored_name_problem(stored)
            chosen = choose_type(each, profile.count)
            if chosen is None:
                reason = reason or "nothing but null was seen"
            if reason or chosen is None:
                type_.notes.append(f"left out: {json.dumps(stored)}: {reason}")
                continue
            # The members of a union have the same names for their fields, without references.
            relation = None if union else self._relations.get((collection, (*before, stored)))
            field = self._field(type_, stored, chosen, collection, before, union)
            field.comment = shares(each, profile.count)
            if stored in unique and top and _may_be_unique(chosen):
                field.directives.append("@unique")
            type_.fields.append(field)
            if relation is not None:
                self._relate(type_, field, relation)

    def _field(
        self,
        type_: DraftType,
        stored: str,
        chosen: FieldType,
        collection: str,
        before: tuple[str, ...],
        union: DraftUnion | None,
    ) -> DraftField:
        plain = field_name(stored)
        name = type_.free_name(plain, f"{lower_first(type_.name)}{upper_first(plain)}")
        if union is not None:
            name = union.field_name(stored, plain)
        if chosen.values:
            one = self._enum(type_, singular_word(name) if chosen.is_list else name, chosen)
        elif chosen.union is not None:
            one = self._join(type_, name, chosen.union, collection, (*before, stored))
        elif chosen.fields is not None:
            one = self._embed(type_, name, chosen.fields, collection, (*before, stored))
        else:
            assert chosen.scalar is not None
            one = chosen.scalar.value
        if chosen.is_list:
            one = f"[{one}{'!' if chosen.item_required else ''}]"
        return DraftField(
            name=name, stored=stored, type_text=one + ("!" if chosen.required else "")
        )

    def _enum(self, type_: DraftType, name: str, chosen: FieldType) -> str:
        values: dict[str, str] = {}
        for text in chosen.values:
            value = enum_value(text)
            if value in values:
                # Two texts with one name, such as "Open" and "open".
                return Scalar.STRING.value
            values[value] = text
        wanted = self._free_type(f"{type_.name}{upper_first(name)}")
        enum = DraftEnum(name=wanted, values=values)
        self.enums.append(enum)
        return enum.name

    def _embed(
        self,
        type_: DraftType,
        name: str,
        profile: ObjectProfile,
        collection: str,
        path: tuple[str, ...],
    ) -> str:
        # `address` and `addresses` have the same singular.
        wanted = (f"{type_.name}{upper_first(each)}" for each in (singular_word(name), name))
        inner = DraftType(name=self._free_type(*wanted))
        self.embedded.append(inner)
        self._add_fields(inner, profile, collection, path, frozenset())
        return inner.name

    def _join(
        self,
        type_: DraftType,
        name: str,
        profile: UnionProfile,
        collection: str,
        path: tuple[str, ...],
    ) -> str:
        """Add a union with its members, and return its name."""
        wanted = [f"{type_.name}{upper_first(each)}" for each in (singular_word(name), name)]
        stored = profile.discriminator
        union = DraftUnion(
            name=self._free_type(*wanted), discriminator=field_name(stored), stored=stored
        )
        union.names[stored] = union.discriminator
        self.unions.append(union)
        for text, fields in profile.members.items():
            short = upper_first(field_name(re.split(r"[.$:/\\]", text)[-1]))
            longer = (f"{upper_first(singular_word(name))}{short}", f"{union.name}{short}")
            member = DraftType(name=self._free_type(short, *longer), variant=text)
            self.embedded.append(member)
            union.members[text] = member
            self._add_fields(member, fields, collection, path, frozenset(), union)
        return union.name

    def _relate(self, type_: DraftType, field: DraftField, relation: Relation) -> None:
        """Add the reference behind its id field, which is renamed if it has the better name."""
        target = self._names[relation.candidate.target]
        found = "" if relation.found == 1 else f", {relation.found:.0%} of them exist"
        many = relation.candidate.lists
        base = reference_base(field.name)
        if base is None:
            base, plain = field.name, field.name
            field.name = type_.free_name(f"{singular_word(plain)}Ids" if many else f"{plain}Id")
        elif many:
            base = plural_word(base)
        reference = type_.free_name(base, f"{base}{target}")
        if many:
            field.type_text = field.type_text.replace(field.type_text.strip("[]!"), "ID")
        else:
            field.type_text = "ID!" if field.type_text.endswith("!") else "ID"
        if found:
            field.comment = ", ".join(filter(None, [field.comment, found.removeprefix(", ")]))
        type_.fields.append(
            DraftField(
                name=reference,
                stored=None,
                type_text=f"[{target}!]!" if many else target,
                directives=[f'@reference(by: "{field.name}")'],
            )
        )
        at = (relation.candidate.collection, relation.candidate.path)
        self._references[at] = (reference, field.name)
