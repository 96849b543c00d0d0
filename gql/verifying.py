"""`revstream verify`: check the archives of a model's collections, and say what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gql.gateway import listener_name
from gql.settings import Settings
from model.entities import Model
from resolvers.values import json_value
from streams.archive import Archive
from streams.checkpoints import Checkpoints
from streams.mongo import Mongo
from streams.server import inspect_server
from streams.verification import Verification, Verified

__all__ = ["lines_of", "report_of", "verify"]

Report = Callable[[str, int, int], None]


async def verify(
    settings: Settings, model: Model, uri: str, database: str, report: Report
) -> dict[str, Verified]:
    """By collection, what was found.

    Raises:
        Unavailable, Unsuitable: MongoDB cannot be reached, or cannot serve.
    """
    found = {}
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        await inspect_server(mongo)
        names = {each.collection: listener_name(each.collection) for each in model.entities}
        checkpoints = await Checkpoints(mongo).load_all(list(names.values()))
        for entity in model.entities:
            name = entity.collection
            total = await mongo.estimated_count(name)

            def looked_at(documents: int, name: str = name, total: int = total) -> None:
                report(f"verify {name}", documents, max(total, documents))

            verification = Verification(
                mongo,
                Archive(mongo, name),
                checkpoints.get(names[name]),
                version_field=entity.version,
            )
            found[name] = await verification.run(looked_at)
    return found


def lines_of(found: Mapping[str, Verified]) -> list[str]:
    """For people: a line for each finding, and one for each collection."""
    lines = []
    for name, verified in found.items():
        for each in verified.findings:
            what = "" if each.document is None else f"/{json_value(each.document)}"
            version = "" if each.version is None else f" version {each.version}"
            lines.append(f"{each.collection}{what}{version}: {each.problem} [{each.kind}]")
        problems = len(verified.findings)
        lines.append(
            f"{name}: {verified.documents:,} documents, {verified.versions:,} versions, "
            f"{verified.gaps:,} of them behind a gap, "
            + (
                f"{problems:,} problem{'s' if problems > 1 else ''}"
                if problems
                else "nothing wrong"
            )
        )
    return lines


def report_of(found: Mapping[str, Verified]) -> dict[str, Any]:
    """For programs."""
    return {
        name: {
            "documents": verified.documents,
            "versions": verified.versions,
            "gaps": verified.gaps,
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
