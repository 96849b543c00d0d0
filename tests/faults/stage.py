"""What faults are done to, and what they have found."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from pymongo import AsyncMongoClient

from tests.faults.clock import Clocks
from tests.faults.cluster import Cluster
from tests.faults.fences import Fences
from tests.faults.gateways import Gateways
from tests.faults.truth import Truth

__all__ = ["Stage", "Takeover"]


@dataclass(frozen=True)
class Takeover:
    """How long it took until another process held the lease; `undisturbed`: nothing else was
    broken meanwhile."""

    why: str
    seconds: float
    undisturbed: bool


@dataclass
class Stage:
    """Everything that can be broken.

    Attributes:
        outage_s: how long MongoDB is gone as a whole.
        doomed, survived: writes to a primary that was cut off, and those that stayed.
    """

    cluster: Cluster
    gateways: Gateways
    clocks: Clocks
    fences: Fences
    client: AsyncMongoClient[dict[str, Any]]
    database: str
    truth: Truth
    rng: random.Random
    lease_s: float
    outage_s: float
    findings: list[str] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    doomed: int = 0
    survived: int = 0
