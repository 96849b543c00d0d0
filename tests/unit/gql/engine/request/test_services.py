"""Tests of `gql.engine.request.services`."""

from __future__ import annotations

from typing import Any, get_type_hints
from unittest.mock import Mock

import pytest

from revstream.gql.engine.request.mutation_services import MutationServices
from revstream.gql.engine.request.services import Services
from revstream.resolvers.access.permissions import OPEN


@pytest.mark.parametrize("record", [Services, MutationServices])
def test_all_services_with_access_rights_are_restricted_to_the_caller(record: Any) -> None:
    """A field that `within` forgets would show every caller all rows."""
    hints = get_type_hints(record)
    services = record(**{name: Mock(spec=kind) for name, kind in hints.items()})
    limited = services.within(OPEN)
    restricted = {name for name in hints if getattr(limited, name) is not getattr(services, name)}
    assert restricted == {name for name, kind in hints.items() if hasattr(kind, "within")}
