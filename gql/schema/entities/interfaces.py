"""Types that are the same for every model: interfaces, page info, history gaps, saved cursors."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import InputField, Read, Resolve, computed_field
from revstream.gql.schema.common.enums import define_enums
from revstream.gql.schema.common.id_naming import Naming
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.comments import comments_field
from revstream.gql.schema.entities.stream_status import define_stream_status

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
                "time", "DateTime", "Time of the clock: includes all writes at or before it."
            ),
            InputField(
                "token",
                "ResumeToken",
                "Exact position in the change stream: includes all writes up to it.",
            ),
        ],
        "A time point for as-of reads: a time or a resume token.",
        one_of=True,
    )
    types.add_interface(
        "Node",
        [node_id_field(types.naming, raise_unresolved)],
        "An object with an id that is unique across all types. "
        f"`{types.naming.node}` of a version or a snapshot always identifies the same state.",
    )
    types.add_object(
        "HistoryCut",
        [
            Read(
                "versions",
                "Int!",
                "The number of versions that were deleted.",
                attrgetter("versions"),
            ),
            Read("at", "DateTime!", "The time of the last deletion.", attrgetter("at")),
            Read(
                "purgedBy",
                "String",
                "The operator who purged the document's history; null if it was not purged.",
                lambda source: source.purge and source.purge.by,
            ),
            Read(
                "purgedWhy",
                "String",
                "The reason for the purge; null if it was not purged.",
                lambda source: source.purge and source.purge.why,
            ),
            Read(
                "purgedAt",
                "DateTime",
                "The time of the purge; null if it was not purged.",
                lambda source: source.purge and source.purge.at,
            ),
        ],
        "A truncation of a document's history: retention or a purge deleted its oldest versions.",
    )
    types.add_object(
        "SavedCursor",
        [
            Read("name", "String!", "The name of the cursor.", attrgetter("name")),
            computed_field(
                "resumeToken",
                "ResumeToken!",
                "The stored resume token.",
                lambda source, context: context.token_out(source.token),
            ),
            Read("at", "DateTime!", "The time when it was last saved or used.", attrgetter("at")),
        ],
        "A resume token that is stored on the server under a name.",
    )
    types.add_object(
        "HistoryGap",
        [
            Read(
                "from",
                "DateTime!",
                "The start of the gap.",
                lambda source: source.start.wall,
            ),
            Read(
                "to",
                "DateTime",
                "The end of the gap; null while the current documents are being read.",
                lambda source: source.end and source.end.wall,
            ),
            Read("why", "String!", "The reason for the gap.", attrgetter("why")),
        ],
        "A time window in which the history of a collection is incomplete. Writes in it are "
        "unknown, and as-of reads at a time point in it fail with HISTORY_LOST.",
    )
    types.add_interface(
        "Version",
        version_fields(types.naming),
        "One version of one document.",
        ["Node"],
    )
    types.add_interface(
        "Change",
        change_fields(),
        "An event of a subscription: a change, or a newer position in the change stream.",
    )
    types.add_object(
        "FieldChange",
        [
            Read(
                "path",
                "String!",
                "The field, as a dotted path inside embedded documents.",
                attrgetter("path"),
            ),
            Read(
                "kind",
                "FieldChangeKind!",
                "The kind of difference: added, removed or changed.",
                attrgetter("kind"),
            ),
            Read(
                "before",
                "JSON",
                "The old value; null if there was none.",
                attrgetter("before"),
            ),
            Read("after", "JSON", "The new value; null if there is none.", attrgetter("after")),
        ],
        "One field that differs between two states.",
    )
    types.add_object(
        "PageInfo",
        [
            Read(
                "hasNextPage",
                "Boolean!",
                "True if there are items after this page.",
                attrgetter("has_next"),
            ),
            Read(
                "hasPreviousPage",
                "Boolean!",
                "True if there are items before this page.",
                attrgetter("has_previous"),
            ),
            Read(
                "startCursor",
                "String",
                "The cursor of the first item; pass it as `before`.",
                attrgetter("start_cursor"),
            ),
            Read(
                "endCursor",
                "String",
                "The cursor of the last item; pass it as `after`.",
                attrgetter("end_cursor"),
            ),
        ],
        "The position of a page in the list.",
    )
    define_stream_status(types)


def node_id_field(naming: Naming, read: Callable[..., Any]) -> Read:
    """Return the field that identifies an object among the objects of all types."""
    description = (
        f"The id of this object among all types; `node({naming.node}:)` returns the object."
    )
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
        Read(
            "id",
            "ID!",
            "The id of the version: `<document id>@<version>`.",
            read("id"),
            shown_as=naming.state,
        ),
        Read("documentId", "ID!", "The id of the document.", read("document_id")),
        Read(
            "version",
            "Int!",
            "The version number; it is higher than that of each earlier version.",
            read("version"),
        ),
        Read("operation", "Operation!", "The write that created the version.", read("operation")),
        Read("at", "DateTime!", "The time of the write.", read("at")),
        Resolve(
            "until",
            "DateTime",
            "The time when the next version replaced this one; null for the current version.",
            read("until"),
            ready=lambda executor, details: read("known_until"),
        ),
        Read(
            "author", "String", "The author of the write, if the writer stored one.", read("author")
        ),
        Read(
            "comment",
            "String",
            "The reason for the write, if the writer stored one.",
            read("comment"),
        ),
        computed_field(
            "changedFields",
            "[String!]!",
            "The changed fields, as dotted paths.",
            read("changed_fields"),
        ),
        Read(
            "restoredFrom",
            "Int",
            "The number of the version whose content this version restored, if any.",
            read("restored_from"),
        ),
        Read(
            "fromDraft",
            "Int",
            "The number of the draft that was published as this version, if any.",
            read("from_draft"),
        ),
        Read(
            "traceparent",
            "String",
            "The trace of the write, as W3C Trace Context has it, if the writer sent one.",
            read("traceparent"),
        ),
        Read(
            "gap",
            "Boolean!",
            "True if changes may be missing between the previous version and this one, or while "
            "this version was current.",
            read("gap"),
        ),
        Read(
            "cut",
            "HistoryCut",
            "The truncation before this version, if any; only the oldest version that is left has "
            "one.",
            read("cut"),
        ),
        computed_field(
            "resumeToken",
            "ResumeToken!",
            "The position of the version: subscribe after it, or read as of it.",
            read("resume_token"),
        ),
        comments_field("The comments on the version.", read("comments")),
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
        Read("kind", "ChangeKind!", "The kind of the event.", read("kind")),
        Read(
            "operation",
            "Operation",
            "The write; null in an event without a write.",
            read("operation"),
        ),
        Read(
            "transition",
            "Transition",
            "The effect of the change on the result of the subscription's filter.",
            read("transition"),
        ),
        Read("documentId", "ID", "The id of the document.", read("document_id")),
        Read(
            "version", "Int", "The number of the version that the change created.", read("version")
        ),
        Resolve(
            "changedFields",
            "[String!]",
            "The changed fields, as dotted paths.",
            read("changed_fields"),
        ),
        Resolve(
            "diff",
            "[FieldChange!]",
            "The changed fields, with their old and new values.",
            read("diff"),
        ),
        Read("at", "DateTime", "The time of the write.", read("at")),
        Read(
            "author", "String", "The author of the write, if the writer stored one.", read("author")
        ),
        Read(
            "comment",
            "String",
            "The reason for the write, if the writer stored one.",
            read("comment"),
        ),
        Read(
            "traceparent",
            "String",
            "The trace of the write, as W3C Trace Context has it, if the writer sent one.",
            read("traceparent"),
        ),
        Read(
            "replayed",
            "Boolean!",
            "True if the event was replayed, false if it was sent live.",
            read("replayed"),
        ),
        Read("gap", "Boolean!", "True if changes may be missing before this event.", read("gap")),
        Resolve(
            "resumeToken",
            "ResumeToken!",
            "The position of the event. Store it: a subscription with `after` resumes directly "
            "after this event.",
            read("resume_token"),
        ),
    ]


def raise_unresolved(_source: object, _context: object = None) -> Any:
    """Raise an error: resolver of an interface's fields, which graphql-core never calls."""
    raise AssertionError("an interface's fields are resolved by the types that implement it")
