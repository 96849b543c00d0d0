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
        "memory of running gateways: a few seconds, or until the gateway reaches MongoDB again; "
        "events that wait for a subscriber until they are sent",
        "backups, disk snapshots and delayed members of the replica set: until you delete them",
        "MongoDB's journal, the free pages of its files and, if it logs slow commands, its log: "
        "until they are overwritten or rotated",
        "readers: clients, receivers of sinks, other programs",
    ]


async def _oplog(mongo: Mongo) -> str:
    try:
        oldest = await mongo.oldest("oplog.rs", {}, database="local")
        stats = await mongo.command({"collStats": "oplog.rs"}, database="local")
    except GatewayError as exc:
        return f"MongoDB's oplog: not readable ({exc.message})"
    if oldest is None:
        return "MongoDB's oplog: empty"
    now = await mongo.operation_time()
    hours = (now.time - oldest["ts"].time) / 3600
    used, most = stats["size"] / 2**20, stats.get("maxSize", 0) / 2**20
    return (
        f"MongoDB's oplog: reaches back {hours:.1f} h and has {used:.0f} of {most:.0f} MB; its "
        "oldest entries are removed when it is full"
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
        return f"{place}: expire after {kept:g} s"
    return f"{place}: as long as the oplog reaches back"
