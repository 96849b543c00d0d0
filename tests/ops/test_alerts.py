"""A real Prometheus scrapes a real gateway: outages make alerts fire, and their end ends them."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.bare_mongod import short_lived_replica_set
from tests.support.eventually import wait_until
from tests.support.exhaustive import exhaustive
from tests.support.gateway import running_gateway
from tests.support.prometheus import dashboard_expressions, prometheus

MODEL = 'type Thing @collection(name: "things") { id: ID! name: String }'


@exhaustive
def test_an_outage_makes_alerts_fire_and_its_end_ends_them(tmp_path: Path) -> None:
    """First MongoDB stops answering, then the only process that records is killed."""
    model = tmp_path / "schema.graphql"
    model.write_text(MODEL)
    with (
        short_lived_replica_set() as mongod,
        running_gateway(
            mongod.uri, "shop", model, "--management-port", "0", command="record"
        ) as recording,
        running_gateway(mongod.uri, "shop", model, "--no-record") as serving,
        prometheus(
            tmp_path,
            serving.address.removeprefix("http://"),
            *re.findall(r"managing address=http://(\S+)", "".join(recording.lines)),
        ) as server,
    ):
        wait_until(lambda: server.targets() == ["up", "up"], within_s=60)
        serving.query('mutation { createThing(document: { name: "a" }) { __typename } }')
        wait_until(lambda: server.query("sum(revstream_recorder_versions_total) == 1"), within_s=60)
        wait_until(lambda: not server.firing(), within_s=60)
        # Each is accepted; those without data are about what has not happened here.
        empty = [each for each in dashboard_expressions() if not server.query(each)]
        assert all(
            any(word in each for word in ("listener", "retention", "failed", "code", "reason"))
            or "delivered" in each
            for each in empty
        ), empty

        mongod.hush()
        wait_until(lambda: "RevstreamNotReady" in server.firing(), within_s=60)
        assert server.firing()["RevstreamNotReady"].endswith(" is not ready")
        mongod.speak()
        wait_until(lambda: not server.firing(), within_s=60)

        recording.kill()
        wait_until(lambda: "RevstreamDown" in server.firing(), within_s=60)
        assert server.firing()["RevstreamDown"].endswith(" does not answer")
        nobody = "No process records things (1/1)"
        wait_until(lambda: server.firing().get("RevstreamNobodyRecords") == nobody, within_s=60)
