"""Which layout a collection of the model has."""

from __future__ import annotations

from model.entities import Entity, History
from streams.layouts.archived import Archived
from streams.layouts.current_flag import CurrentFlag
from streams.layouts.deltas import Deltas
from streams.layouts.document_per_version import DocumentPerVersion
from streams.layouts.embedded import Embedded
from streams.layouts.keeping import Keeping
from streams.layouts.kept import Names
from streams.layouts.layout import Layout
from streams.layouts.separate import Separate
from streams.mongo import Mongo

__all__ = ["layout_of"]

_LAYOUTS: dict[History, type[Keeping]] = {
    History.DOCUMENT_PER_VERSION: DocumentPerVersion,
    History.CURRENT_FLAG: CurrentFlag,
    History.EMBEDDED: Embedded,
    History.SEPARATE: Separate,
    History.DELTAS: Deltas,
}


def layout_of(mongo: Mongo, entity: Entity) -> Layout:
    """The layout of an entity's collection, by the names that the model gives."""
    layout = entity.layout
    if layout is None:
        return Archived(mongo, entity.collection)
    # The model sees to it that there is one.
    assert entity.version is not None
    names = Names(
        document=layout.document,
        number=entity.version,
        current=layout.current,
        previous=layout.previous,
        unset=layout.unset,
        whole=layout.whole,
        deleted=layout.deleted,
        at=layout.at,
    )
    return _LAYOUTS[entity.history](mongo, entity.collection, names)
