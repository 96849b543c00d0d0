"""Types that are the same for every model: interfaces, page info, history gaps, stream status."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import InputField, Read, Resolve, computed_field
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.schema.common.enums import define_enums
from revstream.gql.schema.common.id_naming import Naming
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.comments import comments_field

__all__ = [
    "change_fields",
    "define_interfaces",
    "node_id_field",
    "raise_unresolved",
    "version_fields",
]


def define_interfaces(types: Types) -> None:
    """Define the types that the types of entities refer to."""
    define_enums(types)
    types.add_input(
        "TimePoint",
        [
            InputField(
                "time", "DateTime", "By the clock: everything written at or before this time."
            ),
            InputField(
                "token",
                "ResumeToken",
                "Exactly: everything up to the place where an event or a read stands.",
            ),
        ],
        "A moment in the stream, for reads as of then.",
        one_of=True,
    )
    types.add_interface(
        "Node",
        [node_id_field(types.naming, raise_unresolved)],
        "An object with an id that is unique across all types; "
        f"`{types.naming.node}` of a version or a snapshot names that one state for ever.",
    )
    types.add_object(
        "HistoryCut",
        [
            Read("versions", "Int!", "How many were dropped.", attrgetter("versions")),
            Read("at", "DateTime!", "When the last of them was dropped.", attrgetter("at")),
            Read(
                "purgedBy",
                "String",
                "Who has purged the document's history; null where nobody has.",
                lambda source: source.purge and source.purge.by,
            ),
            Read(
                "purgedWhy",
                "String",
                "Why, then.",
                lambda source: source.purge and source.purge.why,
            ),
            Read(
                "purgedAt",
                "DateTime",
                "When, then.",
                lambda source: source.purge and source.purge.at,
            ),
        ],
        "What is no longer there of a document's history.",
    )
    types.add_object(
        "SavedCursor",
        [
            Read("name", "String!", "Its name.", attrgetter("name")),
            computed_field(
                "resumeToken",
                "ResumeToken!",
                "The place.",
                lambda source, context: context.token_out(source.token),
            ),
            Read("at", "DateTime!", "When it was saved or used last.", attrgetter("at")),
        ],
        "A place in the stream that is kept on the server.",
    )
    types.add_object(
        "HistoryGap",
        [
            Read(
                "from",
                "DateTime!",
                "From here on nothing is known.",
                lambda source: source.start.wall,
            ),
            Read(
                "to",
                "DateTime",
                "From here on all is known again; null while the present is being read.",
                lambda source: source.end and source.end.wall,
            ),
            Read("why", "String!", "Why it was lost.", attrgetter("why")),
        ],
        "A window of a collection's history that was lost: what was written in it is not known, "
        "and reads as of a moment in it fail with HISTORY_LOST.",
    )
    types.add_interface(
        "Version",
        version_fields(types.naming),
        "One version of one document: what a write made of it.",
        ["Node"],
    )
    types.add_interface(
        "Change",
        change_fields(),
        "What a subscription is told: a write, or where the stream stands.",
    )
    types.add_object(
        "FieldChange",
        [
            Read(
                "path",
                "String!",
                "The field, dotted inside embedded documents.",
                attrgetter("path"),
            ),
            Read(
                "kind",
                "FieldChangeKind!",
                "Whether it was added, removed, or given another value.",
                attrgetter("kind"),
            ),
            Read(
                "before",
                "JSON",
                "The value before; null where there was none.",
                attrgetter("before"),
            ),
            Read(
                "after", "JSON", "The value after; null where there is none.", attrgetter("after")
            ),
        ],
        "One field that differs between two states.",
    )
    types.add_object(
        "PageInfo",
        [
            Read(
                "hasNextPage",
                "Boolean!",
                "Whether there is more after this page.",
                attrgetter("has_next"),
            ),
            Read(
                "hasPreviousPage",
                "Boolean!",
                "Whether there is more before this page.",
                attrgetter("has_previous"),
            ),
            Read(
                "startCursor",
                "String",
                "The place of the first item: give it as `before`.",
                attrgetter("start_cursor"),
            ),
            Read(
                "endCursor",
                "String",
                "The place of the last item: give it as `after`.",
                attrgetter("end_cursor"),
            ),
        ],
        "Where a page stands in the whole.",
    )
    _define_stream_status(types)


def node_id_field(naming: Naming, read: Callable[..., Any]) -> Read:
    """Return the field that identifies an object among the objects of all types."""
    description = f"Names this object among all types; `node({naming.node}:)` finds it again."
    return Read("nodeId", "ID!", description, read, shown_as=naming.node)


def version_fields(naming: Naming, **reads: Callable[..., Any]) -> list[StrawberryField]:
    """Return the fields of the interface Version.

    Args:
        naming: names of the fields that identify objects.
        reads: an object type's functions that read the fields, by name in snake case. Most take
            the source. `changed_fields`, `resume_token` and `known_until` (for `Resolve.ready`)
            take the source and the context, `comments` and `until` the source and graphql-core's
            info.
    """

    def read(name: str) -> Callable[..., Any]:
        return reads.get(name, raise_unresolved)

    return [
        node_id_field(naming, read("node_id")),
        Read("id", "ID!", "`<document id>@<version>`", read("id"), shown_as=naming.state),
        Read("documentId", "ID!", "The id of the document.", read("document_id")),
        Read(
            "version",
            "Int!",
            "Its number: higher than that of every earlier version.",
            read("version"),
        ),
        Read("operation", "Operation!", "What was done.", read("operation")),
        Read("at", "DateTime!", "When it was written.", read("at")),
        Resolve(
            "until",
            "DateTime",
            "When the next version replaced this one; null while it is the current one.",
            read("until"),
            ready=lambda executor, details: read("known_until"),
        ),
        Read("author", "String", "Who wrote it, where the writer said so.", read("author")),
        Read("comment", "String", "Why it was written, where the writer said so.", read("comment")),
        computed_field(
            "changedFields",
            "[String!]!",
            "The fields that it changed: dotted paths.",
            read("changed_fields"),
        ),
        Read(
            "restoredFrom",
            "Int",
            "The version whose content this one brought back, if it did.",
            read("restored_from"),
        ),
        Read(
            "fromDraft",
            "Int",
            "The draft that was published as this version, if one was.",
            read("from_draft"),
        ),
        Read(
            "gap",
            "Boolean!",
            "True where something between the version before and this one, or while this one was "
            "current, may have been lost.",
            read("gap"),
        ),
        Read(
            "cut",
            "HistoryCut",
            "What was dropped before it, if anything was; only the oldest version that is there "
            "has it.",
            read("cut"),
        ),
        computed_field(
            "resumeToken",
            "ResumeToken!",
            "Where it stands in the stream: subscribe after it, or read as of it.",
            read("resume_token"),
        ),
        comments_field("The comments on it.", read("comments")),
    ]


def change_fields(**reads: Callable[..., Any]) -> list[StrawberryField]:
    """Return the fields of the interface Change.

    Args:
        reads: an object type's functions that read the fields, by name in snake case. Most take
            the source; `changed_fields`, `diff` and `resume_token` take graphql-core's info, too.
    """

    def read(name: str) -> Callable[..., Any]:
        return reads.get(name, raise_unresolved)

    return [
        Read("kind", "ChangeKind!", "What this is about.", read("kind")),
        Read("operation", "Operation", "What was done; null where nothing was.", read("operation")),
        Read(
            "transition",
            "Transition",
            "What it means to the subscription's filter.",
            read("transition"),
        ),
        Read("documentId", "ID", "The id of the document.", read("document_id")),
        Read("version", "Int", "The version that it made.", read("version")),
        Resolve(
            "changedFields",
            "[String!]",
            "The fields that it changed: dotted paths.",
            read("changed_fields"),
        ),
        Resolve(
            "diff",
            "[FieldChange!]",
            "What it changed, with the values before and after.",
            read("diff"),
        ),
        Read("at", "DateTime", "When it was written.", read("at")),
        Read("author", "String", "Who wrote it, where the writer said so.", read("author")),
        Read("comment", "String", "Why it was written, where the writer said so.", read("comment")),
        Read(
            "replayed",
            "Boolean!",
            "True when it was read from the archive, or caught up on, rather than seen live.",
            read("replayed"),
        ),
        Read("gap", "Boolean!", "True where something before it may have been lost.", read("gap")),
        Resolve(
            "resumeToken",
            "ResumeToken!",
            "Hold it: a subscription `after` it goes on right behind this event.",
            read("resume_token"),
        ),
    ]


def _define_stream_status(types: Types) -> None:
    def resume_token(source: Any, info: ResolveInfo) -> str | None:
        return None if source.resume_token is None else info.context.token_out(source.resume_token)

    types.add_object(
        "StreamReading",
        [
            Read("documents", "Long!", "How many it has read.", attrgetter("documents")),
            Read(
                "estimatedTotal",
                "Long",
                "About how many there are, as the database said when it began; null before.",
                attrgetter("estimated_total"),
            ),
        ],
        "How far a listener's reading of a collection has come.",
    )
    types.add_object(
        "StreamStatus",
        [
            Read("name", "String!", "The listener's name.", attrgetter("name")),
            Read(
                "collection",
                "String!",
                "The collection that it listens to.",
                attrgetter("collection"),
            ),
            Read(
                "state",
                "String!",
                "`recording`; `reading`, while it reads what was there before it; `working`, of "
                "other listeners; `waiting`, while no process has it.",
                attrgetter("state"),
            ),
            Read("owner", "String", "Which process holds the lease.", attrgetter("owner")),
            Read(
                "fence",
                "Long",
                "The lease's fencing token: it grows with each change of holder, "
                "and the newest one alone may write.",
                attrgetter("fence"),
            ),
            Resolve("resumeToken", "ResumeToken", "How far it has come.", resume_token),
            Read("at", "DateTime", "How far it has come, by the clock.", attrgetter("at")),
            Read(
                "lagSeconds",
                "Float",
                "The age of the oldest change that it has yet to deal with; 0 where there is none. "
                "Where the answering process has not seen that, as while an outage is caught up "
                "with, the age of the place it has come to.",
                attrgetter("lag_s"),
            ),
            Read(
                "reading",
                "StreamReading",
                "How far the reading of what was there before it has come; null once it is done.",
                attrgetter("reading"),
            ),
            Read(
                "trouble",
                "String",
                "Why it makes no progress, as when a sink's receiver takes nothing; of recorders, "
                "also that events were set aside. Null where all is well.",
                attrgetter("trouble"),
            ),
            Read(
                "gaps",
                "[HistoryGap!]!",
                "Of recorders, the windows of the collection's history that were lost, the oldest "
                "first; also where nothing differed afterwards.",
                attrgetter("gaps"),
            ),
        ],
        "One change-stream listener of this deployment: a recorder, a view or a sink.",
    )


def raise_unresolved(_source: object, _context: object = None) -> Any:
    """Raise an error: resolver of an interface's fields, which graphql-core never calls."""
    raise AssertionError("an interface's fields are resolved by the types that implement it")
