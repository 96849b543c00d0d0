"""`revstream verify`: check the archives of a model's collections, and say what is wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.progress_display import Report
from revstream.model.definition import Model
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoint, Checkpoints, furthest_checkpoint
from revstream.streams.coordination.partition import Partition
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError
from revstream.streams.layouts.core.snapshot_scan import SNAPSHOT_REFUSALS
from revstream.streams.layouts.factory import create_layout
from revstream.streams.maintenance.verification import Verification, VerificationResult
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.find_options import FindOptions
from revstream.streams.mongo.server_check import inspect_server

__all__ = ["lines_of", "report_of", "verify"]

# Maximum time to wait for recorders, for all collections together.
_MOST_WAIT_S = 15.0
_POLL_S = 0.2


async def verify(
    settings: Settings,
    model: Model,
    uri: str,
    database: str,
    report: Report,
    *,
    mend: bool = False,
) -> dict[str, VerificationResult]:
    """Verify the archives. Returns the findings by collection.

    Args:
        mend: Repair first what crashes left between two writes of an update.

    Raises:
        Unavailable, Unsuitable: MongoDB cannot be reached, or cannot serve.
    """
    found = {}
    until = time.monotonic() + _MOST_WAIT_S
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        await inspect_server(mongo)
        for entity in model.entities:
            name = entity.collection
            layout = create_layout(mongo, entity)
            total = await mongo.estimated_count(name)
            report(f"verify {name}", 0, total)
            stored = await _load_readable_checkpoints(mongo, name, until)

            def looked_at(documents: int, name: str = name, total: int = total) -> None:
                report(f"verify {name}", documents, max(total, documents))

            verification = Verification(
                mongo,
                Archive(mongo, name, layout),
                furthest_checkpoint(stored),
                version_field=entity.version,
                partitioned=any(each.count > 1 for each in stored),
            )
            mended = await layout.recover() if mend else 0
            found[name] = await verification.run(looked_at)
            found[name].mended = mended
    return found


async def _load_readable_checkpoints(
    mongo: Mongo, name: str, until: float
) -> Mapping[Partition, Checkpoint]:
    """Return a collection's checkpoints, if possible one at whose time it can be read.

    MongoDB reads at no time before its start. A running recorder is behind it with its next event
    or no-op entry of the oplog, of which there is one every 10 s.

    Args:
        until: When to stop waiting.
    """
    while True:
        stored = await Checkpoints(mongo).load_collection(name)
        furthest = furthest_checkpoint(stored)
        if furthest is None or time.monotonic() > until:
            return stored
        at = resume_tokens.cluster_time(furthest.token)
        try:
            await mongo.find(name, {}, FindOptions(limit=1, at=at))
        except DatabaseError as exc:
            if exc.number not in SNAPSHOT_REFUSALS:
                raise
        else:
            return stored
        await asyncio.sleep(_POLL_S)


def lines_of(found: Mapping[str, VerificationResult]) -> list[str]:
    """Format for people: a line per finding, and one per collection."""
    lines = []
    for name, verified in found.items():
        for each in verified.findings:
            what = "" if each.document is None else f"/{json_value(each.document)}"
            version = "" if each.version is None else f" version {each.version}"
            lines.append(f"{each.collection}{what}{version}: {each.problem} [{each.kind}]")
        if verified.unsealed:
            lines.append(
                f"{name}: {verified.unsealed:,} versions have no checksum: an older release "
                "recorded them; they are only compared with the versions before and after them"
            )
        if verified.mended:
            lines.append(f"{name}: {verified.mended:,} unfinished updates are completed")
        problems = len(verified.findings)
        lines.append(
            f"{name}: {verified.documents:,} documents, {verified.versions:,} versions, "
            f"{verified.gaps:,} of them after a gap, "
            + (f"{problems:,} problem{'s' if problems > 1 else ''}" if problems else "no problems")
        )
    return lines


def report_of(found: Mapping[str, VerificationResult]) -> dict[str, Any]:
    """Format as JSON, for programs."""
    return {
        name: {
            "documents": verified.documents,
            "versions": verified.versions,
            "gaps": verified.gaps,
            "mended": verified.mended,
            "withoutChecksum": verified.unsealed,
            "findings": [
                {
                    "kind": each.kind,
                    "documentId": json_value(each.document),
                    "version": each.version,
                    "problem": each.problem,
                }
                for each in verified.findings
            ],
        }
        for name, verified in found.items()
    }
