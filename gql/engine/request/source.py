"""Source objects of resolvers: one small record per object of a response.

`moment` is the cluster time at which references below a record are resolved; None means now.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from bson import Timestamp

from revstream.gql.engine.definitions.object_type import ObjectTypeInfo
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.history.version_filter import OPERATION
from revstream.resolvers.values.json_value import REFUSED
from revstream.resolvers.values.output import ValueLocation, any_id, describe_value, id_to_api
from revstream.resolvers.values.type_misfit import type_misfit
from revstream.streams.core.errors import ArchiveBehind
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = [
    "CurrentDocument",
    "EmbeddedDocument",
    "SnapshotDocument",
    "State",
    "VersionRecord",
    "check_operation",
    "id_text",
    "member_misfit",
]


class CurrentDocument:
    """A document as it is now, or as a change event left it.

    `number` is its version number, if it was read.
    """

    __slots__ = ("number", "shape", "values")
    moment: ClassVar[Timestamp | None] = None

    def __init__(self, shape: ObjectTypeInfo, values: Document, number: int | None = None) -> None:
        self.shape = shape
        self.values = values
        self.number = number

    @property
    def place(self) -> ValueLocation:
        # Created on access, since only errors need it.
        return ValueLocation(self.shape.entity.collection, self.values["_id"])

    @property
    def type_name(self) -> str:
        return _variant(self).name

    @property
    def id_text(self) -> str:
        return id_text(self.shape, self.values["_id"], self)


class SnapshotDocument:
    """A document as a version left it, or as a draft proposes it; `number` identifies either."""

    __slots__ = ("moment", "number", "shape", "values")

    def __init__(
        self, shape: ObjectTypeInfo, values: Document, number: int | str | None, moment: Timestamp
    ) -> None:
        self.shape = shape
        self.values = values
        self.number = number
        self.moment = moment

    @property
    def place(self) -> ValueLocation:
        return ValueLocation(self.shape.entity.collection, self.values["_id"], past=True)

    @property
    def type_name(self) -> str:
        return _variant(self).snapshot

    @property
    def id_text(self) -> str:
        return f"{id_text(self.shape, self.values['_id'], self)}@{self.number}"


def _variant(source: CurrentDocument | SnapshotDocument) -> ObjectTypeInfo:
    """Return the object type of a document.

    Raises:
        DocumentMisfit: the document is of no member of a union.
    """
    misfit = member_misfit(source)
    if misfit is not None:
        raise misfit
    return source.shape.variant(source.values)


def member_misfit(source: CurrentDocument | SnapshotDocument) -> DocumentMisfit | None:
    """Return the error of a document that is of no member of a union; None for others."""
    discriminator = source.shape.discriminator
    if discriminator is None or discriminator.member(source.values) is not None:
        return None
    return type_misfit(source.place, discriminator, source.values)


class EmbeddedDocument:
    """An embedded document."""

    __slots__ = ("moment", "place", "shape", "values")

    def __init__(
        self,
        shape: ObjectTypeInfo,
        values: Document,
        place: ValueLocation,
        moment: Timestamp | None,
    ) -> None:
        self.shape = shape
        self.values = values
        self.place = place
        self.moment = moment

    @property
    def type_name(self) -> str:
        return self.shape.name if self.moment is None else self.shape.snapshot


State = CurrentDocument | SnapshotDocument | EmbeddedDocument


class VersionRecord:
    """A version of a document.

    Its `moment` is its own time, or that of the as-of read above it.

    Args:
        before: the previous version with the same fields, if it was read.
        ends: times of replacement of the page's versions, if they were read.
    """

    __slots__ = ("before", "ends", "moment", "shape", "version")

    def __init__(
        self,
        shape: ObjectTypeInfo,
        version: Version,
        moment: Timestamp | None = None,
        before: Version | None = None,
        ends: Mapping[str, datetime | None] | None = None,
    ) -> None:
        self.shape = shape
        self.version = version
        self.ends = ends
        self.moment = version.at if moment is None else moment
        self.before = before

    @property
    def place(self) -> ValueLocation:
        return ValueLocation(self.shape.entity.collection, self.version.document)

    @property
    def type_name(self) -> str:
        return self.shape.version

    @property
    def document_id(self) -> str:
        return id_text(self.shape, self.version.document, self)

    @property
    def operation(self) -> str:
        return check_operation(self.version.operation, self.place)

    @property
    def id_text(self) -> str:
        return f"{self.document_id}@{self.version.number}"

    @property
    def snapshot(self) -> SnapshotDocument | None:
        """The document of this version; None for a deletion."""
        version = self.version
        if version.operation == "DELETE":
            return None
        values = version.full if version.full is not None else {"_id": version.document}
        return SnapshotDocument(self.shape, values, version.number, self.moment)


def not_archived_error(document: CurrentDocument) -> ArchiveBehind:
    """Return the error of a document that has no version number in the archive."""
    place = document.place
    shown = any_id(place.document_id)
    return ArchiveBehind(
        f"{place.collection}/{shown}: no version in the archive; try again if the document is new, "
        "otherwise check /readyz and the stored values of its id and version",
        collection=place.collection,
        documentId=shown,
    )


def check_operation(operation: str, place: ValueLocation) -> str:
    """Return the operation of a version.

    Raises:
        DocumentMisfit: a newer revstream has recorded it, and this one does not know it.
    """
    if operation in OPERATION.values:
        return operation
    raise DocumentMisfit(
        collection=place.collection,
        document_id=any_id(place.document_id),
        field="operation",
        found=describe_value(operation),
        expected=f"one of {', '.join(OPERATION.values)}",
        mend="run the release of revstream that has recorded the version, or a newer one",
        past=True,
    )


def id_text(shape: ObjectTypeInfo, value: Any, record: Any) -> str:
    """Return the API's form of a document's id.

    Raises:
        DocumentMisfit: the value is not a valid id.
    """
    shown: Any = shape.shown_id(value)
    # The location is for the error.
    return id_to_api(shape.id_scalar, value, record.place) if shown is REFUSED else shown
