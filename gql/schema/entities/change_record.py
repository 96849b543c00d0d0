"""Event of a subscription to the documents of an entity."""

from __future__ import annotations

from collections.abc import Sequence

from bson import Timestamp

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.gql.engine.request.source import (
    CurrentDocument,
    SnapshotDocument,
    check_operation,
)
from revstream.resolvers.errors import LimitExceeded
from revstream.resolvers.subscriptions.event_enrichment import Change
from revstream.resolvers.values.field_diff import FieldChange, FieldDiff
from revstream.resolvers.values.output import ValueLocation, id_to_api
from revstream.streams.core import resume_tokens

__all__ = ["ChangeRecord"]

_MAX_CHANGES = 100_000
"""Maximum for one event, over all aliases that select its diff."""


class ChangeRecord:
    """Source of the object type `<Entity>Change`."""

    __slots__ = ("_diff", "_shown", "change", "shape")

    def __init__(self, shape: ObjectTypeInfo, change: Change) -> None:
        self.shape = shape
        self.change = change
        self._diff: tuple[FieldDiff, Sequence[FieldChange]] | None = None
        self._shown = 0

    def diff(self, comparison: FieldDiff) -> Sequence[FieldChange]:
        """Return the difference between the states before and after, computed once per event.

        Raises:
            LimitExceeded: all aliases of the field together have more than `_MAX_CHANGES`.
        """
        if self._diff is None or self._diff[0] is not comparison:
            changes = comparison.changes(self.change.before, self.change.document)
            self._diff = comparison, changes
        found = self._diff[1]
        self._shown += len(found)
        if self._shown > _MAX_CHANGES:
            raise LimitExceeded(
                f"changes of the event, under all names: {self._shown:,}, "
                f"maximum is {_MAX_CHANGES:,}; select diff fewer times",
                limit="max_values",
                asked=self._shown,
                bound=_MAX_CHANGES,
            )
        return found

    @property
    def type_name(self) -> str:
        return f"{self.shape.name}Change"

    @property
    def operation(self) -> str | None:
        change = self.change
        if change.operation is None:
            return None
        place = ValueLocation(self.shape.entity.collection, change.document_id)
        return check_operation(change.operation, place)

    @property
    def document_id(self) -> str | None:
        id_ = self.change.document_id
        if id_ is None:
            return None
        scalar = self.shape.entity.id.stored_scalar
        assert scalar is not None
        return id_to_api(scalar, id_, ValueLocation(self.shape.entity.collection, id_))

    @property
    def current(self) -> CurrentDocument | None:
        document = self.change.document
        return (
            None if document is None else CurrentDocument(self.shape, document, self.change.version)
        )

    @property
    def before(self) -> SnapshotDocument | None:
        change = self.change
        if change.before is None:
            return None
        moment = _just_before(resume_tokens.cluster_time(change.token))
        return SnapshotDocument(self.shape, change.before, change.previous_version, moment)


def _just_before(at: Timestamp) -> Timestamp:
    """Return the previous cluster time: the document had its old state then."""
    return Timestamp(at.time, at.inc - 1) if at.inc else Timestamp(at.time - 1, 2**32 - 1)
