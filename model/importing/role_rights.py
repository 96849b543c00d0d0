"""Rights of the roles of Atlas App Services: what each may read and write of a collection.

Guarantees: a right that is not understood is not given.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from revstream.model.importing.row_condition import (
    Row,
    Untranslated,
    joined,
    parse_rows,
    split,
)

__all__ = ["READ", "WRITE", "Right", "Role", "read_roles"]

READ = "read"
WRITE = "write"
Right = tuple[str, str]
"""Action and stored name of a field."""


@dataclass(slots=True, kw_only=True)
class Role:
    """Role of a collection.

    Attributes:
        given: Condition about the caller; empty if all callers have the role.
        by_document: Whether App Services chooses the role by the document, too.
        callers: Callers that get the role, in words.
        rows: Documents that the role sees; None for all.
        declared: Rights that App Services gives.
        rights: Those of them that revstream can give: without what an earlier role refuses.
        problems: Parts that are not translated.
    """

    name: str
    given: str
    by_document: bool
    callers: str = ""
    rows: Row | None = None
    declared: frozenset[Right] = frozenset()
    rights: frozenset[Right] = frozenset()
    problems: list[str] = field(default_factory=list)


def read_roles(rules: Mapping[str, Any], fields: Iterable[str]) -> list[Role]:
    """Return the roles in order, up to the one that all callers have.

    Args:
        rules: Content of `rules.json`.
        fields: Stored names of the collection's fields.
    """
    names = [*fields]
    narrowed, refusal = _filters(rules.get("filters"))
    roles: list[Role] = []
    refused: set[Right] = set()
    for number, each in enumerate(_mappings(rules.get("roles"))):
        role = _role(each, names, f"role{number + 1}")
        if refusal is not None:
            role.problems.append(refusal)
            role.rights = frozenset()
        parts = [part for part in (role.rows, narrowed) if part is not None]
        role.rows = joined("and", parts) if parts else None
        role.rights -= refused
        roles.append(role)
        if role.by_document:
            # App Services does not ask the next role about these documents.
            refused |= {(a, name) for a in (READ, WRITE) for name in names} - role.declared
        elif not role.given:
            break
    return roles


def _role(source: Mapping[str, Any], names: list[str], unnamed: str) -> Role:
    user, document = split(source.get("apply_when", {}))
    name = source.get("name")
    role = Role(
        name=name if isinstance(name, str) and name.strip() else unnamed,
        given=json.dumps(user[0] if len(user) == 1 else {"%and": user}) if user else "",
        by_document=bool(document),
    )
    role.declared = frozenset(_rights(source, names, role.problems))
    try:
        rows = [parse_rows(each) for each in document]
        of_filters, write = _document_filters(source.get("document_filters"))
        rows.append(parse_rows(of_filters) if of_filters is not False else None)
    except Untranslated as error:
        role.problems.append(f"{error}; the role has no rights here")
        role.declared = role.rights = frozenset()
        return role
    if of_filters is False:
        role.declared = frozenset()
    elif not write:
        role.declared = frozenset(each for each in role.declared if each[0] == READ)
        if source["document_filters"].get("write"):
            role.problems.append('other "document_filters" to write than to read; it cannot write')
    role.rights = role.declared
    kept = [each for each in rows if each is not None]
    role.rows = joined("and", kept) if kept else None
    return role


def _document_filters(filters: object) -> tuple[Any, bool]:
    """Return the condition to see a document, and whether it is enough to write."""
    if filters is None:
        return True, True
    if not isinstance(filters, Mapping):
        raise Untranslated(json.dumps({"document_filters": filters}))
    read, write = filters.get("read", False), filters.get("write", False)
    if read is False:
        # Who may write may read.
        read = write
    if read is False:
        return False, False
    return (True if read == {} else read), write in (True, {}) or write == read


def _rights(source: Mapping[str, Any], names: list[str], problems: list[str]) -> Iterable[Right]:
    whole = {action: _given(source, action, "", problems) for action in (READ, WRITE)}
    fields, others = source.get("fields"), source.get("additional_fields")
    fields = fields if isinstance(fields, Mapping) else {}
    others = others if isinstance(others, Mapping) else {}
    rest = {action: _given(others, action, "additional_fields.", problems) for action in whole}
    all_or_none = _given(source, "insert", "", problems), _given(source, "delete", "", problems)
    found: set[Right] = set()
    for name in names:
        own = fields.get(name)
        one = rest
        if isinstance(own, Mapping):
            one = {action: _given(own, action, f"fields.{name}.", problems) for action in whole}
            if own.get("fields"):
                problems.append(f'"fields.{name}.fields"; rights of "{name}" hold for all of it')
        writes = one[WRITE] if whole[WRITE] is None else whole[WRITE]
        reads = one[READ] if whole[READ] is None else whole[READ]
        if writes:
            found.add((WRITE, name))
        if reads or writes:
            found.add((READ, name))
    if any(action == WRITE for action, _ in found) and all_or_none != (True, True):
        problems.append('"write" without "insert" and "delete"; it cannot write')
        found = {each for each in found if each[0] == READ}
    return found


def _given(source: Mapping[str, Any], action: str, at: str, problems: list[str]) -> bool | None:
    """Return whether an action is allowed; None if nothing is said."""
    value = source.get(action)
    if value is None or isinstance(value, bool):
        return value
    if value == {}:
        return True
    problems.append(f'"{at}{action}": {json.dumps(value)}; not allowed here')
    return False


def _filters(filters: object) -> tuple[Row | None, str | None]:
    """Return the condition that filters add for all callers, or why there is none."""
    found: list[Row] = []
    for each in _mappings(filters):
        shown = f"filter {json.dumps(each.get('name', ''))}"
        if each.get("apply_when", {}) not in ({}, True) or each.get("projection"):
            return None, f"{shown}, which the role has no rights without"
        try:
            row = parse_rows(each.get("query", {}))
        except Untranslated as error:
            return None, f"{shown}: {error}; the role has no rights without it"
        if row is not None:
            found.append(row)
    return (joined("and", found) if found else None), None


def _mappings(values: object) -> list[Mapping[str, Any]]:
    found = values if isinstance(values, list) else []
    return [each for each in found if isinstance(each, Mapping)]
