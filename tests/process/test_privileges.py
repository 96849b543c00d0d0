"""Behaviour and messages of revstream with a MongoDB user that lacks privileges."""

from __future__ import annotations

import itertools
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database

from tests.support.bare_mongod import guarded_mongod
from tests.support.eventually import wait_until
from tests.support.exhaustive import representatives
from tests.support.gateway import run_command, running_gateway

Shop = Database[dict[str, Any]]
MakeUser = Callable[..., str]

MODEL = """
type Thing @collection(name: "things") { id: ID! n: Int }
type Other @collection(name: "others") { id: ID! n: Int }
"""
PASSWORD = "s3cret"
READING = ("find", "listCollections", "listIndexes")
WRITING = ("insert", "update", "remove", "createCollection", "createIndex", "collMod")
GRANT = re.compile(
    r'run in mongosh: db\.getSiblingDB\("(.+)"\)'
    r'\.grantRolesToUser\("(.+)", \[\{role: "(.+)", db: "(.+)"\}\]\)\'?\n'
)
COUNTER = itertools.count(1)
# A time limit that a busy machine does not exceed.
GENEROUS_S = 120.0


@pytest.fixture(scope="module")
def root() -> Iterator[MongoClient[dict[str, Any]]]:
    """Provide an administrator of a MongoDB that requires a password."""
    # Not pytest's tmp_path, which keeps the directories, 300 MB each, of the last three runs.
    with (
        tempfile.TemporaryDirectory(prefix="revstream-tests-") as directory,
        guarded_mongod(Path(directory)) as client,
    ):
        yield client


@pytest.fixture
def shop(root: MongoClient[dict[str, Any]]) -> Shop:
    return root[f"shop{next(COUNTER)}"]


@pytest.fixture
def make_user(root: MongoClient[dict[str, Any]], shop: Shop) -> MakeUser:
    """Return a function that creates `joe` with roles or actions and returns a URI."""

    def make(roles: Sequence[object] = (), actions: Sequence[str] = ()) -> str:
        for existing in root.admin.command("usersInfo", "joe")["users"]:
            root.admin.command("dropUser", existing["user"])
        if actions:
            role = f"role_of_{shop.name}"
            resource = {"db": shop.name, "collection": ""}
            privileges = [{"resource": resource, "actions": list(actions)}]
            root.admin.command("createRole", role, privileges=privileges, roles=[])
            roles = [*roles, role]
        root.admin.command("createUser", "joe", pwd=PASSWORD, roles=list(roles))
        return uri_of(root, "joe", PASSWORD)

    return make


def uri_of(root: MongoClient[dict[str, Any]], user: str, password: str, more: str = "") -> str:
    host, port = root.address or ("", 0)
    return f"mongodb://{user}:{password}@{host}:{port}/?replicaSet=rs0{more}"


def refusal(uri: str, shop: Shop, model: Path, *options: str) -> str:
    """Return the sentence with which the start is refused."""
    ended_so = run_command(
        *("serve", "--schema", str(model), "--port", "0", *options),
        *("--mongodb-uri", uri, "--database", shop.name, "--log-level", "error"),
    )
    assert ended_so.returncode == 1, ended_so.stderr
    assert ended_so.stderr.count("\n") == 1, ended_so.stderr
    assert ended_so.stderr.startswith("revstream: ")
    assert PASSWORD not in ended_so.stderr
    return ended_so.stderr


def run_in_mongosh(root: MongoClient[dict[str, Any]], message: str) -> None:
    """Run the command of a message, as its reader would."""
    home, user, role, database = granted_role(message)
    root[home].command("grantRolesToUser", user, roles=[{"role": role, "db": database}])


def granted_role(message: str) -> tuple[str, ...]:
    """Return the user's database and name, and role and database, of a message's command."""
    found = GRANT.search(message)
    assert found is not None, message
    return found.groups()


def test_with_read_write_alone_it_records_and_warns_of_what_is_missing(
    root: MongoClient[dict[str, Any]], shop: Shop, model: Path, make_user: MakeUser
) -> None:
    """Pre-images and earlier history each have a warning with the command that grants them."""
    uri = make_user([{"role": "readWrite", "db": shop.name}])
    shop.create_collection("others")
    shop.things.insert_one({"_id": "a", "n": 1})
    shop.things.update_one({"_id": "a"}, {"$set": {"n": 2}})
    with running_gateway(uri, shop.name, model) as gateway:
        wait_until(lambda: versions(shop) == ["BASELINE"], within_s=GENEROUS_S)
        shop.things.update_one({"_id": "a"}, {"$set": {"n": 3}})
        wait_until(lambda: versions(shop) == ["BASELINE", "UPDATE"], within_s=GENEROUS_S)
        # The recorder of the other collection may start later.
        wait_until(
            lambda: sum("the oplog cannot be read" in line for line in gateway.lines) == 2,
            within_s=GENEROUS_S,
        )
        assert gateway.stop() == 0
        gateway.close()
    images, *oplog = [line for line in gateway.lines if " warning " in line]
    assert "no images: versions are built from deltas collections=things, others" in images
    assert "not authorized on" in images
    assert granted_role(images) == ("admin", "joe", "dbAdmin", shop.name)
    # Each collection's recorder logs it.
    assert len(oplog) == 2
    for line in oplog:
        assert "the oplog cannot be read: history begins now" in line
        assert granted_role(line) == ("admin", "joe", "read", "local")


