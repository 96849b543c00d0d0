"""Results of mutations: unions of `ProductWritten` and the reasons for a refusal.

A conflict is data, not an error of the request: a client can select it and continue with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from strawberry.types.field import StrawberryField

from revstream.gql.engine.definitions.field import Read, Resolve
from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.context import ResolveInfo
from revstream.gql.engine.request.source import CurrentDocument
from revstream.gql.schema.common.access_check import require_read_access
from revstream.gql.schema.common.type_builder import Types
from revstream.gql.schema.entities.interfaces import raise_unresolved
from revstream.gql.schema.roots.node import read_current_document
from revstream.model.definition import Scalar
from revstream.model.naming import with_article
from revstream.resolvers.mutations.fenced_upsert import BatchOutcome
from revstream.resolvers.mutations.result import VersionConflict, WriteRefused
from revstream.resolvers.values.output import TO_API
from revstream.streams.core import resume_tokens

__all__ = [
    "AppliedRecord",
    "RefusedRecord",
    "WrittenRecord",
    "define_applied",
    "define_refusals",
    "define_written",
]


@dataclass(frozen=True, slots=True)
class WrittenRecord:
    """Source of `<Entity>Written`.

    Attributes:
        shape: the object type of the document.
        document: the document after the write; None after a deletion.
        version: the version number; None if it is not selected.
        token: the resume token of the write.
    """

    shape: ObjectTypeInfo
    document: CurrentDocument | None
    version: int | None
    token: str

    @property
    def type_name(self) -> str:
        return f"{self.shape.name}Written"


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """Source of a type that implements `WriteError`."""

    shape: ObjectTypeInfo
    refusal: WriteRefused

    @property
    def type_name(self) -> str:
        return self.refusal.type_name


@dataclass(frozen=True, slots=True)
class AppliedRecord:
    """Source of the result of a batch of events."""

    applied: BatchOutcome

    @property
    def token(self) -> str:
        return resume_tokens.token_from_time(self.applied.at)


def define_refusals(types: Types, shapes: Iterable[ObjectTypeInfo]) -> None:
    """Define `WriteError` and the types that implement it."""
    types.add_interface(
        "WriteError",
        [_message_field(raise_unresolved)],
        "Why nothing was written.",
    )

    async def current(source: RefusedRecord, info: ResolveInfo) -> CurrentDocument | None:
        assert isinstance(source.refusal, VersionConflict)
        return await read_current_document(info, source.shape, source.refusal.key)

    _define_refusal(
        types,
        "VersionConflict",
        "The document is at another version than the one expected.",
        [
            Read("expectedVersion", "Int!", "The one expected.", attrgetter("refusal.expected")),
            Read("actualVersion", "Int!", "The one that is there.", attrgetter("refusal.actual")),
            Resolve("current", "Node", "The document as it is now.", current),
            *(_typed_current_field(each) for each in shapes if each.is_entity),
        ],
    )
    _define_refusal(types, "DocumentNotFound", "There is nothing to be written to.", [])
    _define_refusal(
        types,
        "AlreadyExists",
        "Another document has that id, or that value of a unique field.",
        [_path_field("The field.")],
    )
    _define_refusal(
        types,
        "StaleWrite",
        "A write with a fencing token at or below the one already applied; nothing was changed.",
        [
            Read("fence", "Long!", "That of this write.", _long_reader("refusal.fence")),
            Read("appliedFence", "Long!", "The one applied.", _long_reader("refusal.applied")),
        ],
    )
    _define_refusal(
        types,
        "InvalidDocument",
        "What was asked for does not fit the model, or is not possible.",
        [_path_field("Where: a dotted path, or the argument; empty for the document as a whole.")],
    )


def _typed_current_field(shape: ObjectTypeInfo) -> StrawberryField:
    """Return a field with the value of `current` and the type of one entity."""

    async def current(source: RefusedRecord, info: ResolveInfo) -> CurrentDocument | None:
        if source.shape is not shape:
            return None
        assert isinstance(source.refusal, VersionConflict)
        return await read_current_document(info, shape, source.refusal.key)

    description = f"The same, where it is {with_article(shape.name)}; else null."
    name = f"current{shape.name}"
    return require_read_access(shape, Resolve(name, shape.name, description, current))


def define_written(types: Types, shape: ObjectTypeInfo) -> None:
    """Define `<Entity>Written` and `<Entity>Write`."""
    types.add_object(
        f"{shape.name}Written",
        [
            require_read_access(
                shape,
                Read(
                    shape.entity.singular,
                    shape.name,
                    "The document as this write left it; null where it deleted it.",
                    attrgetter("document"),
                ),
            ),
            Read("version", "Int!", "The number of the version it made.", attrgetter("version")),
            _resume_token_field("Where this write stands: subscribe after it, or read as of it."),
        ],
        "The write was made.",
    )
    types.add_union(
        f"{shape.name}Write",
        [
            f"{shape.name}Written",
            "VersionConflict",
            "DocumentNotFound",
            "AlreadyExists",
            "InvalidDocument",
            *(["StaleWrite"] if shape.entity.fence is not None else []),
        ],
        f"What became of a write to {with_article(shape.name)}.",
    )


def define_applied(types: Types, name: str) -> None:
    """Define the result of applying a batch of events.

    Args:
        types: the registry of the schema.
        name: the name of the type.
    """
    types.add_object(
        name,
        [
            Read(
                "applied",
                "Int!",
                "How many events are now the state of their document.",
                attrgetter("applied.applied"),
            ),
            Read(
                "stale",
                "Int!",
                "How many were not above what was applied already, or not the newest of theirs in "
                "this batch.",
                attrgetter("applied.stale"),
            ),
            _resume_token_field("A place in the stream behind all of them."),
        ],
        "What became of a batch of events.",
    )


def _define_refusal(
    types: Types, name: str, description: str, more: Sequence[StrawberryField]
) -> None:
    types.add_object(
        name, [_message_field(attrgetter("refusal.message")), *more], description, ["WriteError"]
    )


def _message_field(read: Any) -> Read:
    return Read("message", "String!", "What is wrong, and both values.", read)


def _path_field(description: str) -> Read:
    return Read("path", "String!", description, attrgetter("refusal.path"))


def _long_reader(attribute: str) -> Any:
    read = attrgetter(attribute)
    return lambda source: TO_API[Scalar.LONG](read(source))


def _resume_token_field(description: str) -> Resolve:
    def resume_token(source: Any, info: ResolveInfo) -> str:
        return info.context.token_out(source.token)

    return Resolve("resumeToken", "ResumeToken!", description, resume_token)
