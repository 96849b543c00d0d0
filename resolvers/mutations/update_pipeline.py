"""Update pipelines of single writes: new content, version number and attribution.

Every write through the gateway increments the version field and sets `_change`, whatever values
they had before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson import ObjectId
from bson.raw_bson import RawBSONDocument

from revstream.model.definition import Entity
from revstream.resolvers.mutations.document_input import (
    DocumentChange,
    replacement_merge,
)
from revstream.resolvers.mutations.merge_patch import Merge, field_expression, object_expression
from revstream.resolvers.mutations.result import Author
from revstream.resolvers.mutations.write_precondition import WritePrecondition
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.mongo.transactions import Pipeline
from revstream.streams.versioning.version import CHANGE_FIELD, HIGHEST_COUNTER

__all__ = ["DocumentUpdate", "attribution", "fenced_pipeline"]

Expressions = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentUpdate:
    """Update of a document.

    Args:
        content: returns the new content as an expression over the document, given expressions of
            revstream's own fields, in which `$$old` is the document before.
        operation: UPDATE or REPLACE, independent of the server's oplog entry.
        demands: preconditions on the stored document.
        restored_from: number of the restored version.
        draft: number of the published draft.
    """

    content: Callable[[Expressions], Any]
    operation: str
    demands: Sequence[WritePrecondition] = ()
    restored_from: int | None = None
    draft: int | None = None

    @classmethod
    def update(cls, change: DocumentChange) -> DocumentUpdate:
        return cls(
            content=lambda own: change.merge.expression(more={**change.added, **own}),
            operation="UPDATE",
            demands=change.demands,
        )

    @classmethod
    def publication(cls, merge: Merge, draft: int) -> DocumentUpdate:
        return cls(content=lambda own: merge.expression(more=own), operation="UPDATE", draft=draft)

    @classmethod
    def replacement(
        cls, entity: Entity, document: Document, *, same_type: bool = False
    ) -> DocumentUpdate:
        """Return the replacement of a document.

        Args:
            same_type: a document of another type is refused.
        """
        merge = replacement_merge(entity, document)
        return cls(
            content=lambda own: merge.expression(more=own),
            operation="REPLACE",
            demands=[_same_type(entity, document)] if same_type else [],
        )

    @classmethod
    def restoration(cls, content: RawBSONDocument, number: int) -> DocumentUpdate:
        return cls(content=_whole(content), operation="REPLACE", restored_from=number)

    @classmethod
    def restoration_of_draft(cls, content: Mapping[str, Any], draft: int) -> DocumentUpdate:
        return cls(content=_whole(content), operation="REPLACE", draft=draft)

    def pipeline(self, entity: Entity, change: Document, number: int | None) -> Pipeline:
        """Return the update pipeline.

        Args:
            change: the `_change` of this write.
            number: number of the new version, if known.
        """
        content = self.content(_own(entity, change, number))
        return [{"$replaceWith": content if entity.fence is None else _fenced(entity, content)}]


def _same_type(entity: Entity, document: Document) -> WritePrecondition:
    assert entity.discriminator is not None
    name, stored = entity.discriminator.name, entity.discriminator.stored
    return WritePrecondition(
        path=name,
        problem=f"{name}: the document has {{found}}, expected {document[stored]!r}, since you may "
        "not write all fields of its type; replace it by one of its own type",
        query={stored: document[stored]},
        stored=(stored,),
        value=document[stored],
    )


def _whole(content: Mapping[str, Any]) -> Callable[[Expressions], Any]:
    def restored(own: Expressions) -> Any:
        # Nothing of the old document stays but the version number, which is incremented.
        parts = [{"$literal": content}, object_expression(own)]
        return {"$let": {"vars": {"old": "$$ROOT"}, "in": {"$mergeObjects": parts}}}

    return restored


def attribution(author: Author, entity: Entity, key: Any, **more: Any) -> Document:
    """Return the `_change` of a write: its id, the author, the reason, the trace, further facts.

    It names the document, so that a clone that contains it is not attributed to this write.
    """
    said = {"by": author.by, "why": author.why, "traceparent": author.traceparent, **more}
    bound = {"in": entity.collection, "doc": key}
    return {
        "id": str(ObjectId()),
        **bound,
        **{n: each for n, each in said.items() if each is not None},
    }


def fenced_pipeline(entity: Entity, document: Document, change: Document) -> Pipeline:
    """Return the pipeline that writes a state if its fence value is higher than the stored one, or
    first.
    """
    assert entity.fence is not None
    stored = entity.fence.stored
    fence = f"${stored}"
    newer = replacement_merge(entity, document).expression(more=_own(entity, change, None))
    stale = {"$and": [{"$isNumber": fence}, {"$gte": [fence, {"$literal": document[stored]}]}]}
    return [{"$replaceWith": {"$cond": [stale, "$$ROOT", newer]}}]


def _fenced(entity: Entity, content: Any) -> Any:
    """Return the new content with a fence value that is never below the stored one."""
    assert entity.fence is not None
    stored = entity.fence.stored
    before, after = field_expression("$$ROOT", stored), field_expression("$$made", stored)
    lower = {"$or": [{"$not": [{"$isNumber": after}]}, {"$lt": [after, before]}]}
    kept = {"$setField": {"field": {"$literal": stored}, "input": "$$made", "value": before}}
    lowered = {"$and": [{"$isNumber": before}, lower]}
    return {"$let": {"vars": {"made": content}, "in": {"$cond": [lowered, kept, "$$made"]}}}


def _own(entity: Entity, change: Document, number: int | None) -> Expressions:
    own: dict[str, Any] = {CHANGE_FIELD: {"$literal": change}}
    if entity.version is not None:
        counted = field_expression("$$old", entity.version)
        counts = {"$and": [{"$isNumber": counted}, {"$lt": [counted, HIGHEST_COUNTER]}]}
        counted_up = {"$add": [{"$cond": [counts, counted, 0]}, 1]}
        own[entity.version] = counted_up if number is None else {"$literal": number}
    return own
