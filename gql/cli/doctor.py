"""`revstream doctor`: examine a deployment, and say how to mend what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.progress_display import Report
from revstream.model.definition import Model
from revstream.resolvers.admin.data_sample import examine_data
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.coordination.lease import Leases
from revstream.streams.coordination.partition import model_partitions
from revstream.streams.core.errors import Unsuitable
from revstream.streams.maintenance.diagnosis import Diagnosis, DiagnosisFinding
from revstream.streams.mongo.database import Mongo

__all__ = ["examine", "lines_of", "report_of"]

_MARKS = {"ok": "ok     ", "note": "note   ", "warning": "WARNING", "error": "ERROR  "}


async def examine(
    settings: Settings, model: Model, uri: str, database: str, report: Report
) -> list[DiagnosisFinding]:
    """Everything that was found, well or not.

    Raises:
        Unavailable: MongoDB cannot be reached.
    """
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        names = {each.name: each for each in model_partitions(model)}
        try:
            checkpoints = await Checkpoints(mongo).load_all(list(names))
            holders = await Leases(mongo, "").holders(list(names))
        except Unsuitable as exc:
            return [DiagnosisFinding(level="error", subject="server", text=exc.message)]
        diagnosis = Diagnosis(
            mongo,
            model,
            {names[name]: each for name, each in checkpoints.items()},
            {names[name]: each for name, each in holders.items()},
            sharded=settings.experimental_sharded,
        )
        found = await diagnosis.run(lambda subject: report(f"examine {subject}", 0, 0))
        report("examine data", 0, 0)
        return [*found, *await examine_data(mongo, model)]


def lines_of(found: Sequence[DiagnosisFinding]) -> list[str]:
    """Format for people."""
    lines = []
    for each in found:
        lines.append(f"{_MARKS[each.level]} {each.subject}: {each.text}")
        if each.mend is not None:
            lines.append(f"        mend: {each.mend}")
    return lines


def report_of(found: Sequence[DiagnosisFinding]) -> list[dict[str, Any]]:
    """Format as JSON, for programs."""
    return [asdict(each) for each in found]
