"""Permissions of one caller: every read and write passes through them.

A resolver service limited to a scope (`within`) asks it for the rows of each entity. Fields are
checked in output, and in input as filters, orders or content. Comparisons of states use a model
without hidden fields. Source: docs/decisions/0026-access.md.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal

from revstream.model.definition import (
    Access,
    BackReference,
    Entity,
    Field,
    Model,
    ObjectType,
    Reference,
)
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.access.row_filter import ALL_ROWS, RowFilter, rows_of
from revstream.resolvers.errors import Forbidden
from revstream.resolvers.values.field_diff import FieldDiff

__all__ = ["OPEN", "Scope", "has_access", "members", "read_by"]

Roles = tuple[str, ...]
Right = Literal["write", "propose", "publish"]


class Scope:
    """Permissions of one caller on a model.

    Args:
        model: None for revstream itself, which may do everything.
    """

    def __init__(self, model: Model | None, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal
        # Most models say nothing of access: then there is nothing to look up, either.
        self._model = model if model is not None and has_access(model) else None
        self._rows: dict[str, RowFilter] = {}
        # Entities that passed the check before: the roles of a principal do not change.
        self._read_rows: dict[str, RowFilter] = {}
        self._compared: dict[FieldDiff, FieldDiff] = {}
        self._right: Right = "write"

    def acting(self, right: Right) -> Scope:
        """Return the same scope for proposing or publishing drafts: `write_rows` then asks for the
        roles of that right.
        """
        acting = copy.copy(self)
        acting._right = right
        return acting

    def read_rows(self, entity: Entity) -> RowFilter:
        """Return the rows of an entity that the caller may read.

        Raises:
            Forbidden: The caller may not read the entity.
        """
        found = self._read_rows.get(entity.name)
        if found is None:
            if self._model is None:
                return ALL_ROWS
            self._check(_roles_for(entity.access, "read"), "reading", entity.name)
            found = self._read_rows[entity.name] = self._rows_of(entity)
        return found

    def write_rows(self, entity: Entity) -> RowFilter:
        """Return the rows of an entity that the caller may write.

        Raises:
            Forbidden: The caller may not write the entity.
        """
        if self._model is None:
            return ALL_ROWS
        demands, doing = _demanded(entity, self._right)
        self._check(demands, doing, entity.name)
        return self._rows_of(entity)

    def rows(self, entity: Entity) -> RowFilter:
        """Return the rows that exist for the caller, for callers whose permission was checked."""
        return ALL_ROWS if self._model is None else self._rows_of(entity)

    def may_publish(self, entity: Entity) -> bool:
        return self._model is None or self._has(_demanded(entity, "publish")[0])

    def check_comment(self, entity: Entity) -> None:
        """Check that the caller may comment on documents of an entity.

        Raises:
            Forbidden: The caller may not read the entity, or may not comment on it.
        """
        self.read_rows(entity)
        if self._model is not None:
            demands = _roles_for(entity.access, "comment")
            self._check(demands, "commenting", entity.name)

    def check_publisher(self, entity: Entity, proposed_by: str | None, *, own: bool) -> None:
        """Check that the caller may publish a draft.

        Raises:
            Forbidden: The draft is the caller's own, and the model requires another publisher.
        """
        access = entity.access
        if self._model is None or access is None or access.publish_own or not own:
            return
        raise Forbidden(
            f"draft of {entity.name}: proposed by {proposed_by or 'an anonymous caller'}, "
            "expected another caller to publish it; ask someone else to do so",
            subject=entity.name,
        )

    def may_read_entity(self, entity: Entity) -> bool:
        return self._model is None or self._has(_roles_for(entity.access, "read"))

    def check_shown(self, entity: Entity) -> None:
        """Check that the caller may read an entity.

        Raises:
            Forbidden: The caller may not read the entity.
        """
        self.read_rows(entity)

    def may_read(self, kind: ObjectType, member: Field | Reference | BackReference) -> bool:
        return self._model is None or self._has(read_by(self._model, kind, member))

    def check_read(self, kind: ObjectType, member: Field | Reference | BackReference) -> None:
        """Check that the caller may read a field.

        Raises:
            Forbidden: The caller may not read that field.
        """
        if self._model is not None:
            name = f"{kind.name}.{member.name}"
            self._check(read_by(self._model, kind, member), "reading", name)

    def check_write(self, kind: ObjectType, field: Field) -> None:
        """Check that the caller may write a field.

        Raises:
            Forbidden: The caller may not write that field.
        """
        if self._model is not None:
            name = f"{kind.name}.{field.name}"
            self._check(_written_by(self._model, field), "writing", name)

    def check_content(
        self, kind: ObjectType, given: Mapping[str, Any] | None, *, merges: bool = False
    ) -> None:
        """Check the fields of a document by API names.

        Args:
            merges: missing fields stay; else an embedded document is replaced with all its fields.

        Raises:
            Forbidden: The caller may not write one of the fields.
        """
        if self._model is None:
            return
        if given and kind.discriminator is not None:
            for member in kind.discriminator.members:
                if isinstance(given.get(member.key), Mapping):
                    inner = self._model.member(member.type)
                    self.check_content(inner, given[member.key], merges=merges)
            return
        for field in kind.fields:
            if field.name not in (given or {}):
                continue
            value = (given or {})[field.name]
            if value is None and not merges:
                continue  # as if it was not given
            self.check_write(kind, field)
            if not isinstance(field.type, str):
                continue
            inner = self._model.embedded(field.type)
            if not merges or field.is_list or not isinstance(value, Mapping):
                self.check_whole(inner)
            elif field.discriminator is None:
                self.check_content(inner, value, merges=True)
            else:
                for member in field.discriminator.members:
                    self._check_member(self._model.embedded(member.type), value.get(member.key))

    def _check_member(self, kind: ObjectType, given: Any) -> None:
        """Check the patch of a union for one member; documents of another one are replaced."""
        if isinstance(given, Mapping):
            self.check_content(kind, given, merges=True)
        elif given is None:
            self.check_whole(kind)

    def check_increment(self, entity: Entity, given: Mapping[str, Any] | None) -> None:
        """Check the fields of an increment, whose refusal reveals their values.

        Raises:
            Forbidden: The caller may not read one of them, or may not write it.
        """
        if self._model is None or not given:
            return
        self.check_content(entity, given, merges=True)
        self.check_shown(entity)
        for field in entity.fields:
            if given.get(field.name) is not None:
                self.check_read(entity, field)

    def check_whole(self, kind: ObjectType, seen: frozenset[str] = frozenset()) -> None:
        """Check that the caller may write all fields of an entity.

        Raises:
            Forbidden: There is a field that the caller may not write.
        """
        if self._model is None or kind.name in seen:
            return
        for variant in self._model.variants(kind):
            for field in variant.fields:
                self.check_write(variant, field)
                if isinstance(field.type, str):
                    self.check_whole(self._model.embedded(field.type), seen | {kind.name})

    def check_path(self, kind: ObjectType, stored: Sequence[str]) -> None:
        """Check a path of stored names.

        Raises:
            Forbidden: The caller may not write the field at that path.
        """
        if self._model is None or not stored:
            return
        for variant in self._model.variants(kind):
            field = variant.stored_field(stored[0])
            if field is None:
                continue
            self.check_write(variant, field)
            if isinstance(field.type, str):
                inner = self._model.embedded(field.type)
                if len(stored) == 1 or field.is_list:
                    self.check_whole(inner)
                else:
                    self.check_path(inner, stored[1:])

    def check_named(self, kind: ObjectType, path: Sequence[str]) -> None:
        """Check a path of API names.

        Raises:
            Forbidden: The caller may not read all fields at that path.
        """
        if self._model is None or not path:
            return
        for variant in self._model.variants(kind):
            field = variant.field(path[0])
            if field is None:
                continue
            self.check_read(variant, field)
            if isinstance(field.type, str):
                inner = self._model.embedded(field.type)
                rest = [path[1:]] if len(path) > 1 else self._names(inner)
                for each in rest:
                    self.check_named(inner, each)

    def _names(self, kind: ObjectType) -> list[list[str]]:
        """Return the path of each field that documents of a type may have."""
        assert self._model is not None
        variants = self._model.variants(kind)
        return [[name] for name in {each.name for one in variants for each in one.fields}]

    def readable(self, entity: Entity, model: Model) -> tuple[Entity, Model]:
        """The same without the fields that the caller may not read: for comparisons of states."""
        if self._model is None:
            return entity, model
        return self._readable.entity(entity.name), self._readable

    def compared(self, comparison: FieldDiff) -> FieldDiff:
        """The same without those fields."""
        if self._model is None:
            return comparison
        found = self._compared.get(comparison)
        if found is None:
            found = FieldDiff(*self.readable(comparison.entity, comparison.model))
            self._compared[comparison] = found
        return found

    def writable(self, entity: Entity) -> Entity:
        """The same without the fields that the caller may not write: what is left out of a whole
        document is removed, and these are not the caller's to remove.
        """
        if self._model is None:
            return entity
        every = (*entity.fields, *entity.member_fields)
        # A field that one type of the documents refuses may be in any of them.
        kept = {f.stored for f in every if not self._has(_written_by(self._model, f))}
        return replace(
            entity,
            fields=tuple(f for f in entity.fields if f.stored not in kept),
            member_fields=tuple(f for f in entity.member_fields if f.stored not in kept),
        )

    @cached_property
    def _readable(self) -> Model:
        assert self._model is not None

        def pruned(kind: Any) -> Any:
            kept = tuple(f for f in kind.fields if self.may_read(kind, f))
            hidden = {f.stored for f in kind.fields} - {f.stored for f in kept}
            return replace(kind, fields=kept, hidden=frozenset(hidden))

        return replace(
            self._model,
            entities=tuple(map(pruned, self._model.entities)),
            embeddeds=tuple(map(pruned, self._model.embeddeds)),
            members=tuple(map(pruned, self._model.members)),
        )

    def _rows_of(self, entity: Entity) -> RowFilter:
        found = self._rows.get(entity.name)
        if found is None:
            assert self._model is not None
            found = self._rows[entity.name] = rows_of(self._model, entity, self.principal)
        return found

    def _has(self, demands: Sequence[Roles]) -> bool:
        return all(not self.principal.roles.isdisjoint(each) for each in demands)

    def _check(self, demands: Sequence[Roles], doing: str, name: str) -> None:
        for each in demands:
            if self.principal.roles.isdisjoint(each):
                raise Forbidden(
                    f"{name}: {doing} requires the role {' or '.join(each)}; use an account that "
                    "has it",
                    subject=name,
                )


OPEN = Scope(None)
"""Of revstream itself, and of models that say nothing of access."""


def has_access(model: Model) -> bool:
    """Return whether a model restricts access."""
    for kind in (*model.entities, *model.embeddeds, *model.members):
        if kind.access is not None or any(each.access for each in members(kind)):
            return True
    return False


def read_by(
    model: Model, kind: ObjectType, member: Field | Reference | BackReference
) -> Sequence[Roles]:
    """Return lists of roles; a reader needs one of each. The entity's own list is not among them.

    A reference reveals the id that it follows, so it needs the permission to read the id field.
    """
    found = list(_roles_for(member.access, "read"))
    match member:
        case Field(type=str(name)):
            found += _roles_for(model.embedded(name).access, "read")
        case Reference(by=by):
            field = kind.field(by)
            found += [] if field is None else read_by(model, kind, field)
        case BackReference(target=target, field=by):
            other = model.entity(target)
            field = other.field(by)
            found += [] if field is None else read_by(model, other, field)
    return found


def _written_by(model: Model, field: Field) -> Sequence[Roles]:
    found = list(_roles_for(field.access, "write"))
    if isinstance(field.type, str):
        found += _roles_for(model.embedded(field.type).access, "write")
    return found


def _demanded(entity: Entity, right: Right) -> tuple[Sequence[Roles], str]:
    """Return the role lists for a right, and what it lets do with the entity."""
    named = _roles_for(entity.access, right)
    doing = {"write": "writing", "propose": "proposing", "publish": "publishing"}
    if right != "write" and not named:
        return _roles_for(entity.access, "write"), doing["write"]
    return named, doing[right]


def _roles_for(access: Access | None, which: str) -> Sequence[Roles]:
    roles: Roles | None = None if access is None else getattr(access, which)
    return () if roles is None else (roles,)


def members(kind: ObjectType) -> Iterator[Field | Reference | BackReference]:
    """Return the fields and relations of a type."""
    yield from kind.fields
    yield from kind.references
    if isinstance(kind, Entity):
        yield from kind.back_references
