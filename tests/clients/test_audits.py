"""GraphQL over HTTP: the audits of graphql-http."""

from __future__ import annotations

from collections import Counter

from tests.clients.node import running_program
from tests.conftest import ServedShop


def test_every_audit_passes(gateway: ServedShop) -> None:
    """Each audit is one sentence of the specification; the optional ones pass, too."""
    with running_program("audits.mjs", gateway.url) as (process, said):
        assert process.wait(timeout=60) == 0
    counts = Counter((each["name"].partition(" ")[0], each["status"]) for each in said)
    for (level, status), count in sorted(counts.items()):
        print(f"{level}: {count} {status}")  # noqa: T201
    assert [each for each in said if each["status"] != "ok"] == []
    # Another release of the audits may have none, or other names.
    assert min(counts["MUST", "ok"], counts["SHOULD", "ok"]) > 10
