"""`revstream init`: a schema.graphql for the collections of a database."""

from __future__ import annotations

from datetime import UTC, datetime

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.progress_display import Report
from revstream.model.inference.accepted_names import accepted_text
from revstream.model.inference.draft_builder import build_draft
from revstream.streams.core.errors import Unsuitable
from revstream.streams.maintenance.sampling.sampler import sample_database
from revstream.streams.mongo.database import Mongo

__all__ = ["infer_schema"]


async def infer_schema(
    settings: Settings,
    uri: str,
    database: str,
    report: Report,
    *,
    size: int | None,
    only: list[str],
) -> str:
    """Return the text of a model that all documents fit.

    Args:
        size: Documents that are sampled of each collection; None for all.
        only: Names of collections; empty for all.

    Raises:
        Unavailable: MongoDB cannot be reached.
        Unsuitable: There is no collection with documents.
    """
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        found = await sample_database(mongo, size=size, only=only, report=report)
    if not found.collections:
        reasons = "; ".join(f"{name}: {why}" for name, why in found.left_out.items())
        raise Unsuitable(
            f"database {database!r}: no collection with documents"
            + (f" ({reasons})" if reasons else "")
            + ", expected one; check --database and --collection"
        )
    header = [f"Made from the database {database!r} by `revstream init` on {_today()}."]
    header += [f"Left out: {name}: {why}." for name, why in found.left_out.items()]
    return accepted_text(build_draft(found.collections, found.relations), header)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
