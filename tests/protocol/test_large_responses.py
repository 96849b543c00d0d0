"""Small requests with responses of megabytes: each has a limit, and shared work is done once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.support import http
from tests.support.beginning import begin_new
from tests.support.eventually import wait_until
from tests.support.gateway import RunningGateway, running_gateway
from tests.support.sockets import open_socket

Client = MongoClient[dict[str, Any]]

MODEL = """
type Thing @collection(name: "things") {
  id: ID! text: String meta: JSON parts: [Part!] numbers: [Int!]
}
type Part { n: Int }
type Chapter @collection(name: "chapters") { id: ID! text: String }
type Box @collection(name: "boxes") { id: ID! meta: JSON }
type Note @collection(name: "notes", storage: DELTA) { id: ID! text: String stars: Int }
"""
TEXTS = "chapters(first: #) { nodes { text } }"
KEYS = 30_000
FEW_KEYS = 5_000
BOXED = 50_000


@pytest.fixture(scope="module")
def served(
    mongo_uri: str, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[RunningGateway, Any]]:
    """Provide a gateway with large documents.

    A thing of 900 KB of text, some of two versions with 30,000 and 5,000 keys, 150 MB of chapters,
    and 40 boxes of 50,000 numbers.
    """
    model = tmp_path_factory.mktemp("large") / "schema.graphql"
    model.write_text(MODEL)
    database = client[f"large_{uuid4().hex[:8]}"]
    begin_new(mongo_uri, database.name, model)
    for first in range(0, 150, 10):
        database.chapters.insert_many(
            {"_id": f"c{first + n}", "text": "x" * 1_000_000} for n in range(10)
        )
    numbers = {f"k{n}": n for n in range(BOXED)}
    for first in range(0, 40, 10):
        database.boxes.insert_many({"_id": f"b{first + n}", "meta": numbers} for n in range(10))
    with running_gateway(mongo_uri, database.name, model) as running:
        database.things.insert_one({"_id": "long", "text": "x" * 900_000, "version": 1})
        for version in (1, 2):
            meta = {f"k{n}": n + version for n in range(KEYS)}
            database.things.replace_one(
                {"_id": "keys"}, {"_id": "keys", "version": version, "meta": meta}, upsert=True
            )
        for version in (1, 2):
            meta = {f"k{n}": n + version for n in range(FEW_KEYS)}
            database.things.replace_one(
                {"_id": "few"}, {"_id": "few", "version": version, "meta": meta}, upsert=True
            )
        query = '{ thing(id: "few") { history { totalCount } } }'
        response = {"thing": {"history": {"totalCount": 2}}}
        wait_until(lambda: ask(running, query).get("data") == response)
        yield running, database
        assert running.stop() == 0
    client.drop_database(database.name)
    assert not [line for line in running.lines if "INTERNAL" in line or "Traceback" in line]


def ask(gateway: RunningGateway, query: str) -> Any:
    return http.post(f"{gateway.address}/graphql", json={"query": query}, timeout=120).json()


def many(text: str, count: int) -> str:
    return " ".join(f"a{number}: {text}" for number in range(count))


def memory_mb(pid: int, name: str) -> int:
    """Return `VmRSS`, the memory of a process, or `VmHWM`, its maximum since the last reset."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) // 1024


def limit_of(answer: Any) -> str:
    """Return the name of the limit that refused the request."""
    extensions = answer["errors"][0]["extensions"]
    assert extensions["code"] == "LIMIT_EXCEEDED"
    return str(extensions["limit"])


def test_a_response_has_a_maximum_size(served: tuple[RunningGateway, Any]) -> None:
    """A text under many aliases counts each time, in compiled queries and in graphql-core."""
    gateway, _ = served
    for _ in range(3):
        assert limit_of(ask(gateway, f'{{ thing(id: "long") {{ {many("text", 99)} }} }}')) == (
            "max_response_bytes"
        )
        found = ask(gateway, f'{{ thing(id: "long") {{ {many("text", 10)} }} }}')
        assert {len(each) for each in found["data"]["thing"].values()} == {900_000}


def test_a_page_has_the_same_maximum_size(served: tuple[RunningGateway, Any]) -> None:
    """Each document has a text under many aliases."""
    gateway, _ = served
    for _ in range(3):
        names = many("text", 9)
        assert limit_of(ask(gateway, f"{{ chapters(first: 2) {{ nodes {{ {names} }} }} }}")) == (
            "max_response_bytes"
        )
        page = ask(gateway, f"{{ chapters(first: 1) {{ nodes {{ {names} }} }} }}")
        assert len(page["data"]["chapters"]["nodes"][0]) == 9


