"""The recorders of a deployment: one for each partition of each collection."""

from __future__ import annotations

from revstream.gql.runtime.progress_display import Report
from revstream.model.definition import Storage
from revstream.streams.archive.store import Archive
from revstream.streams.changefeed.source import Source, SourceOptions
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.coordination.partition import Partition, collection_partitions
from revstream.streams.listeners.context import ListenerContext
from revstream.streams.live.hub import Hub
from revstream.streams.live.shared_source import SharedSource
from revstream.streams.mongo.server_check import Server
from revstream.streams.recording.bootstrap.collection_setup import CollectionSetup
from revstream.streams.recording.options import RecorderOptions
from revstream.streams.recording.recorder import Recorder

__all__ = ["recorders_of"]

# More documents occur more than once in a larger batch, and only the last of each is closed in the
# archive: measured, a fifth less of mongod's time per version than with 1,000.
_BATCHES = SourceOptions(batch_events=3000)
# Last versions that are kept in memory, per collection.
_CACHE_BYTES = 64 * 1024 * 1024


def recorders_of(
    context: ListenerContext,
    checkpoints: Checkpoints,
    hub: Hub,
    live: Source,
    *,
    server: Server,
    setup: CollectionSetup,
    report: Report,
) -> tuple[Recorder, ...]:
    """Create a recorder per collection and partition.

    Args:
        live: source of the hub, if the stream is followed.
        setup: creates images and indexes.
        report: called with the progress of first readings.
    """

    def source_of(archive: Archive, partition: Partition) -> Source | SharedSource:
        keeps = archive.layout.keeps
        own = Source(
            context.mongo,
            [partition.collection],
            before_images=False,
            sharded=server.sharded,
            expanded=server.disambiguates,
            # Where versions are documents, their ids are not those of what they are of.
            holds=None if partition.count == 1 or keeps else partition.contains,
            options=_BATCHES,
            name=partition.name,
        )
        # The hub tells what the events of such a collection mean, not what was written.
        return own if keeps else SharedSource(own, live, hub, partition)

    return tuple(
        Recorder(
            context.mongo,
            context.archives[partition.collection],
            source_of(context.archives[partition.collection], partition),
            checkpoints,
            context.progress,
            partition=partition,
            version_field=entity.version,
            fence_field=None if entity.fence is None else entity.fence.stored,
            deltas=entity.storage is Storage.DELTA,
            report=report,
            setup=setup,
            options=RecorderOptions(
                cache_bytes=_CACHE_BYTES // partition.count,
                # All wait for the one that is furthest behind, as it is known.
                idle_save_s=5.0 if partition.count == 1 else 2.0,
            ),
        )
        for entity in context.model.entities
        for partition in collection_partitions(entity.collection, entity.partitions)
    )
