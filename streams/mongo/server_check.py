"""Checks of the server: its version, its topology, and the privileges of the user."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, GatewayError, Unsuitable
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.driver.error_translation import NOT_INITIATED, STANDALONE

__all__ = [
    "OLDEST_VERSION",
    "SHARDED",
    "Server",
    "check_collections",
    "check_sharding",
    "check_stream",
    "collection_uuids",
    "create_collection",
    "enable_collection_images",
    "enable_images",
    "explain_refusal",
    "find_unsupported_collections",
    "grant_command",
    "inspect_server",
    "resize_command",
]

log = logging.getLogger(__name__)

OLDEST_VERSION = (6, 0)
_NAMESPACE_NOT_FOUND = 26
_NAMESPACE_EXISTS = 48
_WITHOUT_HISTORY = {
    "view": "a view, expected a collection, since views have no change stream; name its collection "
    "in the model",
    "timeseries": "a time-series collection, expected an ordinary one, since it has no change "
    "stream; remove it from the model, or copy it into an ordinary collection",
    "capped": "a capped collection, expected an ordinary one, since MongoDB does not read it at a "
    "past time; remove it from the model, or copy it into an ordinary collection (with a TTL index "
    "to delete old documents)",
}
SHARDED = (
    "a sharded cluster, of which some changes are not supported: a document whose shard key "
    "changes, or a primary shard that moves (before 8.0), can be recorded as deletions; time "
    "points and events are up to 10 s late while a shard is idle; asOf: {token} is not exact if "
    "two shards write at one cluster time; abandoned cursors stay open on other routers"
)
_PRODUCTS = {
    "docdb.amazonaws.com": "Amazon DocumentDB",
    "docdb-elastic.amazonaws.com": "Amazon DocumentDB",
    "cosmos.azure.com": "Azure Cosmos DB",
}


@dataclass(frozen=True, slots=True)
class Server:
    """The server that the gateway is connected to.

    Attributes:
        version: Such as "6.0.5".
        sharded: Whether it is reached through mongos.
        product: Name of another database that speaks MongoDB's protocol, if it reveals it; None for
            MongoDB.
    """

    version: str
    sharded: bool
    product: str | None = None

    @property
    def disambiguates(self) -> bool:
        """Return whether expanded change events include `disambiguatedPaths`."""
        return _numbers(self.version) >= (6, 1)


async def inspect_server(mongo: Mongo) -> Server:
    """Read version, topology and product of the server.

    Raises:
        Unavailable: The server cannot be reached.
        Unsuitable: A standalone, or older than `OLDEST_VERSION`; with the remedy. Or another
            product.
    """
    hello = await mongo.command({"hello": 1}, database="admin")
    build = await mongo.command({"buildInfo": 1}, database="admin")
    server = Server(
        version=str(build["version"]),
        sharded=hello.get("msg") == "isdbgrid",
        product=_product(hello, build),
    )
    if not server.sharded and "setName" not in hello:
        if server.product is not None:
            raise _refused(server, "not a replica set")
        raise Unsuitable(NOT_INITIATED if hello.get("isreplicaset") else STANDALONE)
    if _numbers(server.version) < OLDEST_VERSION:
        wanted = ".".join(map(str, OLDEST_VERSION))
        raise _refused(server, f"version {server.version}, minimum is {wanted}")
    return server


def check_sharding(server: Server, *, experimental: bool) -> None:
    """Refuse a sharded cluster unless it is accepted explicitly.

    Raises:
        Unsuitable: Lists the known defects.
    """
    if server.sharded and not experimental:
        raise Unsuitable(
            f"MongoDB: {SHARDED}; use a replica set, or accept this with --experimental-sharded"
        )


def _product(hello: Mapping[str, Any], build: Mapping[str, Any]) -> str | None:
    if any(name.lower().startswith("ferretdb") for name in build):
        return "FerretDB"
    hosts = [str(each) for each in (*hello.get("hosts", ()), hello.get("me"), hello.get("primary"))]
    for each in hosts:
        name = each.rpartition(":")[0]
        for domain, product in _PRODUCTS.items():
            if name.endswith(f".{domain}"):
                return product
    return "Azure Cosmos DB" if hello.get("setName") == "globaldb" else None


def _refused(server: Server, reason: str) -> Unsuitable:
    if server.product is None:
        return Unsuitable(f"MongoDB: {reason}; upgrade it")
    return _not_mongodb(server.product, reason)


def _not_mongodb(product: str, reason: str) -> Unsuitable:
    return Unsuitable(f"server: {product}, expected MongoDB: {reason}; use a MongoDB replica set")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(part) for part in version.split("-", maxsplit=1)[0].split(".")[:2])


async def check_stream(mongo: Mongo, server: Server) -> None:
    """Open a change stream, so that a missing privilege or an unreadable token shows at start.

    Raises:
        Unsuitable: Not permitted, with the remedy; or not a change stream of MongoDB.
    """
    needs = "the change stream requires the actions changeStream and find, which are in"
    try:
        async with (
            explain_refusal(mongo, needs, "read"),
            mongo.change_batches([{"$changeStream": {}}], size=1, wait_ms=1) as replies,
        ):
            reply = await anext(replies)
    except DatabaseError as exc:
        if server.product is None:
            raise
        raise _not_mongodb(server.product, exc.message) from exc
    try:
        resume_tokens.token_from_stream(reply["token"]["_data"])
    except (TypeError, KeyError, AttributeError, ValueError) as exc:
        raise _not_mongodb(
            server.product or "another database",
            "the resume tokens of its change stream do not begin with a time",
        ) from exc


async def check_collections(mongo: Mongo, names: Sequence[str]) -> None:
    """Check that the existing ones of these are ordinary collections.

    Raises:
        Unsuitable: History of a collection of this kind cannot be recorded; with reason and remedy
            of
            each.
    """
    unfit = await find_unsupported_collections(mongo, names)
    if unfit:
        raise Unsuitable("; ".join(unfit.values()))


async def find_unsupported_collections(mongo: Mongo, names: Sequence[str]) -> dict[str, str]:
    """Return collections whose kind allows no history: the reason and the remedy by name."""
    reply = await mongo.command(
        {
            "listCollections": 1,
            "filter": {"name": {"$in": list(names)}},
            "cursor": {"batchSize": len(names)},
        }
    )
    kinds = {
        each["name"]: "capped" if each["options"].get("capped") else each["type"]
        for each in reply["cursor"]["firstBatch"]
    }
    return {
        name: f"{mongo.name}.{name} is {_WITHOUT_HISTORY[kind]}"
        for name, kind in kinds.items()
        if kind in _WITHOUT_HISTORY
    }


async def enable_images(mongo: Mongo, collections: Sequence[str]) -> None:
    """Enable pre- and post-images, where permitted; elsewhere deltas are applied, which is logged.

    Missing collections are left out.
    """
    refused: dict[str, GatewayError] = {}
    for name in collections:
        try:
            await enable_collection_images(mongo, name, create=False)
        except (DatabaseError, Unsuitable) as exc:
            refused[name] = exc
    # One line for all collections with the same remedy.
    forbidden = [name for name, exc in refused.items() if isinstance(exc, Unsuitable)]
    if forbidden:
        grant = await grant_command(mongo, "dbAdmin")
        _log_refusal(forbidden, refused[forbidden[0]], remedy=grant)
    for name, reason in refused.items():
        if name not in forbidden:
            _log_refusal([name], reason)


async def collection_uuids(mongo: Mongo, names: Sequence[str]) -> dict[str, Any]:
    """Return the UUIDs of those of these collections that exist, by name."""
    which = {"name": {"$in": list(names)}, "type": "collection"}
    cursor = {"batchSize": len(names) + 1}
    reply = await mongo.command({"listCollections": 1, "filter": which, "cursor": cursor})
    return {each["name"]: each["info"].get("uuid") for each in reply["cursor"]["firstBatch"]}


async def enable_collection_images(mongo: Mongo, name: str, *, create: bool = True) -> None:
    """Enable pre- and post-images of one collection.

    Args:
        create: Create a missing collection; otherwise it is left out.

    Raises:
        DatabaseError, Unsuitable: The server does not permit it.
    """
    images = {"enabled": True}
    try:
        await mongo.command({"collMod": name, "changeStreamPreAndPostImages": images})
    except DatabaseError as exc:
        if exc.number != _NAMESPACE_NOT_FOUND:
            raise
        if create and not await create_collection(mongo, name, images=True):
            await enable_collection_images(mongo, name)


async def create_collection(mongo: Mongo, name: str, *, images: bool) -> bool:
    """Create a collection; return False if another process has just created it.

    Args:
        images: Whether the server stores pre- and post-images from the first document on.
    """
    options = {"changeStreamPreAndPostImages": {"enabled": True}} if images else {}
    try:
        await mongo.command({"create": name, **options})
    except DatabaseError as exc:
        if exc.number != _NAMESPACE_EXISTS:
            raise
        return False
    return True


def _log_refusal(names: Sequence[str], exc: GatewayError, **more: str) -> None:
    log.warning(
        "no images: versions are built from deltas",
        extra={"collections": ", ".join(names), "reason": exc.message, **more},
    )


@contextlib.asynccontextmanager
async def explain_refusal(mongo: Mongo, needs: str, role: str) -> AsyncIterator[None]:
    """Add the missing privilege, its role, and the command that grants it to a refusal."""
    try:
        yield
    except Unsuitable as exc:
        if exc.message == STANDALONE:
            raise
        raise Unsuitable(
            f"{exc.message}; {needs} the role {role} on the database {mongo.name}; "
            f"{await grant_command(mongo, role)}"
        ) from exc


async def grant_command(mongo: Mongo, role: str, *, database: str | None = None) -> str:
    """Return the command by which an administrator grants us a role in mongosh."""
    status = await mongo.command({"connectionStatus": 1}, database="admin")
    users = status["authInfo"]["authenticatedUsers"]
    if not users:
        return "the connection is not authenticated: add a user and a password to the URI"
    user, home = (json.dumps(users[0][name]) for name in ("user", "db"))
    roles = f'[{{role: "{role}", db: "{database or mongo.name}"}}]'
    return f"run in mongosh: db.getSiblingDB({home}).grantRolesToUser({user}, {roles})"


def resize_command(most_mb: float) -> str:
    size = f"size: Double({max(990, round(most_mb * 2))}), minRetentionHours: 48"
    return f"db.adminCommand({{replSetResizeOplog: 1, {size}}}) on each member"
