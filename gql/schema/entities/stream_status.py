"""Types of `Query.streams`: the status of leased tasks."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from revstream.gql.engine.definitions.field import Read, Resolve
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.schema.common.type_builder import Types

__all__ = ["define_stream_status"]


def define_stream_status(types: Types) -> None:
    """Define the types that `Query.streams` returns."""

    def resume_token(source: Any, info: ResolveInfo) -> str | None:
        return None if source.resume_token is None else info.context.token_out(source.resume_token)

    types.add_object(
        "StreamReading",
        [
            Read(
                "documents",
                "Long!",
                "The number of documents that it has read.",
                attrgetter("documents"),
            ),
            Read(
                "estimatedTotal",
                "Long",
                "The estimated number of documents when the read started; null before.",
                attrgetter("estimated_total"),
            ),
        ],
        "The progress of the first read of a collection.",
    )
    types.add_object(
        "StreamStatus",
        [
            Read("name", "String!", "The name of the leased task.", attrgetter("name")),
            Read(
                "collection",
                "String!",
                "The collection whose changes it reads.",
                attrgetter("collection"),
            ),
            Read(
                "state",
                "String!",
                "`recording`; `reading` while it reads the documents that existed before it; "
                "`working` for other tasks; `waiting` while no process holds the lease.",
                attrgetter("state"),
            ),
            Read("owner", "String", "The process that holds the lease.", attrgetter("owner")),
            Read(
                "fence",
                "Long",
                "The fencing token of the lease: it grows with each change of the holder, and a "
                "write with an older token is refused.",
                attrgetter("fence"),
            ),
            Resolve(
                "resumeToken",
                "ResumeToken",
                "The position that it has reached in the change stream.",
                resume_token,
            ),
            Read(
                "at", "DateTime", "The time of the position that it has reached.", attrgetter("at")
            ),
            Read(
                "lagSeconds",
                "Float",
                "The age of the oldest change that it has not handled; 0 if there is none. If the "
                "process that answers has not seen that change, for instance after an outage, the "
                "age of the position that the task has reached.",
                attrgetter("lag_s"),
            ),
            Read(
                "reading",
                "StreamReading",
                "The progress of the first read of the collection; null when it is finished.",
                attrgetter("reading"),
            ),
            Read(
                "trouble",
                "String",
                "The reason why it makes no progress, for instance that the receiver of a webhook "
                "sink refuses deliveries; for recorders, also that events were set aside. Null "
                "without trouble.",
                attrgetter("trouble"),
            ),
            Read(
                "gaps",
                "[HistoryGap!]!",
                "For recorders, the gaps in the history of the collection, oldest first; also gaps "
                "after which no document differed.",
                attrgetter("gaps"),
            ),
        ],
        "A leased task of this deployment that reads a change stream: a recorder or a listener.",
    )
