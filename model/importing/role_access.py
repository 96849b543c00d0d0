"""`@access` from the roles of Atlas App Services.

Guarantees: no caller sees or writes more than in App Services. There, each role has documents of
its own; here, one row rule holds for all roles. Roles with other documents are named in comments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from revstream.model.importing.role_rights import READ, WRITE, Right, Role, read_roles
from revstream.model.importing.row_condition import Untranslated, rows_text
from revstream.model.inference.draft_builder import ModelDraft
from revstream.model.inference.draft_types import DraftField, DraftType, reference_directive

__all__ = ["add_access"]

_NOBODY = "nobody"


def add_access(
    draft: ModelDraft, type_: DraftType, rules: Mapping[str, Any], given: dict[str, str]
) -> None:
    """Add the rules of a collection to its type, whose names are final.

    Args:
        rules: Content of `rules.json`; App Services refuses all if it has no roles.
        given: Conditions by name of a role, of all collections so far.
    """
    fields = [each for each in type_.fields if each.stored not in (None, "_id")]
    names = [str(each.stored) for each in fields]
    roles = read_roles(rules, names)
    _name_roles(roles, names, str(type_.collection), given)
    if not roles:
        type_.comments.append("no roles in App Services: nobody may read it")
    rows = _choose_rows(draft, type_, roles)
    read, write = (_holders(roles, action, None) for action in (READ, WRITE))
    for each in roles:
        type_.comments += _comments(each, named=each.name in [*(read or ()), *(write or ())])
    parts = [
        f"{action}: {json.dumps(names)}"
        for action, names in ((READ, read), (WRITE, write))
        if names is not None
    ]
    if rows is not None:
        parts.append(f"rows: {json.dumps(rows)}")
    if parts:
        type_.directives.append(f"@access({', '.join(parts)})")
    for field in fields:
        _restrict(type_, field, roles)


def _choose_rows(draft: ModelDraft, type_: DraftType, roles: list[Role]) -> str | None:
    """Return the row rule, and take the rights of the roles that have another one."""
    texts: dict[int, str | None] = {}
    for number, role in enumerate(roles):
        if not role.rights:
            continue
        try:
            texts[number] = rows_text(role.rows, type_, draft) if role.rows else None
        except Untranslated as error:
            role.problems.append(f"{error}; the role has no rights here")
            role.rights = role.declared = frozenset()
    # The narrowest: a rule rather than none.
    chosen = next((each for each in texts.values() if each is not None), None)
    for number, text in texts.items():
        if text != chosen:
            documents = "all documents" if text is None else f"the documents {text}"
            what = " and writes" if any(a == WRITE for a, _ in roles[number].rights) else ""
            roles[number].problems.append(
                f"it reads{what} {documents}; one rule holds for all roles here, and it has no "
                "rights"
            )
            roles[number].rights = frozenset()
    return chosen


def _name_roles(
    roles: list[Role], fields: list[str], collection: str, given: dict[str, str]
) -> None:
    """Say who has each role; another name, if that of another collection is given otherwise."""
    everything = {(action, name) for action in (READ, WRITE) for name in fields}
    # App Services gives the first role that fits; a role with all rights hides nothing.
    before: list[str] = []
    for role in roles:
        role.callers = f"callers with {role.given}" if role.given else "all callers"
        if before:
            role.callers += f" and without {', '.join(before)}"
        if given.setdefault(role.name, role.callers) != role.callers:
            role.name = f"{collection}-{role.name}"
            given[role.name] = role.callers
        if role.given and not (role.rows is None and role.declared == everything):
            before.append(role.given)


def _comments(role: Role, *, named: bool) -> list[str]:
    name = json.dumps(role.name)
    found = [f"role {name}: App Services gave it to {role.callers}"] if named else []
    found += [f"not translated: role {name}: {each}" for each in dict.fromkeys(role.problems)]
    return found


def _holders(roles: list[Role], action: str, stored: str | None) -> list[str] | None:
    """Return the roles that have a right, to one field or any; None if all callers have it."""
    holders = [each for each in roles if _has(each.rights, action, stored)]
    public = next((each for each in holders if not each.given), None)
    if public is not None:
        before = [each for each in roles[: roles.index(public)] if each.given]
        if all(
            _has(each.declared, action, stored) and each.rows in (None, public.rows)
            for each in before
        ):
            return None
    return [*dict.fromkeys(each.name for each in holders)] or [_NOBODY]


def _has(rights: frozenset[Right], action: str, stored: str | None) -> bool:
    return any(a == action and stored in (None, name) for a, name in rights)


def _restrict(type_: DraftType, field: DraftField, roles: list[Role]) -> None:
    """Add `@access` to a field that fewer roles may read or write than the type."""
    parts: dict[str, str] = {}
    for action in (READ, WRITE):
        names = _holders(roles, action, field.stored)
        if names is not None and names != _holders(roles, action, None):
            parts[action] = f"{action}: {json.dumps(names)}"
    if not parts:
        return
    field.directives.append(f"@access({', '.join(parts.values())})")
    if READ in parts:
        for each in type_.fields:
            if reference_directive(field.name) in each.directives:
                each.directives.append(f"@access({parts[READ]})")
