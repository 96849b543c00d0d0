"""Backups of the database: restored, and what becomes of tokens, cursors, sinks and leases then.

docs/how-to/backup.md says the same to users.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2 as httpx
import pytest
from bson.binary import UUID_SUBTYPE, Binary
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.database import Database

from tests.support import http
from tests.support.bare_mongod import BareMongod, bare_mongod, replica_set
from tests.support.eventually import wait_until
from tests.support.exhaustive import exhaustive
from tests.support.gateway import GraphQLFailed, RunningGateway, run_command, running_gateway
from tests.support.receiver import Receiver, Request, running_receiver

Row = dict[str, Any]
Shop = Database[Row]

KEY = "k3y"
COPY = "the database is a copy, or its archive is from another database"
GAPS = "{ streams { gaps { from to why } } }"


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="revstream-tests-") as name:
        yield Path(name)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver(Receiver()) as running:
        yield running


@pytest.fixture
def model(tmp_path: Path, receiver: Receiver) -> Path:
    path = tmp_path / "schema.graphql"
    path.write_text(
        f'type Thing @collection(name: "things") @sink(url: "{receiver.url}") {{ id: ID! n: Int }}'
    )
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    (tmp_path / "keys.toml").write_text(
        f'[[keys]]\nsha256 = "{digest}"\nprincipal = "ann"\nroles = []\n'
    )
    return path


@contextlib.contextmanager
def opened(server: BareMongod) -> Iterator[Shop]:
    """Provide the database, as a program without revstream uses it."""
    with MongoClient[Row](server.uri, tz_aware=True) as client:
        yield client["shop"]


@contextlib.contextmanager
def serving(server: BareMongod, model: Path) -> Iterator[RunningGateway]:
    options = ("--lease-s", "1", "--anonymous", "--api-keys", str(model.parent / "keys.toml"))
    with opened(server) as shop, running_gateway(server.uri, "shop", model, *options) as gateway:
        wait_until(lambda: sink_position(shop) is not None, within_s=60)
        yield gateway


def write(shop: Shop, receiver: Receiver, *numbers: int) -> None:
    """Write versions of one document; returns when they are recorded and delivered."""
    for each in numbers:
        shop.things.update_one({"_id": "a"}, {"$set": {"n": each}}, upsert=True)
    last = numbers[-1]
    wait_until(lambda: receiver.requests and content(receiver.requests[-1]) == last, within_s=60)
    # The place of the sink is stored a moment after the answer.
    sequence = receiver.requests[-1].event["sequence"]
    wait_until(lambda: (sink_position(shop) or "") >= sequence, within_s=60)


def content(request: Request) -> int:
    return int(request.event["data"]["document"]["n"])


def sink_position(shop: Shop) -> str | None:
    found = shop["revstream.checkpoints"].find_one({"_id": {"$regex": "^sink:"}})
    return None if found is None else str(found["token"])


def token_of(gateway: RunningGateway) -> str:
    return str(gateway.query("{ resumeToken }")["resumeToken"])


def tag(token: str) -> str:
    return token.rpartition(".")[2]


def code(call: Callable[[], Any]) -> str:
    """Return the error code of a refused call."""
    with pytest.raises(GraphQLFailed) as refused:
        call()
    error = refused.value.args[0]
    return str(error["extensions"]["code"])


def as_of(gateway: RunningGateway, token: str) -> Any:
    text = "query($t: ResumeToken!) { thingsAsOf(asOf: {token: $t}) { nodes { document { n } } } }"
    return gateway.query(text, t=token)


def history(gateway: RunningGateway) -> list[tuple[int, bool]]:
    text = '{ thing(id: "a") { history(first: 50) { nodes { gap document { n } } } } }'
    nodes = gateway.query(text)["thing"]["history"]["nodes"]
    return [(each["document"]["n"], each["gap"]) for each in reversed(nodes)]


def named(gateway: RunningGateway, text: str) -> Row:
    """Return the response to a caller with a name, who may save cursors."""
    response = http.post(
        f"{gateway.address}/graphql", json={"query": text}, headers={"X-API-Key": KEY}, timeout=60
    )
    return response.json()


def first_event_after_cursor(gateway: RunningGateway) -> Row:
    """Return the first change that a subscription with the saved cursor gets."""
    query = 'subscription { thingChanges(cursor: "c") { version } }'
    headers = {"X-API-Key": KEY, "Accept": "text/event-stream"}
    with httpx.stream(
        "GET", f"{gateway.address}/graphql", params={"query": query}, headers=headers, timeout=60
    ) as response:
        for line in response.iter_lines():
            if line.startswith("data:") and "version" in line:
                return json.loads(line.removeprefix("data:"))["data"]["thingChanges"]
    raise AssertionError("the stream ended")


def faultless(server: BareMongod, model: Path) -> bool:
    arguments = ("--mongodb-uri", server.uri, "--database", "shop", "--schema", str(model))
    return run_command("verify", *arguments).returncode == 0


def copy_files(server: BareMongod, target: Path) -> None:
    """Copy the files of a running server that is locked for as long as that takes."""
    with MongoClient[Row](server.uri) as client:
        client.admin.command("fsync", lock=True)
        try:
            shutil.copytree(server.directory, target, ignore=shutil.ignore_patterns("mongod.lock"))
        finally:
            client.admin.command("fsyncUnlock")


def declare_restored(shop: Shop) -> None:
    """Do by hand what makes a restored database another deployment."""
    mark = {"collection": Binary.from_uuid(uuid4())}
    assert mark["collection"].subtype == UUID_SUBTYPE
    shop["revstream.deployment"].update_one({"_id": "deployment"}, {"$set": mark})
    shop["revstream.leases"].update_many({}, {"$inc": {"fencingToken": 1_000_000}})


def test_files_restored_in_place_go_on_and_tokens_of_lost_writes_are_refused_once_declared(
    folder: Path, receiver: Receiver, model: Path
) -> None:
    """The oplog is among the files: recording goes on without a gap.

    revstream cannot see that writes were lost. It accepts a token of a lost write, until the
    restore is declared.
    """
    with replica_set(folder / "data") as server:
        with opened(server) as shop:
            with serving(server, model) as gateway:
                write(shop, receiver, 1, 2, 3)
                kept = token_of(gateway)
                copy_files(server, folder / "backup")
                write(shop, receiver, 4, 5)
                lost = token_of(gateway)
                saving = f'mutation {{ saveCursor(name: "c", token: "{lost}") }}'
                assert named(gateway, saving) == {"data": {"saveCursor": lost}}
                gateway.kill()
            fence = receiver.requests[-1].fence
        server.kill()
        shutil.rmtree(server.directory)
        shutil.copytree(folder / "backup", server.directory)
        server.start()
        with opened(server) as shop:
            with serving(server, model) as gateway:
                assert history(gateway) == [(1, False), (2, False), (3, False)]
                assert tag(token_of(gateway)) == tag(kept)
                assert as_of(gateway, kept) == {"thingsAsOf": {"nodes": [{"document": {"n": 3}}]}}
                # Wrong: at this moment n was 5. Nothing in the database tells it.
                wait_until(lambda: token_of(gateway) > lost, within_s=30)
                assert as_of(gateway, lost) == {"thingsAsOf": {"nodes": [{"document": {"n": 3}}]}}
                assert gateway.query(GAPS) == {"streams": [{"gaps": []}, {"gaps": []}]}
                assert gateway.stop() == 0
            declare_restored(shop)
            before = len(receiver.requests)
            with serving(server, model) as gateway:
                assert tag(token_of(gateway)) != tag(kept)
                assert code(lambda: as_of(gateway, kept)) == "RESUME_TOKEN_INVALID"
                assert code(lambda: as_of(gateway, lost)) == "RESUME_TOKEN_INVALID"
                # What followed version 3 until now is not known.
                found = [(1, False), (2, False), (3, True)]
                wait_until(lambda: history(gateway) == found, within_s=60)
                write(shop, receiver, 6)
                assert history(gateway) == [*found, (6, False)]
                # The number of a lost version is used again, with another id and a newer fence.
                [fourth, _, *_] = [each for each in receiver.requests if each.version == 4]
                again = receiver.requests[-1]
                assert (content(fourth), content(again), again.version) == (4, 6, 4)
                assert fourth.event["id"] != again.event["id"]
                assert again.fence > fence + 900_000
                assert [content(each) for each in receiver.requests[before:]] == [6]
        assert faultless(server, model)


@exhaustive
def test_files_restored_elsewhere_are_another_deployment_by_themselves(
    folder: Path, receiver: Receiver, model: Path
) -> None:
    """MongoDB's way to another replica set drops the database `local`, and so the oplog.

    Versions stay, and documents are read again. Saved cursors have tokens of the source.
    """
    with (
        replica_set(folder / "data") as source,
        opened(source) as shop,
        serving(source, model) as gateway,
    ):
        write(shop, receiver, 1, 2, 3)
        kept = token_of(gateway)
        saving = f'mutation {{ saveCursor(name: "c", token: "{kept}") }}'
        assert named(gateway, saving) == {"data": {"saveCursor": kept}}
        copy_files(source, folder / "backup")
    receiver.requests.clear()
    with (
        bare_mongod(folder / "backup") as standalone,
        MongoClient[Row](f"127.0.0.1:{standalone.port}", directConnection=True) as client,
    ):
        client.drop_database("local")
    with replica_set(folder / "backup") as target, opened(target) as shop:
        with serving(target, model) as gateway:
            assert tag(token_of(gateway)) != tag(kept)
            expected = [(1, False), (2, False), (3, True)]
            wait_until(lambda: history(gateway) == expected, within_s=60)
            assert code(lambda: as_of(gateway, kept)) == "RESUME_TOKEN_INVALID"
            # On the server a cursor has no tag: it is as old as the restored database.
            [cursor] = named(gateway, "{ savedCursors { resumeToken } }")["data"]["savedCursors"]
            assert cursor["resumeToken"] == kept.replace(tag(kept), tag(token_of(gateway)))
            write(shop, receiver, 4)
            assert history(gateway) == [*expected, (4, False)]
            assert first_event_after_cursor(gateway)["version"] == 4
            assert [content(each) for each in receiver.requests] == [4]
            [things, _] = gateway.query(GAPS)["streams"]
            assert [each["why"] for each in things["gaps"]] == [COPY]
        assert faultless(target, model)


def copy_documents(source: Shop, target: Shop, between: Callable[[], None]) -> None:
    """Copy collection by collection, as mongodump does without --oplog, with indexes.

    Args:
        between: called after each collection.
    """
    raw = CodecOptions[RawBSONDocument](document_class=RawBSONDocument)
    for name in sorted(source.list_collection_names()):
        documents = list(source.get_collection(name, codec_options=raw).find())
        target.create_collection(name)
        if documents:
            target.get_collection(name, codec_options=raw).insert_many(documents)
        for index, how in source[name].index_information().items():
            if index != "_id_":
                options = {key: value for key, value in how.items() if key not in ("key", "v")}
                target[name].create_index(how["key"], name=index, **options)
        between()


@exhaustive
def test_a_dump_during_writes_is_repaired_and_its_differences_are_gaps(
    folder: Path, receiver: Receiver, model: Path
) -> None:
    """Documents, versions and checkpoints in it are of different moments."""
    with replica_set(folder / "source") as first, replica_set(folder / "target") as second:
        with opened(first) as source, opened(second) as target, serving(first, model) as gateway:
            write(source, receiver, 1, 2, 3)
            kept = token_of(gateway)
            number = iter(range(4, 1000))
            copy_documents(source, target, lambda: write(source, receiver, next(number)))
            copied = target["things"].find_one()
            versions = [each["full"]["n"] for each in target["things.versions"].find().sort("_id")]
        assert copied is not None
        assert versions[-1] > copied["n"], "the dump is of one moment"
        receiver.requests.clear()
        with opened(second) as target, serving(second, model) as gateway:
            assert tag(token_of(gateway)) != tag(kept)
            assert code(lambda: as_of(gateway, kept)) == "RESUME_TOKEN_INVALID"
            expected = [*((each, False) for each in versions), (copied["n"], True)]
            wait_until(lambda: history(gateway) == expected, within_s=60)
            # The sink's place was copied before the versions: it sends some a second time.
            wait_until(lambda: receiver.requests[-1].event["data"]["gap"], within_s=60)
            sent = [content(each) for each in receiver.requests]
            assert sent == [*versions[-len(sent) + 1 :], copied["n"]]
            write(target, receiver, 2000)
            assert history(gateway) == [*expected, (2000, False)]
        assert faultless(second, model)
