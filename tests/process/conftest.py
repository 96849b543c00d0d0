"""Fixtures for tests of processes: the module's `MODEL` in a file, and its database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "schema.graphql"
    path.write_text(request.module.MODEL)
    return path


@pytest.fixture
def database(client: MongoClient[dict[str, Any]], database_name: str) -> Database[dict[str, Any]]:
    """Provide the test's own database, as a program without revstream uses it."""
    return client[database_name]
