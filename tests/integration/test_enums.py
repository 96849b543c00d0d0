"""Enum values that are stored as other texts than their names."""

from __future__ import annotations

from typing import Any

from pymongo import MongoClient

from tests.support.gateway import RunningGateway
from tests.support.sockets import open_socket

Client = MongoClient[dict[str, Any]]

MODEL = """
type Task @collection(name: "tasks") {
  id: ID!
  status: Status!
  earlier: [Status!]
}
enum Status { OPEN IN_PROGRESS @stored(as: "in-progress") DONE @stored(as: "{0} done") }
"""


def test_requests_use_the_name_and_documents_store_the_text(
    served: RunningGateway, client: Client, database: str
) -> None:
    """This holds in mutations, drafts, filters, documents, history, diffs and blame."""
    tasks = client[database]["tasks"]
    tasks.insert_one({"_id": "a", "status": "in-progress", "earlier": ["OPEN"]})
    served.query(
        """mutation {
          createTask(id: "b", document: { status: DONE }) { __typename }
          updateTask(id: "a", patch: { status: DONE, earlier: [OPEN, IN_PROGRESS] }) { __typename }
          proposeTask(id: "b", patch: { status: IN_PROGRESS }) { __typename }
          publishTask(id: "b", draft: 1) { __typename }
        }"""
    )
    stored = {each["_id"]: (each["status"], each.get("earlier")) for each in tasks.find()}
    assert stored == {
        "a": ("{0} done", ["OPEN", "in-progress"]),
        "b": ("in-progress", None),
    }
    query = """query($now: TimePoint!) {
      doing: tasks(where: { status: { eq: IN_PROGRESS } }) { nodes { id status } }
      others: tasks(where: { status: { in: [OPEN, DONE] }, earlier: { has: IN_PROGRESS } }) {
        nodes { id status earlier }
      }
      then: tasksAsOf(asOf: $now, where: { status: { ne: IN_PROGRESS } }) {
        nodes { documentId document { status earlier } }
      }
      task(id: "a") { diff(from: 1) { path before after } blame { path value } }
    }"""
    for _ in range(2):
        # The second time as a compiled query.
        now = {"token": served.query("{ resumeToken }")["resumeToken"]}
        data = served.query(query, now=now)
        state = {"status": "DONE", "earlier": ["OPEN", "IN_PROGRESS"]}
        assert data["doing"]["nodes"] == [{"id": "b", "status": "IN_PROGRESS"}]
        assert data["others"]["nodes"] == [{"id": "a", **state}]
        assert data["then"]["nodes"] == [{"documentId": "a", "document": state}]
        assert data["task"]["diff"] == [
            {"path": "status", "before": "IN_PROGRESS", "after": "DONE"},
            {"path": "earlier", "before": ["OPEN"], "after": ["OPEN", "IN_PROGRESS"]},
        ]
        assert {each["path"]: each["value"] for each in data["task"]["blame"]} == state


async def test_events_and_their_filters_use_the_name(
    served: RunningGateway, client: Client, database: str
) -> None:
    """Events contain the enum's name, and filters of subscriptions accept it."""
    async with open_socket(served.address) as socket:
        await socket.start(
            "1",
            "subscription { taskChanges(where: { status: { eq: IN_PROGRESS } }) "
            "{ kind task { id status } diff { path after } } }",
        )
        assert (await socket.receive())["payload"]["data"]["taskChanges"]["kind"] == "CHECKPOINT"
        tasks = client[database]["tasks"]
        tasks.insert_many(
            [{"_id": "c", "status": "IN_PROGRESS"}, {"_id": "d", "status": "in-progress"}]
        )
        change = (await socket.receive())["payload"]["data"]["taskChanges"]
    assert change["task"] == {"id": "d", "status": "IN_PROGRESS"}
    assert change["diff"] == [{"path": "status", "after": "IN_PROGRESS"}]