def versions(shop: Shop) -> list[str]:
    return [each["op"] for each in shop["things.versions"].find().sort("_id")]


def test_once_granted_nothing_is_missing(
    root: MongoClient[dict[str, Any]], shop: Shop, model: Path, make_user: MakeUser
) -> None:
    """The commands in the warnings work: the next start has images, and the oplog's history."""
    uri = make_user([{"role": "readWrite", "db": shop.name}])
    shop.create_collection("others")
    shop.things.insert_one({"_id": "a", "n": 1})
    with running_gateway(uri, shop.name, model, "--no-record") as gateway:
        for line in gateway.lines:
            if "run in mongosh" in line:
                run_in_mongosh(root, line)
    root.admin.command("grantRolesToUser", "joe", roles=[{"role": "read", "db": "local"}])
    with running_gateway(uri, shop.name, model) as gateway:
        wait_until(lambda: versions(shop) == ["INSERT"], within_s=GENEROUS_S)
        assert gateway.stop() == 0
        gateway.close()
    assert not any(" warning " in line for line in gateway.lines)
    for each in shop.list_collections(filter={"name": {"$in": ["things", "others"]}}):
        assert each["options"]["changeStreamPreAndPostImages"] == {"enabled": True}


@pytest.mark.parametrize("driver", representatives(["motor", "pymongo"], "motor"))
def test_without_change_streams_it_does_not_start_and_names_the_grant(
    root: MongoClient[dict[str, Any]], shop: Shop, model: Path, make_user: MakeUser, driver: str
) -> None:
    """The error has the action, the database, and a command after which it does start."""
    uri = make_user(actions=[*READING, *WRITING])
    message = refusal(uri, shop, model, "--driver", driver)
    assert "changeStream" in message
    assert f"the database {shop.name}" in message
    assert granted_role(message) == ("admin", "joe", "read", shop.name)
    run_in_mongosh(root, message)
    with running_gateway(uri, shop.name, model, "--driver", driver):
        pass


@pytest.mark.parametrize(
    "actions",
    [
        [*READING, "changeStream"],
        [*READING, "changeStream", "insert", "update", "remove", "createCollection"],
    ],
    ids=["nothing may be written", "no index may be made"],
)
def test_without_write_access_for_history_it_does_not_start_and_names_the_grant(
    root: MongoClient[dict[str, Any]],
    shop: Shop,
    model: Path,
    make_user: MakeUser,
    actions: list[str],
) -> None:
    """It is refused at the start, not with the first version."""
    message = refusal(make_user(actions=actions), shop, model)
    assert f"recording requires the role readWrite on the database {shop.name}" in message
    assert granted_role(message) == ("admin", "joe", "readWrite", shop.name)


@pytest.mark.parametrize("driver", representatives(["motor", "pymongo"], "motor"))
@pytest.mark.parametrize(
    ("user", "password", "more"),
    [
        ("joe", f"{PASSWORD}er", ""),
        ("jim", PASSWORD, ""),
        ("joe", PASSWORD, "&authSource=elsewhere"),
    ],
    ids=["another password", "another user", "another database"],
)
def test_a_login_failure_is_an_error_with_its_possible_causes(
    root: MongoClient[dict[str, Any]],
    shop: Shop,
    model: Path,
    make_user: MakeUser,
    driver: str,
    user: str,
    password: str,
    more: str,
) -> None:
    """It is one sentence without the password; MongoDB itself does not name the cause."""
    make_user([{"role": "readWrite", "db": shop.name}])
    message = refusal(uri_of(root, user, password, more), shop, model, "--driver", driver)
    assert "MongoDB: authentication failed" in message
    assert "?authSource=admin" in message


def test_a_uri_without_a_user_is_refused_with_a_fix(
    root: MongoClient[dict[str, Any]], shop: Shop, model: Path
) -> None:
    """Without a user no role can be granted."""
    host, port = root.address or ("", 0)
    message = refusal(f"mongodb://{host}:{port}/?replicaSet=rs0", shop, model)
    assert "the connection is not authenticated: add a user and a password to the URI" in message
    assert "grantRolesToUser" not in message


def test_a_revoked_privilege_ends_a_running_process_with_the_reason(
    root: MongoClient[dict[str, Any]], shop: Shop, model: Path, make_user: MakeUser
) -> None:
    """A process that may no longer follow its collections ends with exit code 1."""
    uri = make_user([{"role": "readWrite", "db": shop.name}])
    with running_gateway(uri, shop.name, model) as gateway:
        root.admin.command(
            "revokeRolesFromUser", "joe", roles=[{"role": "readWrite", "db": shop.name}]
        )
        assert gateway.process.wait(timeout=GENEROUS_S) == 1
        gateway.close()
    assert any(
        "background task died" in line and f"not authorized on {shop.name}" in line
        for line in gateway.lines
    )
    assert "does not permit this" in gateway.lines[-1]
    message = "".join(gateway.lines)
    assert "Traceback" not in message, message
    assert PASSWORD not in message
