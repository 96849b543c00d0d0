"""Description of the machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import re
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pymongo

__all__ = ["describe"]

# Read at import, before the load of the benchmarks themselves.
_LOAD = " ".join(f"{each:.2f}" for each in os.getloadavg())


def describe(uri: str, gateway_cores: set[int], load_cores: set[int]) -> str:
    """Return one paragraph: date, machine, versions, use of the cores, load before the start."""
    with pymongo.MongoClient[dict[str, object]](uri) as client:
        mongodb = client.server_info()["version"]
    if gateway_cores == load_cores:
        places = "everything shares them"
    else:
        places = (
            f"the gateway on core {_list(gateway_cores)}, "
            f"mongod and the load on core {_list(load_cores)}"
        )
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("motor", "pymongo", "strawberry-graphql", "uvicorn")
    )
    return (
        f"{date.today()}, revstream {version('revstream')}. "
        f"{os.cpu_count()} cores of {_processor()}; {places}. "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}, "
        f"MongoDB {mongodb}, {versions}. Load average at start: {_LOAD}."
    )


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _list(cores: set[int]) -> str:
    return ", ".join(map(str, sorted(cores)))
