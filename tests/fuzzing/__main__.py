"""`python -m tests.fuzzing`: rounds of raw documents; exit code 1 if there are findings."""

from __future__ import annotations

import argparse
import random
import sys

from tests.fuzzing.run import Options, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="duration")
    parser.add_argument("--seed", type=int, default=None, help="repeats the writes")
    parser.add_argument("--before", type=int, default=60, help="writes before the gateway starts")
    parser.add_argument("--steps", type=int, default=150, help="writes while each gateway runs")
    given = parser.parse_args()
    options = Options(
        seed=random.randrange(10**6) if given.seed is None else given.seed,
        duration_s=given.minutes * 60,
        before=given.before,
        steps=given.steps,
    )
    outcome = run(options, say)
    return 1 if outcome.findings else 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
