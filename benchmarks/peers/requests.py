"""Requests a second of revstream beside Mercurius and a bare route, for five queries; the last one
is measured again while products are written.

By turns each server has the same core to itself, with the same documents and indexes; before
anything is measured its responses are compared with the documents. All processes stay running: idle
ones take no CPU time.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pymongo.database import Database

from benchmarks.charts import bars
from benchmarks.figures import Part, Table, medians
from benchmarks.http_load import CONNECTIONS, Request, load, measure
from benchmarks.peers.node import mercurius, node_versions
from benchmarks.peers.shop import MODEL, PRODUCTS, SHAPES, Shape, guarded, plain, stock_up
from benchmarks.processes import Failed, Process
from benchmarks.stage import Document, Stage, await_versions
from tests.support.issuer import Issuer

__all__ = ["run"]

_ASKED = 1000
_CHECKED = 5
_CALLERS = 100
# Many short turns: another load on the host lasts for seconds, and should affect all servers
# alike.
_TURNS = 3
_PEER, _BARE, _OURS = "Mercurius", "bare route", "revstream"
_SIGNED = "revstream, signed in"
_WRITES_PER_S = 50


@dataclass(frozen=True, slots=True)
class _Contender:
    """A server that is measured.

    Args:
        asked: returns the requests of a shape for drawn values.
        compiles: whether it gets faster for a while (JIT).
    """

    process: Process
    address: str
    asked: Callable[[Shape, Sequence[int]], list[Request]]
    compiles: bool = False


def run(stage: Stage) -> list[Part]:
    parts: list[Part] = []
    with ExitStack() as opened:
        database = opened.enter_context(stage.database())
        stock_up(database)
        contenders = _open(stage, opened, database)
        for shape in SHAPES:
            for name, each in contenders.items():
                _check(name, each, shape, database)
        for shape in SHAPES:
            parts += _measure(stage, shape, contenders)
        # The last query once more, while the documents change.
        busy = replace(shape, name=f"{shape.name}, {_WRITES_PER_S} of them written a second")
        writing = ("write", stage.uri, database.name, PRODUCTS, _WRITES_PER_S)
        with stage.program("steady", *writing) as writer:
            writer.await_event("begun")
            parts += _measure(stage, busy, contenders)
            writer.finish()
    first = parts[0]
    assert isinstance(first, Table)
    first.note(
        f"The load sends {_most(stage):,.0f} requests a second to a server that does nothing."
    )
    first.note(f"{node_versions()}.")
    return parts


def _open(stage: Stage, opened: ExitStack, database: Database[Document]) -> dict[str, _Contender]:
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
    issuer = Issuer(folder / "jwks.json")
    tokens = [
        issuer.token(f"caller-{n}", lasts_s=86_400, roles=["reader"], least=0)
        for n in range(_CALLERS)
    ]
    rules = folder / "schema.graphql"
    rules.write_text(guarded(), encoding="utf-8")
    with stage.gateway(database, "--schema", str(MODEL)):
        await_versions(database, PRODUCTS)

    def gateway(model: Path, *options: str) -> tuple[Process, str]:
        return opened.enter_context(stage.gateway(database, "--schema", str(model), *options))

    bare_server = opened.enter_context(
        stage.program("bare_server", stage.uri, database.name, beside_load=False)
    )
    return {
        _PEER: _Contender(*opened.enter_context(mercurius(stage, database)), _graphql, True),
        _BARE: _Contender(bare_server, str(bare_server.await_event("serving")["address"]), _routes),
        # It records for both: the archive's progress shows that a version number is still the last.
        _OURS: _Contender(*gateway(MODEL), _graphql),
        _SIGNED: _Contender(
            *gateway(rules, *issuer.options(), "--no-record"),
            lambda shape, drawn: [
                shape.graphql(each, tokens[n % _CALLERS]) for n, each in enumerate(drawn)
            ],
        ),
    }


def _graphql(shape: Shape, drawn: Sequence[int]) -> list[Request]:
    return [shape.graphql(each) for each in drawn]


def _routes(shape: Shape, drawn: Sequence[int]) -> list[Request]:
    return [shape.route(each) for each in drawn]


def _check(name: str, contender: _Contender, shape: Shape, database: Database[Document]) -> None:
    """Check that the responses contain the documents, or the comparison has no meaning.

    Raises:
        Failed: they do not.
    """
    drawn = shape.drawn(_CHECKED)
    for each, request in zip(drawn, contender.asked(shape, drawn), strict=True):
        answer, expected = _ask(contender.address, request), shape.expected(database, each)
        told = answer.get("data", answer)
        rows = told["products"] if shape.first else [told["product"]]
        if isinstance(rows, dict):
            rows = rows["nodes"]
        if [plain(row) if "_id" in row else row for row in rows] != expected:
            raise Failed(f"{name} answers {request} with {answer}, not with {expected}")


def _measure(stage: Stage, shape: Shape, contenders: dict[str, _Contender]) -> list[Part]:
    drawn = shape.drawn(_ASKED)
    requests = {name: each.asked(shape, drawn) for name, each in contenders.items()}
    for name, each in contenders.items():
        seconds = stage.scale.compiling_s if each.compiles else stage.scale.requests_s / 3
        load(stage, each.address, requests[name], seconds)
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in contenders}
    scale = stage.scale
    short = replace(stage, scale=replace(scale, requests_s=scale.requests_s / _TURNS))
    for turn in stage.track(range(scale.repeat * _TURNS), shape.name):
        # In both orders: each server is measured after different ones.
        for name in list(contenders)[:: -1 if turn % 2 else 1]:
            each = contenders[name]
            rows[name].append(measure(short, each.process, each.address, requests[name]))
    found = {name: medians(measured) for name, measured in rows.items()}
    table = Table(
        f"{shape.name}: {PRODUCTS:,} products, {CONNECTIONS} connections",
        "server",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "its CPU, µs each",
        f"x {_PEER}",
        f"x {_BARE}",
    )
    for name, row in found.items():
        table.add(name, *row, row[0] / found[_PEER][0], row[0] / found[_BARE][0])
    return [table, bars(f"{shape.name}: requests/s", {name: row[0] for name, row in found.items()})]


def _most(stage: Stage) -> float:
    """Return the most requests a second that the load can send."""
    with stage.program("receiver", beside_load=False) as nothing:
        address = f"http://127.0.0.1:{nothing.await_event('serving')['port']}"
        return load(stage, address, [Request("/last")], stage.scale.requests_s / 3).per_second


def _ask(address: str, request: Request) -> Any:
    headers = {"Content-Type": "application/json"}
    if request.token:
        headers["Authorization"] = f"Bearer {request.token}"
    with urllib.request.urlopen(
        urllib.request.Request(
            address + request.path, data=request.body.encode() or None, headers=headers
        )
    ) as answer:
        return json.load(answer)