def test_a_page_of_short_documents_has_the_same_maximum_size(
    mongo_uri: str, client: Client, tmp_path: Path
) -> None:
    """Names are long, and characters take six in JSON."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    database = client[f"large_{uuid4().hex[:8]}"]
    begin_new(mongo_uri, database.name, model)
    database.things.insert_many({"_id": f"s{n}"} for n in range(100))
    database.chapters.insert_many({"_id": f"c{n}", "text": "\x01" * 3_000} for n in range(100))
    options = "--max-response-bytes=300000"
    with running_gateway(mongo_uri, database.name, model, options) as gateway:
        long = "n" * 4_000
        for selection in (
            f"things(first: #) {{ nodes {{ {long}: id }} }}",
            f"things(first: #) {{ edges {{ {long}: cursor node {{ id }} }} }}",
            f"things(first: #) {{ edges {{ {long}: __typename node {{ id }} }} }}",
            f"things(first: #) {{ edges {{ {long}: node {{ id }} }} }}",
            f"chapters(first: # orderBy: {{text: ASC}}) {{ edges {{ {many('cursor', 20)} }} }}",
            TEXTS,
        ):
            for _ in range(3):
                refused = ask(gateway, f"{{ {selection.replace('#', '100')} }}")
                assert limit_of(refused) == "max_response_bytes"
                assert "errors" not in ask(gateway, f"{{ {selection.replace('#', '2')} }}")
        assert gateway.stop() == 0
    client.drop_database(database.name)


async def test_an_event_has_a_maximum_size(served: tuple[RunningGateway, Any]) -> None:
    """The subscription continues after a larger one."""
    gateway, database = served
    fields = f"{{ documentId thing {{ {many('text', 99)} }} }}"
    async with open_socket(gateway.address) as socket:
        await socket.start("s", f"subscription {{ thingChanges(snapshot: true) {fields} }}")
        results = []
        while len(results) < 3:
            message = await socket.receive()
            if message["type"] == "next":
                results.append(message["payload"])
        # Two documents, and the checkpoint after them.
        failed = [each for each in results if each.get("errors")]
        assert [limit_of(each) for each in failed] == ["max_response_bytes"]
        database.things.insert_one({"_id": "new", "text": "short"})
        while True:
            message = await socket.receive()
            assert message["type"] in ("next", "ping"), message
            change = message["payload"]["data"]["thingChanges"]
            if change["documentId"] == "new":
                break
        assert change["thing"]["a0"] == "short"


def test_the_data_read_by_an_operation_have_a_limit(served: tuple[RunningGateway, Any]) -> None:
    """The data may arrive in many batches, with few of them in the response."""
    gateway, _ = served
    for query in (
        "{ chapters(first: 150) { nodes { id text } } }",
        "{ chapters(last: 150) { nodes { id text } } }",
        "{ chapterVersions(first: 150) { nodes { document { text } } } }",
    ):
        assert limit_of(ask(gateway, query)) == "max_read_bytes"
    assert "errors" not in ask(gateway, "{ chapters(first: 150) { nodes { id } } }")


def test_the_memory_of_all_operations_is_bounded(
    served: tuple[RunningGateway, Any],
) -> None:
    """Large operations take turns, two for each caller; lookups wait for none of them."""
    gateway, _ = served
    large = "{ chapters(first: 60) { nodes { id text } } }"
    lookup = '{ chapter(id: "none") { id } }'
    ask(gateway, large)
    pid = gateway.process.pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    before = memory_mb(pid, "VmRSS")
    with ThreadPoolExecutor(16) as callers:
        answers = [callers.submit(ask, gateway, large) for _ in range(16)]
        while not all(each.done() for each in answers):
            assert ask(gateway, lookup) == {"data": {"chapter": None}}
    # Each was executed in its turn; its response is too long.
    assert {limit_of(each.result()) for each in answers} == {"max_response_bytes"}
    # Four at once would be 240 MB, beside the buffers of eight cursors.
    assert memory_mb(pid, "VmHWM") - before < 500


def test_the_data_read_are_counted_by_their_size_in_memory(
    served: tuple[RunningGateway, Any],
) -> None:
    """Small values take ten times the bytes that they have in MongoDB."""
    gateway, _ = served
    found = ask(gateway, "{ boxes(first: 1) { nodes { id meta } } }")["data"]["boxes"]["nodes"]
    assert len(found[0]["meta"]) == BOXED
    for _ in range(3):
        query = "{ boxes(first: 40) { nodes { id meta } } }"
        assert limit_of(ask(gateway, query)) == "max_process_read_bytes"


def test_versions_stored_as_deltas_are_counted_by_their_full_size(
    served: tuple[RunningGateway, Any],
) -> None:
    """A change of some bytes to a text of a megabyte is a version of a megabyte."""
    gateway, database = served
    database.notes.insert_one({"_id": "n", "text": "x" * 1_000_000, "stars": 0, "version": 1})
    for _ in range(150):
        database.notes.update_one({"_id": "n"}, {"$inc": {"stars": 1, "version": 1}})
    query = '{ note(id: "n") { history { totalCount } } }'
    expected = {"note": {"history": {"totalCount": 151}}}
    wait_until(lambda: ask(gateway, query).get("data") == expected)
    for _ in range(3):
        history = "history(first: #) { nodes { document { stars } } }"
        query = f'{{ note(id: "n") {{ {history} }} }}'
        assert limit_of(ask(gateway, query.replace("#", "151"))) == "max_read_bytes"
        assert "errors" not in ask(gateway, query.replace("#", "10"))


def test_differences_have_a_limit_and_equal_ones_are_computed_once(
    served: tuple[RunningGateway, Any],
) -> None:
    """30,000 keys under 99 aliases are three million changes."""
    gateway, _ = served
    diffs = many("diff(from: 1, to: 2) { kind }", 99)
    assert limit_of(ask(gateway, f'{{ thing(id: "keys") {{ {diffs} }} }}')) == "max_values"
    found = ask(
        gateway, f'{{ thing(id: "keys") {{ {many("diff(from: 1, to: 2) { kind }", 2)} }} }}'
    )
    assert [len(each) for each in found["data"]["thing"].values()] == [KEYS, KEYS]
    versions = f"history(first: 1) {{ nodes {{ {diffs.replace('(from: 1, to: 2)', '')} }} }}"
    for _ in range(3):
        assert limit_of(ask(gateway, f'{{ thing(id: "few") {{ {versions} }} }}')) == "max_values"


def test_stored_lists_count_by_their_items(served: tuple[RunningGateway, Any]) -> None:
    """They are under 99 aliases, in compiled queries and in graphql-core."""
    gateway, database = served
    parts = [{"n": n} for n in range(20_000)]
    numbers = list(range(50_000))
    database.things.insert_one({"_id": "l", "version": 1, "parts": parts, "numbers": numbers})
    for field in ("parts { n }", "numbers"):
        for _ in range(3):
            query = f'{{ thing(id: "l") {{ {many(field, 99)} }} }}'
            assert limit_of(ask(gateway, query)) == "max_values"
            assert "errors" not in ask(gateway, f'{{ thing(id: "l") {{ {many(field, 2)} }} }}')


def test_differences_of_drafts_have_a_limit(served: tuple[RunningGateway, Any]) -> None:
    """A draft of some thousand changes is compared under 99 aliases."""
    gateway, _ = served
    propose = (
        'mutation($meta: JSON) { proposeThing(id: "few", patch: {meta: $meta}) { __typename } }'
    )
    answer = gateway.post(propose, meta={f"k{n}": n + 5 for n in range(FEW_KEYS)})
    assert answer == {"data": {"proposeThing": {"__typename": "ThingDrafted"}}}
    drafts = "{ thingDrafts(first: 1) { nodes { # } } }"
    diffs = many("diff { kind }", 99)
    assert limit_of(ask(gateway, drafts.replace("#", diffs))) == "max_values"
    found = ask(gateway, drafts.replace("#", "diff { kind }"))
    assert len(found["data"]["thingDrafts"]["nodes"][0]["diff"]) == FEW_KEYS


async def test_differences_of_events_have_a_limit(served: tuple[RunningGateway, Any]) -> None:
    """They are computed once for all aliases, and the subscription continues."""
    gateway, database = served
    async with open_socket(gateway.address) as socket:
        fields = f"kind documentId {many('diff { kind }', 99)}"
        await socket.start("s", f"subscription {{ thingChanges {{ {fields} }} }}")
        # The subscription is open once a later operation is answered.
        await socket.start("q", "{ __typename }")
        while (await socket.receive())["id"] != "q":
            pass
        meta = {f"k{n}": n + 9 for n in range(FEW_KEYS)}
        database.things.update_one({"_id": "few"}, {"$set": {"meta": meta, "version": 3}})
        database.things.insert_one({"_id": "behind", "version": 1})
        events: dict[str, Any] = {}
        while "behind" not in events:
            message = await socket.receive()
            if message["type"] == "next" and message["id"] == "s":
                payload = message["payload"]
                events[payload["data"]["thingChanges"]["documentId"]] = payload
        assert limit_of(events["few"]) == "max_values"
        changes_found = [each for each in events["few"]["data"]["thingChanges"].values() if each]
        assert len(changes_found) == 2 + 100_000 // FEW_KEYS
        assert "errors" not in events["behind"]
