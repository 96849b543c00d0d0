"""`revstream serve` on a sharded cluster: refused by default, and what holds with the option."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest

from tests.sharded.conftest import SHARDS, Cluster
from tests.support.eventually import eventually
from tests.support.followers import Follower
from tests.support.gateway import ensure_ended, run_command, start_command

pytestmark = pytest.mark.sharded

MODEL = 'type Thing @collection(name: "things") { id: ID! n: Int }'
DOCUMENTS = 40
ROUNDS = 5
CHANGES = """
subscription Changes($after: ResumeToken) {
  thingChanges(after: $after) { kind operation documentId thing { n } resumeToken }
}
"""
HISTORY = """
query History($id: ID!) {
  thingVersions(where: { documentId: { eq: $id } }, first: 50) { nodes { operation } }
}
"""
EXPERIMENTAL = "--experimental-sharded"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "schema.graphql"
    path.write_text(MODEL)
    return path


def test_a_sharded_cluster_is_refused_by_default(
    cluster: Cluster, database_name: str, model: Path
) -> None:
    """The message names the option that accepts it."""
    where = ("--mongodb-uri", cluster.uri, "--database", database_name, "--schema", str(model))
    done = run_command("serve", *where, "--port", "0")
    assert done.returncode != 0
    assert EXPERIMENTAL in done.stderr


@pytest.mark.timeout(300)
async def test_every_write_on_two_shards_is_recorded_and_sent_once(
    cluster: Cluster, database_name: str, model: Path
) -> None:
    """Each document's changes arrive in order, over a restart, and its history has all of them."""
    where = ("--mongodb-uri", cluster.uri, "--database", database_name, "--schema", str(model))
    serving = ("serve", *where, EXPERIMENTAL, "--port", "0")
    cluster.shard(f"{database_name}.things")
    things = cluster.client[database_name].things
    ids = [f"t{number}" for number in range(DOCUMENTS)]
    written: dict[str, list[tuple[str, int | None]]] = defaultdict(list)

    def write(number: int) -> None:
        for each in ids:
            things.update_one({"_id": each}, {"$set": {"n": number}}, upsert=True)
            written[each].append(("UPDATE" if written[each] else "INSERT", number))

    with ensure_ended(await asyncio.to_thread(start_command, *serving)) as gateway:
        token = gateway.query("{ resumeToken }")["resumeToken"]
        addresses = [gateway.address]
        follower = Follower(CHANGES, addresses, 0, None, token)
        following = asyncio.create_task(follower.follow())
        for number in range(ROUNDS):
            await asyncio.to_thread(write, number)
        assert await asyncio.to_thread(gateway.stop) == 0
    # Written while no gateway runs; in one transaction, over both shards.
    with cluster.client.start_session() as session, session.start_transaction():
        for each in ids:
            things.update_one({"_id": each}, {"$set": {"n": ROUNDS}}, session=session)
            written[each].append(("UPDATE", ROUNDS))
    assert cluster.shards_of(f"{database_name}.things") == set(SHARDS)

    with ensure_ended(await asyncio.to_thread(start_command, *serving)) as gateway:
        addresses[0] = gateway.address
        await asyncio.to_thread(things.delete_many, {})
        for each in ids:
            written[each].append(("DELETE", None))
        count = sum(map(len, written.values()))
        await eventually(lambda: len(follower.received) >= count)
        following.cancel()
        received: dict[str, list[tuple[str, int | None]]] = defaultdict(list)
        for change in follower.received:
            number = change["thing"] and change["thing"]["n"]
            received[change["documentId"]].append((change["operation"], number))
        assert received == written
        for each in ids:
            nodes = gateway.query(HISTORY, id=each)["thingVersions"]["nodes"]
            assert [node["operation"] for node in reversed(nodes)] == [
                operation for operation, _ in written[each]
            ]
        assert await asyncio.to_thread(gateway.stop) == 0
    verified = run_command("verify", *where, EXPERIMENTAL)
    assert verified.returncode == 0, verified.stdout + verified.stderr
