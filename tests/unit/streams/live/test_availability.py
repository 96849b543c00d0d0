"""Availability of MongoDB while its change stream is silent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from revstream.streams.live.availability import Availability


async def test_a_fault_of_a_ping_ends_the_watch_and_is_not_logged_beside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The process reports what its task raises."""

    class Mongo:
        async def command(self, _: object) -> None:
            raise ZeroDivisionError

    mongo: Any = Mongo()
    source: Any = SimpleNamespace(connected=False)
    hub: Any = SimpleNamespace(moved_at=0.0)
    with pytest.raises(ZeroDivisionError):
        await Availability(mongo, source, hub).watch()
    assert [each.message for each in caplog.records] == []
