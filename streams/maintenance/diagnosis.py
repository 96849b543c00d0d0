"""Diagnosis of a deployment: problems, and risks to the history, each with its remedy.

Reads only, and needs no privilege that serving does not need; it reports what it may not read.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from bson import Timestamp

from revstream.model.definition import Model
from revstream.streams.archive.coverage import CoverageStore
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoint
from revstream.streams.coordination.lease import Holder
from revstream.streams.coordination.partition import Partition, model_partitions
from revstream.streams.core import resume_tokens
from revstream.streams.core.errors import DatabaseError, GatewayError, Unavailable, Unsuitable
from revstream.streams.maintenance.missing_indexes import missing_indexes
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import (
    SHARDED,
    check_collections,
    check_stream,
    grant_command,
    inspect_server,
    resize_command,
)
from revstream.streams.recording.layout_repair import count_unfinished_updates
from revstream.streams.recording.set_aside import COLLECTION, SetAsideEvents

__all__ = ["Diagnosis", "DiagnosisFinding"]

Report = Callable[[str], None]

# A recorder may be down for a night and a morning without loss.
_SHORT_WINDOW_H = 24.0
_SKEW_S = 1.0
_IMAGES_LEAST_S = 3600
# MongoDB's default is 300.
_SNAPSHOT_LEAST_S, _SNAPSHOT_USUAL_S = 60, 300
_LONGEST_TRANSACTION_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisFinding:
    """Result of one check.

    Attributes:
        level: "ok", "note", "warning" or "error".
        mend: The remedy, where one is needed.
    """

    level: str
    subject: str
    text: str
    mend: str | None = None


class Diagnosis:
    """Checks of one deployment.

    Args:
        checkpoints: Checkpoints of the recorders, by partition.
        holders: Holders of their leases, by partition.
        sharded: Whether a sharded cluster is accepted.
    """

    def __init__(
        self,
        mongo: Mongo,
        model: Model,
        checkpoints: Mapping[Partition, Checkpoint],
        holders: Mapping[Partition, Holder],
        *,
        sharded: bool = False,
    ) -> None:
        self._mongo = mongo
        self._model = model
        self._checkpoints = checkpoints
        self._holders = holders
        self._sharded = sharded

    async def run(self, report: Report = lambda subject: None) -> list[DiagnosisFinding]:
        """Run all checks in turn; one that fails reports why, and ends them if it is the server's.

        Args:
            report: Called with the subject of each check.

        Raises:
            Unavailable: MongoDB cannot be reached.
        """
        found: list[DiagnosisFinding] = []
        for subject, examine in (
            ("server", self._server),
            ("change stream", self._stream),
            ("oplog", self._oplog),
            ("clock", self._clock),
            ("images", self._images),
            ("indexes", self._indexes),
            ("recorders", self._recorders),
            ("layouts", self._layouts),
        ):
            report(subject)
            try:
                async for each in examine():
                    found.append(each)  # noqa: PERF401 — stays where what follows fails
            except Unavailable:
                raise
            except Unsuitable as exc:
                found.append(DiagnosisFinding(level="error", subject=subject, text=exc.message))
                if subject == "server":
                    break
            except GatewayError as exc:
                found.append(DiagnosisFinding(level="warning", subject=subject, text=exc.message))
        return found

    async def _server(self) -> AsyncIterator[DiagnosisFinding]:
        server = await inspect_server(self._mongo)
        kind = "a sharded cluster" if server.sharded else "a replica set"
        yield _ok("server", f"MongoDB {server.version}, {kind}")
        lifetime_s = await self._parameter("transactionLifetimeLimitSeconds")
        if lifetime_s is not None and lifetime_s > _LONGEST_TRANSACTION_S:
            yield DiagnosisFinding(
                level="note",
                subject="server",
                text=f"transactionLifetimeLimitSeconds: {lifetime_s}, expected at most "
                f"{_LONGEST_TRANSACTION_S}: if a gateway is killed during a mutation with an "
                "idempotency key, its document cannot be written for that long",
                mend="db.adminCommand({setParameter: 1, transactionLifetimeLimitSeconds: "
                f"{_LONGEST_TRANSACTION_S}}}), and in mongod's configuration",
            )
        window_s = await self._parameter("minSnapshotHistoryWindowInSeconds")
        if window_s is not None and window_s < _SNAPSHOT_LEAST_S:
            yield DiagnosisFinding(
                level="warning",
                subject="server",
                text=f"minSnapshotHistoryWindowInSeconds: {window_s}, expected at least "
                f"{_SNAPSHOT_LEAST_S}: recent states cannot be read from MongoDB: snapshots of "
                "subscriptions wait for the archive, and versions without an image may become gaps",
                mend=f"db.adminCommand({{setParameter: 1, minSnapshotHistoryWindowInSeconds: "
                f"{_SNAPSHOT_USUAL_S}}}), and in mongod's configuration",
            )
        if server.sharded:
            yield DiagnosisFinding(
                level="warning" if self._sharded else "error",
                subject="server",
                text=SHARDED,
                mend="use a replica set, or accept this with --experimental-sharded",
            )
            return
        hello = await self._mongo.command({"hello": 1}, database="admin")
        members = hello.get("hosts", ())
        if len(members) < 3:
            yield DiagnosisFinding(
                level="note",
                subject="server",
                text=f"members of the replica set: {len(members)}, expected 3 or more: without the "
                "primary nothing can be read or written",
                mend='add members: rs.add("host:27017") in mongosh, three in total',
            )

    async def _parameter(self, name: str) -> int | None:
        try:
            reply = await self._mongo.command({"getParameter": 1, name: 1}, database="admin")
        except GatewayError:
            return None  # it is not ours to read
        return int(reply[name])

    async def _stream(self) -> AsyncIterator[DiagnosisFinding]:
        await check_stream(self._mongo, await inspect_server(self._mongo))
        await check_collections(self._mongo, [each.collection for each in self._model.entities])
        yield _ok("change stream", "readable")

    async def _oplog(self) -> AsyncIterator[DiagnosisFinding]:
        try:
            oldest = await self._mongo.oldest("oplog.rs", {}, database="local")
            stats = await self._mongo.command({"collStats": "oplog.rs"}, database="local")
        except (Unsuitable, DatabaseError) as exc:
            yield DiagnosisFinding(
                level="warning",
                subject="oplog",
                text=f"not readable, so that history begins at the first start: {exc.message}",
                mend=await self._remedy("read", "local"),
            )
            return
        if oldest is None:
            yield DiagnosisFinding(level="error", subject="oplog", text="empty")
            return
        now = await self._mongo.operation_time()
        window_h = (now.time - oldest["ts"].time) / 3600
        used_mb, most_mb = stats["size"] / 2**20, stats.get("maxSize", 0) / 2**20
        full = most_mb > 0 and used_mb > 0.8 * most_mb
        text = f"reaches back {window_h:.1f} h and has {used_mb:.0f} of {most_mb:.0f} MB"
        behind_h = self._behind_h(now)
        if behind_h is not None and behind_h > window_h / 2 and full:
            yield DiagnosisFinding(
                level="error",
                subject="oplog",
                text=f"{text}; the slowest recorder lags by {behind_h:.1f} h: changes that leave "
                "the oplog before they are recorded are lost",
                mend="start `revstream record` now; enlarge the oplog: " + resize_command(most_mb),
            )
        elif full and window_h < _SHORT_WINDOW_H:
            yield DiagnosisFinding(
                level="warning",
                subject="oplog",
                text=f"{text}: recorders that stop for longer lose history",
                mend=resize_command(most_mb),
            )
        else:
            yield _ok("oplog", text)

    def _behind_h(self, now: Timestamp) -> float | None:
        reached = [resume_tokens.cluster_time(each.token) for each in self._checkpoints.values()]
        return (now.time - min(reached).time) / 3600 if reached else None

    async def _clock(self) -> AsyncIterator[DiagnosisFinding]:
        asked = time.monotonic()
        before = datetime.now(UTC)
        server, _ = await self._mongo.clock()
        round_trip_s = time.monotonic() - asked
        skew_s = (server - before).total_seconds() - round_trip_s / 2
        if abs(skew_s) > _SKEW_S + round_trip_s:
            yield DiagnosisFinding(
                level="warning",
                subject="clock",
                text=f"difference to the primary's clock: {skew_s:+.1f} s, maximum is {_SKEW_S:g} "
                "s: `asOf: { time }` and lags use the primary's",
                mend="synchronize both with NTP",
            )
        else:
            yield _ok("clock", f"{abs(skew_s):.3f} s from the primary's")

    async def _images(self) -> AsyncIterator[DiagnosisFinding]:
        names = [each.collection for each in self._model.entities]
        reply = await self._mongo.command(
            {
                "listCollections": 1,
                "filter": {"name": {"$in": names}, "type": "collection"},
                "cursor": {"batchSize": 1000},
            }
        )
        options = {each["name"]: each["options"] for each in reply["cursor"]["firstBatch"]}
        lacking = [
            name
            for name in names
            if name in options
            and not options[name].get("changeStreamPreAndPostImages", {}).get("enabled")
        ]
        for name in lacking:
            yield DiagnosisFinding(
                level="warning",
                subject="images",
                text=f"{name}: no images before and after writes: versions are built from deltas, "
                "and subscriptions wait for the archive",
                mend=f'start `revstream serve`, or: db.runCommand({{collMod: "{name}", '
                "changeStreamPreAndPostImages: {enabled: true}})",
            )
        if not lacking:
            yield _ok("images", "enabled for every existing collection")
        try:
            reply = await self._mongo.command(
                {"getClusterParameter": "changeStreamOptions"}, database="admin"
            )
        except GatewayError:
            return  # how long they are kept is not ours to read
        kept = reply["clusterParameters"][0].get("preAndPostImages", {}).get("expireAfterSeconds")
        if isinstance(kept, int | float) and kept < _IMAGES_LEAST_S:
            yield DiagnosisFinding(
                level="warning",
                subject="images",
                text=f"expireAfterSeconds: {kept:g}, expected at least {_IMAGES_LEAST_S:g}: a "
                "recorder with a greater lag builds versions from deltas",
                mend="db.adminCommand({setClusterParameter: {changeStreamOptions: "
                "{preAndPostImages: {expireAfterSeconds: 86400}}}})",
            )

    async def _indexes(self) -> AsyncIterator[DiagnosisFinding]:
        recorded = {each.collection for each in self._checkpoints}
        found = await missing_indexes(self._mongo, self._model, recorded)
        for text, mend in found:
            yield DiagnosisFinding(level="warning", subject="indexes", text=text, mend=mend)
        if not found:
            yield _ok("indexes", "all exist")

    async def _recorders(self) -> AsyncIterator[DiagnosisFinding]:
        now = await self._mongo.operation_time()
        partitions = model_partitions(self._model)
        never = [each.label for each in partitions if each not in self._checkpoints]
        if never:
            yield DiagnosisFinding(
                level="warning",
                subject="recorders",
                text=f"none has run for {', '.join(never)}: their history has not begun",
                mend="start `revstream serve` or `revstream record`",
            )
        aside = await SetAsideEvents(self._mongo).troubles()
        for partition in partitions:
            name = partition.label
            checkpoint = self._checkpoints.get(partition)
            holder = self._holders.get(partition)
            if checkpoint is None:
                continue
            if checkpoint.trouble is not None:
                text = f"{name}: not recorded: {checkpoint.trouble}"
                yield DiagnosisFinding(level="error", subject="recorders", text=text)
            if partition.index == 0 and partition.collection in aside:
                yield DiagnosisFinding(
                    level="error",
                    subject="recorders",
                    text=f"{partition.collection}: {aside[partition.collection]}",
                    mend="report the traceback in the log; then db["
                    f'"{COLLECTION}"].deleteMany({{collection: "{partition.collection}"}})',
                )
            behind_s = max(0, now.time - resume_tokens.cluster_time(checkpoint.token).time)
            if holder is None or not holder.live:
                yield DiagnosisFinding(
                    level="error",
                    subject="recorders",
                    text=f"{name}: no process records; lag: {behind_s} s",
                    mend="start `revstream serve` or `revstream record`",
                )
                continue
            reading = "" if checkpoint.baseline.done else ", reading the existing documents"
            gaps = 0
            if partition.index == 0:  # of them all, said once
                archive = Archive(self._mongo, partition.collection)
                gaps = await self._mongo.count(archive.name, {"gap": True, "unrecorded": None})
                lost = (await CoverageStore(self._mongo).load(partition.collection)).gaps
                if lost:
                    yield DiagnosisFinding(
                        level="note",
                        subject="recorders",
                        text=f"{partition.collection}: {len(lost)} windows of history were lost, "
                        f"the last from {lost[-1].start.wall:%F %T}Z on ({lost[-1].why})",
                        mend="Query.streams { gaps { from to why } } names each",
                    )
            said = f"{name}: {holder.holder} records{reading}, lag: {behind_s} s"
            if gaps:
                text = f"{said}; {gaps} versions after a gap"
                yield DiagnosisFinding(level="note", subject="recorders", text=text)
            else:
                yield _ok("recorders", said)

    async def _layouts(self) -> AsyncIterator[DiagnosisFinding]:
        for name, count in (await count_unfinished_updates(self._mongo, self._model)).items():
            text = f"{name}: {count} unfinished updates after a crash"
            mend = "revstream verify --mend; a recording process does it by itself"
            yield DiagnosisFinding(
                level="warning" if count else "ok", subject="layouts", text=text,
                mend=mend if count else None,
            )  # fmt: skip

    async def _remedy(self, role: str, database: str) -> str | None:
        try:
            return await grant_command(self._mongo, role, database=database)
        except GatewayError:
            return None


def _ok(subject: str, text: str) -> DiagnosisFinding:
    return DiagnosisFinding(level="ok", subject=subject, text=text)
