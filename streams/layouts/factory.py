"""Creation of the layout that the model declares for an entity."""

from __future__ import annotations

from revstream.model.definition import Entity, HistoryKind
from revstream.streams.layouts.archive import ArchiveLayout
from revstream.streams.layouts.core.interface import Layout
from revstream.streams.layouts.core.stored_version import LayoutFieldNames
from revstream.streams.layouts.self_versioned.current_flag import CurrentFlagLayout
from revstream.streams.layouts.self_versioned.deltas import DeltasLayout
from revstream.streams.layouts.self_versioned.document_per_version import DocumentPerVersionLayout
from revstream.streams.layouts.self_versioned.embedded import EmbeddedLayout
from revstream.streams.layouts.self_versioned.engine import SelfVersionedLayout
from revstream.streams.layouts.self_versioned.separate import SeparateLayout
from revstream.streams.mongo.database import Mongo

__all__ = ["create_layout"]

_LAYOUTS: dict[HistoryKind, type[SelfVersionedLayout]] = {
    HistoryKind.DOCUMENT_PER_VERSION: DocumentPerVersionLayout,
    HistoryKind.CURRENT_FLAG: CurrentFlagLayout,
    HistoryKind.EMBEDDED: EmbeddedLayout,
    HistoryKind.SEPARATE: SeparateLayout,
    HistoryKind.DELTAS: DeltasLayout,
}


def create_layout(mongo: Mongo, entity: Entity) -> Layout:
    """Create the layout of an entity's collection, with the field names of the model."""
    layout = entity.layout
    if layout is None:
        return ArchiveLayout(mongo, entity.collection)
    # The model's validation guarantees it.
    assert entity.version is not None
    names = LayoutFieldNames(
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
