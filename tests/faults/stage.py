"""The parts of a run that faults break, and its measurements."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from pymongo import AsyncMongoClient

from tests.faults.clock import Clocks
from tests.faults.cluster import Cluster
from tests.faults.fences import FenceMonitor
from tests.faults.gateways import Gateways
from tests.faults.truth import Truth

__all__ = ["Stage", "Takeover"]


@dataclass(frozen=True)
class Takeover:
    """The time until another process held the lease; `undisturbed`: without another fault."""

    why: str
    seconds: float
    undisturbed: bool


@dataclass
class Stage:
    """Everything that can be broken.

    Attributes:
        outage_s: the time in which all of MongoDB was unavailable.
        doomed, survived: writes to a primary that was cut off, and those that stayed.
    """

    cluster: Cluster
    gateways: Gateways
    clocks: Clocks
    fences: FenceMonitor
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
