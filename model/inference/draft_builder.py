"""ModelDraft of a model from profiles of collections and the relations between them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from revstream.model.compiler.validation.fields import KEPT_BESIDE, stored_name_problem
from revstream.model.definition import Scalar
from revstream.model.inference.draft_indexes import add_point_indexes, add_text_index
from revstream.model.inference.draft_references import (
    DraftReference,
    add_back_references,
    add_reference,
)
from revstream.model.inference.draft_types import (
    DraftEnum,
    DraftField,
    DraftType,
    DraftUnion,
    DraftVariants,
)
from revstream.model.inference.field_type import (
    FieldType,
    choose_id,
    choose_type,
    may_count,
    shares,
)
from revstream.model.inference.left_out import LEFT_OUT, is_left_out
from revstream.model.inference.naming_words import (
    enum_value,
    field_name,
    plural_word,
    singular_word,
    type_name,
)
from revstream.model.inference.profile import FieldProfile, ObjectProfile
from revstream.model.inference.relation import Relation
from revstream.model.inference.union_type import UnionProfile, choose_interface, short_name
from revstream.model.naming import camel_case, lower_first, upper_first

__all__ = ["CollectionFacts", "ModelDraft", "build_draft", "has_fields"]

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
        if name != "_id" and not is_left_out(name)
    )


def build_draft(
    collections: Mapping[str, CollectionFacts], relations: Sequence[Relation]
) -> ModelDraft:
    """Return the draft. Its names are not checked against those that the API takes."""
    builder = _Builder(collections, relations)
    for name, facts in collections.items():
        builder.add_entity(name, facts)
    add_back_references(builder.references, builder.entities)
    return ModelDraft(
        types=[*builder.documents(), *builder.embedded], enums=builder.enums, unions=builder.unions
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
        self.references: list[DraftReference] = []
        self._relations = {
            (each.candidate.collection, each.candidate.path): each for each in relations
        }
        self._names: dict[str, str] = {}
        for name in collections:
            self._names[name] = self._free_type(type_name(self._titles.get(name) or name))

    def add_entity(self, collection: str, facts: CollectionFacts) -> None:
        profile = facts.profile
        type_ = DraftType(
            name=self._names[collection], collection=collection, comments=[facts.comment]
        )
        if lower_first(type_.name) == camel_case(collection):
            type_.plural = plural_word(lower_first(type_.name))
        self.entities[collection] = type_
        counter = profile.fields.get(_COUNTER)
        type_.counted = counter is not None and may_count(counter, profile.count)
        if type_.counted:
            type_.comments.append(
                f"{json.dumps(_COUNTER)} counts the changes of a document: the gateway's writes "
                "increase it."
            )
        interface = choose_interface(profile)
        if interface is not None:
            self._add_variants(type_, interface)
        self._add_id(type_, profile.fields.get("_id"))
        shared = profile if interface is None else interface.shared
        self._add_fields(type_, shared, collection, (), facts.unique)
        for text, own in ({} if interface is None else interface.members).items():
            assert type_.variants is not None
            self._add_fields(type_.variants.members[text], own, collection, (), facts.unique)
        add_point_indexes(type_, facts.points, self.embedded)
        if facts.weights:
            add_text_index(type_, facts.weights, facts.language, self.embedded)

    def _add_variants(self, type_: DraftType, interface: UnionProfile) -> None:
        """Make an entity an interface, with members that have no fields yet."""
        stored = interface.discriminator
        type_.variants = DraftVariants(
            discriminator=field_name(stored), stored=stored, interface=type_
        )
        self._add_members(type_.variants, interface, type_.name)

    def _add_members(self, variants: DraftVariants, profile: UnionProfile, *before: str) -> None:
        """Add the members without fields.

        Args:
            before: Words before a name that another type has.
        """
        for text in sorted(profile.members):
            short = upper_first(field_name(short_name(text)))
            name = self._free_type(short, *(f"{each}{short}" for each in before))
            variants.members[text] = DraftType(name=name, variant=text, variants=variants)

    def documents(self) -> Iterator[DraftType]:
        """Yield the types of whole documents."""
        for each in self.entities.values():
            yield from [each] if each.variants is None else each.variants.types()

    def _free_type(self, *wanted: str) -> str:
        """Return the first of the names that no type has; the last with a number if need be."""
        # A type with the name of a scalar would take its place in all fields.
        taken = {*self._names.values(), *(each.value for each in Scalar)}
        taken |= {each.name for each in (*self.documents(), *self.embedded)}
        taken |= {each.name for each in self.unions} | {each.name for each in self.enums}
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
    ) -> None:
        for stored, each in profile.fields.items():
            top = not before
            if type_.variants is not None and stored == type_.variants.stored:
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
            relation = self._relations.get((collection, (*before, stored)))
            field = self._field(type_, stored, chosen, collection, before)
            field.comment = shares(each, profile.count)
            if stored in unique and top and _may_be_unique(chosen):
                if type_.collection is None:
                    type_.notes.append(
                        f"left out: a unique index over {json.dumps(stored)}, which not all types "
                        "have"
                    )
                else:
                    field.directives.append("@unique")
            type_.fields.append(field)
            # Lists that are empty in this type are JSON.
            if relation is not None and relation.candidate.lists == chosen.is_list:
                target = self._names[relation.candidate.target]
                added = add_reference(type_, field, relation, target)
                if type_.collection is not None:
                    self.references.append(added)

    def _field(
        self,
        type_: DraftType,
        stored: str,
        chosen: FieldType,
        collection: str,
        before: tuple[str, ...],
    ) -> DraftField:
        plain = field_name(stored)
        name = type_.field_name(stored, plain, f"{lower_first(type_.name)}{upper_first(plain)}")
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
        variants = DraftVariants(discriminator=field_name(stored), stored=stored)
        union = DraftUnion(name=self._free_type(*wanted), variants=variants)
        self.unions.append(union)
        self._add_members(variants, profile, upper_first(singular_word(name)), union.name)
        self.embedded += variants.types()
        for text, fields in profile.members.items():
            self._add_fields(variants.members[text], fields, collection, path, frozenset())
        return union.name
