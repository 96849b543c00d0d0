"""`revstream init`: a schema.graphql for a database, or from the files of another tool."""

from __future__ import annotations

import importlib
from datetime import UTC, datetime
from pathlib import Path

import click

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.progress_display import Report
from revstream.model.importing.app_services import app_services_text
from revstream.model.importing.collection_schema import SourceError
from revstream.model.importing.mongoose_models import mongoose_text
from revstream.model.importing.python_models import PythonModel, python_text
from revstream.model.inference.accepted_names import accepted_text
from revstream.model.inference.draft_builder import build_draft
from revstream.streams.core.errors import Unsuitable
from revstream.streams.maintenance.sampling.sampler import sample_database
from revstream.streams.mongo.database import Mongo

__all__ = ["import_schema", "infer_schema"]


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


def import_schema(source: str, database: str | None, only: list[str]) -> str:
    """Return the text of a model from the files of another tool.

    Args:
        source: Folder of an Atlas App Services export, JSON file of Mongoose models, or Python
            module, which is run.
        database: Database of the export; None if it has one.
        only: Names of collections; empty for all.

    Raises:
        click.ClickException: The source cannot be read.
    """
    path = Path(source)
    try:
        if path.is_dir():
            return app_services_text(path, database, only)
        if path.suffix == ".json":
            return mongoose_text(path, only)
        if path.suffix == ".py" and path.exists():
            return python_text(path.name, _python_models(path), only)
        raise SourceError(
            f"--from {source}: {'unknown kind' if path.exists() else 'no such file'}, expected the "
            "folder of an App Services export, a .json file of Mongoose models, or a .py file"
        )
    except SourceError as error:
        raise click.ClickException(str(error)) from error


def _python_models(path: Path) -> list[PythonModel]:
    """Return the models of a module.

    Raises:
        SourceError: pydantic is not installed, or the module cannot be run.
    """
    try:
        # An optional dependency; nothing else imports it.
        schemas = importlib.import_module("revstream.gql.cli.pydantic_schemas")
    except ModuleNotFoundError as error:
        raise SourceError(
            f"--from {path}: {error.name} is not installed, expected the environment of your "
            "program; install revstream there, or run pipx inject revstream pydantic"
        ) from error
    found: list[PythonModel] = schemas.read_python_models(path)
    return found


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
