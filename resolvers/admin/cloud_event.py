"""CloudEvent 1.0 of a version, in structured JSON, with the fields that the API shows.

The fencing token is part of the event, so that it is signed. The headers repeat it.
Source: docs/decisions/0021-sinks.md; https://github.com/cloudevents/spec, JSON event format.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import orjson

from revstream.model.definition import Entity, Field, Model, ObjectType
from revstream.resolvers.errors import DocumentMisfit
from revstream.resolvers.values.dates import date_text
from revstream.resolvers.values.field_diff import changed_fields
from revstream.resolvers.values.output import ValueLocation, converter, id_to_api
from revstream.streams.core import resume_tokens
from revstream.streams.listeners.webhooks.document_queue import LostVersions
from revstream.streams.listeners.webhooks.message import Message
from revstream.streams.mongo.driver.codecs import Document
from revstream.streams.versioning.version import Version

__all__ = ["Events"]

_CONTENT_TYPE = "application/cloudevents+json; charset=UTF-8"


class Events:
    """Events of one entity's changes for one sink.

    Args:
        sink: its name, to which the fencing tokens belong.
        deployment: the deployment tag of the resume tokens.
    """

    def __init__(self, model: Model, entity: Entity, *, sink: str, deployment: str) -> None:
        self._model = model
        self._entity = entity
        self._sink = sink
        self._deployment = deployment
        self._source = f"/revstream/{deployment}/{entity.collection}"

    def change(self, version: Version, fencing_token: int) -> Message:
        """`id` is the version's resume token, `sequence` compares as text in stream order."""
        token = resume_tokens.encode(version.token, self._deployment)
        subject = self._id(version.document)
        misfits: list[str] = []
        content = None
        if version.full is not None:
            place = ValueLocation(self._entity.collection, version.document)
            content = self._shown(self._entity, version.full, place, misfits)
        cut = version.cut
        data: Document = {
            "operation": version.operation,
            "version": version.number,
            "author": version.by,
            "comment": version.why,
            "changedFields": changed_fields(self._entity, self._model, version.changed),
            "gap": version.gap or cut is not None,
            "document": content,
        }
        if version.restored_from is not None:
            data["restoredFrom"] = version.restored_from
        if cut is not None:
            data["cut"] = {"versions": cut.versions, "at": date_text(cut.at)}
        if misfits:
            data["misfits"] = misfits
        event = {
            "id": token,
            "type": f"revstream.{self._entity.name}.{version.operation.lower()}",
            "subject": subject,
            "time": date_text(version.wall),
            "sequence": version.token,
            "partitionkey": subject,
            "resumetoken": token,
        }
        headers = {"Revstream-Resume-Token": token}
        if version.traceparent is not None:
            # Both forms of CloudEvents' extension "Distributed Tracing".
            event["traceparent"] = headers["traceparent"] = version.traceparent
        return self._message(event, data, fencing_token, headers)

    def lost(self, lost: LostVersions, fencing_token: int) -> Message:
        """Create the event of a loss; with the document as its subject if it concerns one."""
        said = f"{self._sink} {lost.document!r} {lost.reason}"
        event = {
            "id": f"history-lost-{hashlib.sha256(said.encode()).hexdigest()[:32]}",
            "type": f"revstream.{self._entity.name}.history-lost",
        }
        if lost.document is not None:
            event["subject"] = event["partitionkey"] = self._id(lost.document)
        return self._message(event, {"reason": lost.reason}, fencing_token, {})

    def _message(
        self, event: Document, data: Document, fencing_token: int, headers: Mapping[str, str]
    ) -> Message:
        body = {
            "specversion": "1.0",
            "source": self._source,
            **event,
            "sink": self._sink,
            "fencingtoken": fencing_token,
            "datacontenttype": "application/json",
            "data": data,
        }
        return Message(
            id=event["id"],
            body=orjson.dumps(body),
            headers={
                "Content-Type": _CONTENT_TYPE,
                "Revstream-Sink": self._sink,
                "Revstream-Fencing-Token": str(fencing_token),
                **headers,
            },
        )

    def _id(self, key: Any) -> str:
        scalar = self._entity.id.stored_scalar
        assert scalar is not None
        return id_to_api(scalar, key, ValueLocation(self._entity.collection, key))

    def _shown(
        self, type_: ObjectType, stored: Mapping[str, Any], place: ValueLocation, misfits: list[str]
    ) -> Document:
        return {
            field.name: self._value(field, stored.get(field.stored), place, misfits)
            for field in self._model.variant(type_, stored).fields
        }

    def _value(self, field: Field, stored: Any, place: ValueLocation, misfits: list[str]) -> Any:
        """Return a value as a snapshot shows it.

        History outlives the model: a value that does not fit is null, and its field is named.
        """
        try:
            value = converter(field, nullable=True)(stored, place)
        except DocumentMisfit as exc:
            misfits.append(str(exc.facts["field"]))
            return None
        if value is None or not isinstance(field.type, str):
            return value
        kind = self._model.embedded(field.type)
        if not field.is_list:
            return self._shown(kind, value, place.inside(field.name), misfits)
        return [
            None
            if each is None
            else self._shown(kind, each, place.inside(f"{field.name}.{index}"), misfits)
            for index, each in enumerate(value)
        ]
