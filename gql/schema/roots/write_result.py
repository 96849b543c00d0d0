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
        "The reason why nothing was written.",
    )

    async def current(source: RefusedRecord, info: ResolveInfo) -> CurrentDocument | None:
        assert isinstance(source.refusal, VersionConflict)
        return await read_current_document(info, source.shape, source.refusal.key)

    _define_refusal(
        types,
        "VersionConflict",
        "The version number of the document is not the expected one.",
        [
            Read(
                "expectedVersion",
                "Int!",
                "The expected version number.",
                attrgetter("refusal.expected"),
            ),
            Read(
                "actualVersion", "Int!", "The actual version number.", attrgetter("refusal.actual")
            ),
            Resolve("current", "Node", "The current document.", current),
            *(_typed_current_field(each) for each in shapes if each.is_entity),
        ],
    )
    _define_refusal(
        types,
        "DocumentNotFound",
        "The document does not exist, or it has no version or draft with this number.",
        [],
    )
    _define_refusal(
        types,
        "AlreadyExists",
        "Another document has this id, or this value of a unique field.",
        [_path_field("The field.")],
    )
    _define_refusal(
        types,
        "StaleWrite",
        "The fence value is not higher than the one already applied; nothing was written.",
        [
            Read("fence", "Long!", "The fence value of this write.", _long_reader("refusal.fence")),
            Read(
                "appliedFence",
                "Long!",
                "The fence value already applied.",
                _long_reader("refusal.applied"),
            ),
        ],
    )
    _define_refusal(
        types,
        "InvalidDocument",
        "The input does not fit the model, or the write is not possible.",
        [
            _path_field(
                "The dotted path of the field, or the argument; empty for the whole document."
            )
        ],
    )


def _typed_current_field(shape: ObjectTypeInfo) -> StrawberryField:
    """Return a field with the value of `current` and the type of one entity."""

    async def current(source: RefusedRecord, info: ResolveInfo) -> CurrentDocument | None:
        if source.shape is not shape:
            return None
        assert isinstance(source.refusal, VersionConflict)
        return await read_current_document(info, shape, source.refusal.key)

    description = f"The current document, if it is {with_article(shape.name)}; otherwise null."
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
                    "The document after this write; null after a deletion.",
                    attrgetter("document"),
                ),
            ),
            Read(
                "version",
                "Int!",
                "The number of the version that the write created.",
                attrgetter("version"),
            ),
            _resume_token_field(
                "The position of this write: subscribe after it, or read as of it."
            ),
        ],
        "Success: the document was written.",
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
        f"The result of a write to {with_article(shape.name)}.",
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
                "The number of events that were applied.",
                attrgetter("applied.applied"),
            ),
            Read(
                "stale",
                "Int!",
                "The number of events that were not applied: their fence value was not higher, or "
                "the batch has a newer event of the same document.",
                attrgetter("applied.stale"),
            ),
            _resume_token_field("A position in the change stream after all of these writes."),
        ],
        "The result of a batch of events.",
    )


def _define_refusal(
    types: Types, name: str, description: str, more: Sequence[StrawberryField]
) -> None:
    types.add_object(
        name, [_message_field(attrgetter("refusal.message")), *more], description, ["WriteError"]
    )


def _message_field(read: Any) -> Read:
    return Read("message", "String!", "The reason, with the expected and the actual value.", read)


def _path_field(description: str) -> Read:
    return Read("path", "String!", description, attrgetter("refusal.path"))


def _long_reader(attribute: str) -> Any:
    read = attrgetter(attribute)
    return lambda source: TO_API[Scalar.LONG](read(source))


def _resume_token_field(description: str) -> Resolve:
    def resume_token(source: Any, info: ResolveInfo) -> str:
        return info.context.token_out(source.token)

    return Resolve("resumeToken", "ResumeToken!", description, resume_token)
