"""`python -m tests.faults`: a long run, its findings, and exit code 1 if there are any."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from pathlib import Path

from tests.faults.run import Options, run

MOST_FINDINGS = 60


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="duration")
    parser.add_argument("--rate", type=float, default=300, help="writes per second")
    parser.add_argument("--fault-every", type=float, default=10, help="seconds between faults")
    parser.add_argument("--seed", type=int, default=None, help="repeats the faults")
    parser.add_argument("--gateways", type=int, default=3, help="processes")
    parser.add_argument("--lease-s", type=float, default=10, help="lease, seconds")
    parser.add_argument("--outage-s", type=float, default=60, help="seconds without MongoDB")
    parser.add_argument("--plan", default="", help="comma-separated faults, run in this order")
    parser.add_argument("--keep", type=Path, default=None, help="folder that keeps logs and data")
    given = parser.parse_args()
    options = Options(
        seed=random.randrange(10**6) if given.seed is None else given.seed,
        duration_s=given.minutes * 60,
        rate=given.rate,
        fault_every_s=given.fault_every,
        gateways=given.gateways,
        lease_s=given.lease_s,
        outage_s=given.outage_s,
        plan=tuple(given.plan.split(",")) if given.plan else (),
        keep=given.keep,
    )
    outcome = asyncio.run(run(options, say))
    say("")
    for line in outcome.lines:
        say(line)
    say(f"{len(outcome.findings)} findings")
    for finding in outcome.findings[:MOST_FINDINGS]:
        say(f"FINDING {finding}")
    return 1 if outcome.findings else 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
