"""A correct webhook receiver, which refuses older fencing tokens; at random it also refuses or
fails deliveries that it could accept.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from tests.faults.checker import Version
from tests.support.receiver import Receiver, Reply, Request

__all__ = ["FaultyReceiver", "ReceivedPost", "check_posts"]


class ReceivedPost(NamedTuple):
    """A delivery that the receiver accepted."""

    token: str
    key: str
    version: int
    operation: str
    fence: int


class FaultyReceiver:
    """The receiver.

    Attributes:
        taken: accepted deliveries, in order.
        answers: the number of answers by status.
    """

    def __init__(self, rng: random.Random) -> None:
        self.receiver = Receiver(self._answer)
        self.taken: list[ReceivedPost] = []
        self.answers: Counter[int] = Counter()
        self._rng = rng
        self._highest = 0

    @property
    def last(self) -> str:
        """Return the token of the newest accepted delivery."""
        return max((each.token for each in self.taken), default="")

    def _answer(self, request: Request) -> Reply:
        if request.fence < self._highest:
            status = 409
        elif self._rng.random() < 0.02:
            status = self._rng.choice((400, 500, 503))
        else:
            status = 200
        self._highest = max(self._highest, request.fence)
        self.answers[status] += 1
        if status == 200:
            event = request.event
            self.taken.append(
                ReceivedPost(
                    event["sequence"],
                    event["subject"],
                    event["data"]["version"],
                    event["data"]["operation"],
                    request.fence,
                )
            )
        # The rest of the request is not read.
        self.receiver.requests.clear()
        return Reply(status=status)


def check_posts(
    name: str, taken: Sequence[ReceivedPost], versions: Sequence[Version], *, start: str
) -> list[str]:
    """Compare a receiver's deliveries with the archive from the sink's start on.

    Each version of each document must be there, in order; a repeated delivery must equal the first.
    """
    right: dict[str, list[tuple[str, int, str]]] = {}
    for each in versions:
        if each.token > start:
            line = (each.token, each.number, each.operation)
            right.setdefault(each.key, []).append(line)
    found: dict[str, list[tuple[str, int, str]]] = {}
    findings = []
    for one in taken:
        line = (one.token, one.version, one.operation)
        known = found.setdefault(one.key, [])
        if not known or line[0] > known[-1][0]:
            known.append(line)
        elif line not in known:
            findings.append(f"{name}/{one.key}: {line} came behind {known[-1]}, and never before")
    for key in sorted(right.keys() | found.keys()):
        if found.get(key, []) != right.get(key, []):
            missing = [each for each in right.get(key, []) if each not in found.get(key, [])]
            findings.append(
                f"{name}/{key}: took {len(found.get(key, []))} versions, and right are "
                f"{len(right.get(key, []))}; missing: {missing[:6]}"
            )
    return findings
