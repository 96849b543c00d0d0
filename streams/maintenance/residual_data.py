"""Places outside revstream's collections where purged content remains, and for how long."""

from __future__ import annotations

from revstream.streams.core.errors import GatewayError
from revstream.streams.mongo.database import Mongo

__all__ = ["list_residual_data"]


async def list_residual_data(mongo: Mongo) -> list[str]:
    """Return one sentence for each place."""
    return [
        await _oplog(mongo),
        await _images(mongo),
        "the memory of running gateways: they let go of it within some seconds, those that cannot "
        "reach MongoDB once they can; what waits for a subscriber until it is taken",
        "backups, snapshots of disks and delayed members of the replica set: until you let them go",
        "MongoDB's journal, the free pages of its files and, where it logs slow commands, its log: "
        "until they are written over or rotated",
        "readers of it: clients, receivers of sinks, other programs",
    ]


async def _oplog(mongo: Mongo) -> str:
    try:
        oldest = await mongo.oldest("oplog.rs", {}, database="local")
        stats = await mongo.command({"collStats": "oplog.rs"}, database="local")
    except GatewayError as exc:
        return f"MongoDB's oplog: how far it reaches back cannot be read ({exc.message})"
    if oldest is None:
        return "MongoDB's oplog, which is empty"
    now = await mongo.operation_time()
    hours = (now.time - oldest["ts"].time) / 3600
    used, most = stats["size"] / 2**20, stats.get("maxSize", 0) / 2**20
    return (
        f"MongoDB's oplog: it reaches back {hours:.1f} h and holds {used:.0f} of {most:.0f} MB; "
        "the oldest goes once it is full"
    )


async def _images(mongo: Mongo) -> str:
    place = "MongoDB's images before and after writes (config.system.preimages)"
    command = {"getClusterParameter": "changeStreamOptions"}
    try:
        reply = await mongo.command(command, database="admin")
    except GatewayError:
        return f"{place}: as long as the oplog reaches back, unless an expiry is set"
    kept = reply["clusterParameters"][0].get("preAndPostImages", {}).get("expireAfterSeconds")
    if isinstance(kept, int | float):
        return f"{place}: they expire after {kept:g} s"
    return f"{place}: as long as the oplog reaches back"
