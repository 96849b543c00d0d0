"""Row filter: a row rule with the claims of one caller.

A claim that is missing or null is unknown. An unknown value never matches, also inside of `not`. So
a rule with claims of authenticated callers shows anonymous ones only rows that match without them.
Source: docs/decisions/0026-access.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphql.language import (
    BooleanValueNode,
    EnumValueNode,
    FloatValueNode,
    IntValueNode,
    ListValueNode,
    NullValueNode,
    ObjectValueNode,
    StringValueNode,
    ValueNode,
    VariableNode,
    parse_value,
)

from revstream.model.definition import Entity, Model
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.errors import BadUserInput, Forbidden
from revstream.resolvers.filters.expression import EVERYTHING, Condition, all_of, paths
from revstream.resolvers.filters.mongo_query import to_query
from revstream.resolvers.filters.parser import parse_where
from revstream.resolvers.filters.predicate import compile_predicate
from revstream.streams.mongo.driver.codecs import Document

__all__ = ["ALL_ROWS", "RowFilter", "claims_named", "mistakes_in_rules", "rows_of"]

_NOTHING: Mapping[str, Any] = {"or": []}
_EVERYTHING: Mapping[str, Any] = {"and": []}
# Kept for each caller.
_MOST_WIDENED = 50


class RowFilter:
    """Documents of one entity that exist for a caller.

    Attributes:
        limits: whether there are others.
        condition: over stored paths.
        query: the same as a MongoDB query.
        fields: stored paths that `allow` needs.
    """

    __slots__ = ("_allows", "_version", "_widened", "condition", "fields", "limits", "query")

    def __init__(self, condition: Condition, version: str | None = None) -> None:
        self.limits = condition != EVERYTHING
        self.condition = condition
        self.query = to_query(condition)
        self.fields = paths(condition)
        self._version = version
        self._allows = compile_predicate(condition)
        self._widened: dict[frozenset[str] | None, frozenset[str]] = {}

    def allow(self, document: Mapping[str, Any] | None) -> bool:
        """A state of a document, with its `_id`; none of it is nothing to be seen."""
        return not self.limits or (document is not None and self._allows(document))

    def allowed(self, documents: Sequence[Document | None]) -> list[Document | None]:
        """Replace documents that do not exist for the caller with None."""
        if not self.limits:
            return list(documents)
        return [each if self.allow(each) else None for each in documents]

    def allow_version(self, record: Mapping[str, Any]) -> bool:
        """A record of the archive that was read with `fields`, by its own content. A deletion has
        none.
        """
        if not self.limits:
            return True
        content = record.get("full")
        if record["op"] == "DELETE" or content is None:
            return False
        state = {**content, "_id": record["doc"]}
        if self._version is not None:
            state[self._version] = record["v"]
        return self._allows(state)

    def limited(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Restrict a query over documents."""
        if not self.limits:
            return dict(query)
        return {"$and": [query, self.query]} if query else dict(self.query)

    def narrowed(self, where: Condition | None) -> Condition | None:
        """Restrict a filter."""
        if not self.limits:
            return where
        return self.condition if where is None else all_of([self.condition, where])

    def widened(self, fields: frozenset[str] | None) -> frozenset[str] | None:
        """Fields to be read, with those that `allow` looks at."""
        if not self.limits:
            return fields
        found = self._widened.get(fields)
        if found is None:
            found = (fields or frozenset()) | self.fields
            if len(self._widened) < _MOST_WIDENED:
                # An operation asks for the same ones each time.
                self._widened[fields] = found
        return found

    def facts(self, facts: frozenset[str]) -> frozenset[str]:
        """Facts of versions to be read: what one changed is judged by the one before."""
        return facts | {"prev"} if self.limits and "changed" in facts else facts


ALL_ROWS = RowFilter(EVERYTHING)


def rows_of(model: Model, entity: Entity, principal: Principal) -> RowFilter:
    """Return the rows of an entity that exist for a caller.

    Raises:
        Forbidden: A claim is of another type than the field that it is compared with.
    """
    text = None if entity.access is None else entity.access.rows
    if text is None:
        return ALL_ROWS
    rule = parse_value(text)
    assert isinstance(rule, ObjectValueNode)  # checked with the model
    try:
        condition = parse_where(model, entity, _filter(rule, principal, True))
    except BadUserInput as exc:
        raise Forbidden(
            f"{entity.name}: the caller's claims do not fit the row rule: {exc.message}"
        ) from exc
    return RowFilter(condition, entity.version)


class _Unknown(Principal):
    """Caller without claims, and without known roles."""

    def claim(self, name: str) -> Any:
        return None


def mistakes_in_rules(model: Model) -> list[str]:
    """Return what is wrong in the constants of row rules, whatever the caller: one text for a rule.

    The model is checked before for names and types; this finds a longitude of 200.
    """
    mistakes: list[str] = []
    for entity in model.entities:
        if entity.access is None or entity.access.rows is None:
            continue
        rule = _object(parse_value(entity.access.rows))
        try:
            parse_where(model, entity, _filter(rule, _Unknown(), True))
        except BadUserInput as exc:
            mistakes.append(f"{entity.name}: @access(rows:) {exc.message}; correct the rule")
    return mistakes


def claims_named(model: Model) -> frozenset[str]:
    """The claims that decide about rows."""
    rules = (each.access.rows for each in model.entities if each.access is not None)
    return frozenset(name for rule in rules if rule for name in _variables(parse_value(rule)))


def _variables(node: ValueNode) -> Iterator[str]:
    match node:
        case VariableNode():
            yield node.name.value
        case ListValueNode():
            for item in node.values:
                yield from _variables(item)
        case ObjectValueNode():
            for entry in node.fields:
                yield from _variables(entry.value)


def _filter(rule: ObjectValueNode, principal: Principal, positive: bool) -> Document:
    """Return the rule as a `where` argument. `positive`: unknown is false; in a `not` it is true.

    A field with an unknown part is unknown as a whole, which never shows more.
    """
    made: Document = {}
    for entry in rule.fields:
        name, value = entry.name.value, entry.value
        if name in ("and", "or"):
            parts = value.values if isinstance(value, ListValueNode) else (value,)
            made[name] = [_filter(_object(each), principal, positive) for each in parts]
        elif name == "not":
            made[name] = _filter(_object(value), principal, not positive)
        else:
            try:
                made[name] = _value(value, principal)
            except LookupError:
                return dict(_NOTHING if positive else _EVERYTHING)
    return made


def _object(node: ValueNode) -> ObjectValueNode:
    assert isinstance(node, ObjectValueNode)  # checked with the model
    return node


def _value(node: ValueNode, principal: Principal) -> Any:
    """Return a constant or the value of a claim.

    Raises:
        LookupError: The claim is unknown.
    """
    match node:
        case VariableNode():
            value = principal.claim(node.name.value)
            if value is None or (isinstance(value, list) and None in value):
                raise LookupError(node.name.value)
            return value
        case ListValueNode():
            return [_value(each, principal) for each in node.values]
        case ObjectValueNode():
            return {each.name.value: _value(each.value, principal) for each in node.fields}
        case IntValueNode():
            return int(node.value)
        case FloatValueNode():
            return float(node.value)
        case NullValueNode():
            return None
        case StringValueNode() | BooleanValueNode() | EnumValueNode():
            return node.value
    raise AssertionError(node.kind)  # checked with the model
