"""`revstream doctor`: examine a deployment, and say how to mend what is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gql.progress import Report
from gql.settings import Settings
from model.entities import Model
from resolvers.data_sample import examine_data
from streams.checkpoints import Checkpoints
from streams.diagnosis import Diagnosis, Finding
from streams.errors import Unsuitable
from streams.lease import Leases
from streams.mongo import Mongo
from streams.partitions import partitions_in

__all__ = ["examine", "lines_of", "report_of"]

_MARKS = {"ok": "ok     ", "note": "note   ", "warning": "WARNING", "error": "ERROR  "}


async def examine(
    settings: Settings, model: Model, uri: str, database: str, report: Report
) -> list[Finding]:
    """Everything that was found, well or not.

    Raises:
        Unavailable: MongoDB cannot be reached.
    """
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        names = {each.name: each for each in partitions_in(model)}
        try:
            checkpoints = await Checkpoints(mongo).load_all(list(names))
            holders = await Leases(mongo, "").holders(list(names))
        except Unsuitable as exc:
            return [Finding(level="error", subject="server", says=exc.message)]
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


def lines_of(found: Sequence[Finding]) -> list[str]:
    """For people."""
    lines = []
    for each in found:
        lines.append(f"{_MARKS[each.level]} {each.subject}: {each.says}")
        if each.mend is not None:
            lines.append(f"        mend: {each.mend}")
    return lines


def report_of(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """For programs."""
    return [asdict(each) for each in found]
