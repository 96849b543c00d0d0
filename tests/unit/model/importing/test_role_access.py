"""`@access` that is made from roles of Atlas App Services gives no caller more than these did."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import product
from typing import Any

from graphql.language import ListValueNode, ObjectValueNode, ValueNode, VariableNode, parse_value
from hypothesis import given
from hypothesis import strategies as st

from revstream.model.compiler.loader import read_model
from revstream.model.definition import Access, Entity
from revstream.model.importing.collection_schema import CollectionSchema, draft_of
from revstream.model.importing.role_access import add_access
from revstream.model.inference.accepted_names import accepted_text

FIELDS = ("owner", "org", "a", "b")
SCHEMA = {
    "bsonType": "object",
    "properties": {name: {"bsonType": "string"} for name in ("_id", *FIELDS)},
}
CALLERS = [
    {"sub": sub, "org": org, "staff": staff, "banned": banned}
    for sub, org, staff, banned in product("xy", "pq", (True, False), (True, False))
]
DOCUMENTS = [{"owner": owner, "org": org, "a": "1", "b": "2"} for owner, org in product("xy", "pq")]

STAFF: dict[str, Any] = {"%%user.custom_data.staff": True}
BANNED: dict[str, Any] = {"%%user.custom_data.banned": True}
OWN: dict[str, Any] = {"owner": "%%user.id"}
OF_ORG: dict[str, Any] = {"%%root.org": "%%user.custom_data.org"}
CONDITIONS: list[dict[str, Any]] = [
    {},
    STAFF,
    BANNED,
    OWN,
    OF_ORG,
    {"%and": [STAFF, OWN]},
    {**BANNED, **OF_ORG},
    {"%or": [OWN, OF_ORG]},
    {"%%true": {"%function": {"name": "f", "arguments": ["%%root.owner"]}}},
]

flags = st.sampled_from([True, False])
rights = st.fixed_dictionaries({}, optional={"read": flags, "write": flags})
roles_drawn = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["one", "two", "three"]),
        "apply_when": st.sampled_from(CONDITIONS),
        "insert": st.sampled_from([True, True, False]),
        "delete": st.sampled_from([True, True, False]),
    },
    optional={
        "read": flags,
        "write": flags,
        "document_filters": st.fixed_dictionaries(
            {},
            optional={
                "read": st.sampled_from([True, False, {}, OWN, OF_ORG]),
                "write": st.sampled_from([True, False, {}, OWN, OF_ORG]),
            },
        ),
        "fields": st.dictionaries(st.sampled_from(["a", "b"]), rights, max_size=2),
        "additional_fields": rights,
    },
)
rules_drawn = st.fixed_dictionaries(
    {"roles": st.lists(roles_drawn, min_size=1, max_size=3, unique_by=lambda each: each["name"])},
    optional={"filters": st.just([{"name": "f", "apply_when": {}, "query": OF_ORG}])},
)


def holds(condition: Any, caller: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    """Evaluate a condition of App Services; a function refuses nobody."""
    if isinstance(condition, bool):
        return condition
    for key, value in condition.items():
        if key in ("%and", "%or"):
            joint = all if key == "%and" else any
            fits = joint(holds(each, caller, document) for each in value)
        elif key == "%%true":
            fits = True
        elif key.startswith("%%user.custom_data."):
            fits = caller[key.rpartition(".")[2]] == value
        else:
            claim = "sub" if value == "%%user.id" else value.rpartition(".")[2]
            fits = document[key.removeprefix("%%root.")] == caller[claim]
        if not fits:
            return False
    return True


def original(
    rules: Mapping[str, Any],
    action: str,
    field: str,
    caller: Mapping[str, Any],
    document: Mapping[str, Any],
) -> bool:
    """Return whether App Services allows an action."""
    if any(not holds(each["query"], caller, document) for each in rules.get("filters", ())):
        return False
    fitting = (each for each in rules["roles"] if holds(each["apply_when"], caller, document))
    role = next(fitting, None)
    if role is None:
        return False
    filters = role.get("document_filters", {"read": True, "write": True})
    writes = holds(filters.get("write", False), caller, document)
    seen = holds(filters.get("read", False), caller, document)
    at = role.get("fields", {}).get(field, role.get("additional_fields", {}))
    write = writes and bool(role.get("write", at.get("write")))
    if action == "write":
        return write and role["insert"] and role["delete"]
    may = role.get("read", at.get("read")) or role.get("write", at.get("write"))
    return bool(may) and (seen or writes)


def rows_hold(rule: ValueNode, caller: Mapping[str, Any], document: Mapping[str, Any]) -> bool:
    assert isinstance(rule, ObjectValueNode)
    for entry in rule.fields:
        name, value = entry.name.value, entry.value
        if name in ("and", "or"):
            assert isinstance(value, ListValueNode)
            joint = all if name == "and" else any
            if not joint(rows_hold(each, caller, document) for each in value.values):
                return False
        else:
            assert isinstance(value, ObjectValueNode)
            (test,) = value.fields
            assert test.name.value == "eq"
            assert isinstance(test.value, VariableNode)
            if document[name] != caller[test.value.name.value]:
                return False
    return True


def roles_of(text: str, caller: Mapping[str, Any]) -> set[str]:
    """Return the roles that a caller gets, if the comments are followed."""
    found = set()
    for name, callers in re.findall(r'^# role "(.*?)": App Services gave it to (.*)$', text, re.M):
        with_, _, without = callers.partition(" and without ")
        condition = json.loads(with_.removeprefix("callers with ").replace("all callers", "{}"))
        others = json.loads(f"[{without}]")
        if holds(condition, caller, {}) and not any(holds(each, caller, {}) for each in others):
            found.add(name)
    return found


def translated(rules: Mapping[str, Any]) -> str:
    draft = draft_of([CollectionSchema(name="things", schema=SCHEMA)])
    accepted_text(draft, [])
    add_access(draft, draft.types[0], rules, {})
    return accepted_text(draft, [])


def allows(
    entity: Entity, roles: set[str], action: str, field: str, caller: Any, document: Any
) -> bool:
    """Return whether the translation allows an action to a caller with roles."""
    access = entity.access or Access()
    if access.rows and not rows_hold(parse_value(access.rows), caller, document):
        return False
    one = entity.field(field)
    assert one is not None
    for each in (access, one.access or Access()):
        needed = each.read if action == "read" else each.write
        if needed is not None and not roles & set(needed):
            return False
    return True


@given(rules=rules_drawn)
def test_no_caller_may_more_than_in_app_services(rules: dict[str, Any]) -> None:
    """Drawn roles, conditions, filters and fields: what is allowed was allowed."""
    text = translated(rules)
    entity = read_model(text).entity("Thing")
    for caller, document in product(CALLERS, DOCUMENTS):
        roles = roles_of(text, caller)
        for action, field in product(("read", "write"), FIELDS):
            if allows(entity, roles, action, field, caller, document):
                assert original(rules, action, field, caller, document), (
                    text, caller, document, action, field,
                )  # fmt: skip


ALL: dict[str, Any] = {"read": True, "write": True, "insert": True, "delete": True}
READER: dict[str, Any] = {"read": True, "write": False, "insert": False, "delete": False}
SAME: list[dict[str, Any]] = [
    {"roles": [{"name": "all", "apply_when": {}, **ALL}]},
    {"roles": [{"name": "own", "apply_when": OWN, **ALL}]},
    {"roles": [{"name": "either", "apply_when": {"%or": [OWN, OF_ORG]}, **READER}]},
    {"roles": [{"name": "s", "apply_when": STAFF, **ALL}, {"name": "r", **READER}]},
    {"roles": [{"name": "b", "apply_when": BANNED}, {"name": "all", **ALL}]},
    {
        "roles": [
            {"name": "s", "apply_when": STAFF, **ALL},
            {
                "name": "r",
                "insert": False,
                "delete": False,
                "fields": {"a": {"read": False}},
                "additional_fields": {"read": True},
            },
        ]
    },
    {"roles": [{"name": "f", "document_filters": {"read": OWN, "write": OWN}, **ALL}]},
    {"roles": [{"name": "q", **ALL}], "filters": [{"name": "f", "query": OWN}]},
]


def test_common_rules_are_translated_whole() -> None:
    """Each of them allows exactly what it allowed, and no comment says otherwise."""
    for given_ in SAME:
        rules = {
            **given_,
            "roles": [{"apply_when": {}, "insert": False, "delete": False, **each}
                      for each in given_["roles"]],
        }  # fmt: skip
        text = translated(rules)
        assert "not translated" not in text
        entity = read_model(text).entity("Thing")
        for caller, document in product(CALLERS, DOCUMENTS):
            roles = roles_of(text, caller)
            for action, field in product(("read", "write"), FIELDS):
                now = allows(entity, roles, action, field, caller, document)
                assert now == original(rules, action, field, caller, document), (text, caller)


def test_untranslated_parts_are_named() -> None:
    """Functions, other row rules and partial rights to write are comments, and give no rights."""
    function = {"%%true": {"%function": {"name": "f", "arguments": ["%%root.owner"]}}}
    text = translated({"roles": [{"name": "fn", "apply_when": function, **ALL}]})
    assert 'not translated: role "fn": {"%%true": {"%function"' in text
    assert '@access(read: ["nobody"], write: ["nobody"])' in text
    text = translated(
        {
            "roles": [
                {"name": "own", "apply_when": OWN, **ALL},
                {"name": "others", "apply_when": {}, **READER},
            ]
        }
    )
    assert 'not translated: role "others": it reads all documents' in text
    assert 'rows: "{ owner: { eq: $sub } }"' in text
    text = translated({"roles": [{"name": "in", "apply_when": {}, **ALL, "delete": False}]})
    assert 'not translated: role "in": "write" without "insert" and "delete"' in text
    text = translated({})
    assert "no roles in App Services: nobody may read it" in text
    assert 'read: ["nobody"]' in text


def test_a_role_name_with_two_conditions_becomes_two_roles() -> None:
    """The role of one collection does not give the rights of another."""
    names = ["things", "others"]
    draft = draft_of([CollectionSchema(name=each, schema=SCHEMA) for each in names])
    accepted_text(draft, [])
    conditions: dict[str, str] = {}
    for type_, when in zip(draft.types, (STAFF, BANNED), strict=True):
        role = {"name": "s", "apply_when": when, **ALL}
        add_access(draft, type_, {"roles": [role]}, conditions)
    model = read_model(accepted_text(draft, []))
    assert [each.access.read for each in model.entities if each.access] == [
        ("s",),
        ("others-s",),
    ]
