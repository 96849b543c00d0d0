"""A page of 20 documents as of a time point, beside the same page of the current collection.

In id order, which uses an index; filtered; and sorted by another field, which reads every version
that was current at the time point. Each page is requested after the previous one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from statistics import median
from typing import Any

from benchmarks.charts import bars
from benchmarks.figures import Part, Table, medians
from benchmarks.graphql_client import GraphqlClient, connect
from benchmarks.long_history import LongHistory, write_long_history
from benchmarks.processes import Process
from benchmarks.stage import Stage
from revstream.streams.core import resume_tokens

__all__ = ["deployment_tag", "moments", "run", "run_past"]

_FIELDS = "sku name price stock"
_INFO = "pageInfo { endCursor }"
_CURRENT = (
    "query ($after: String) { page: products(first: 20, after: $after%s) { %s nodes { id %s } } }"
)
_PAST = (
    "query ($asOf: TimePoint!, $after: String) { "
    "page: productsAsOf(asOf: $asOf, first: 20, after: $after%s) "
    "{ %s nodes { id: documentId document { %s } } } }"
)
_KINDS = {
    "in id order": "",
    "where half match, in id order": ", where: {stock: {lt: 500}}",
    "where 1 in 1,000 matches, in id order": ", where: {stock: {eq: 7}}",
    "sorted by price": ", orderBy: [{price: ASC}]",
}
_MOMENTS = {"early": 0.1, "middle": 0.5, "late": 0.95}
_CLOCK = "middle, by the clock"

# Enough that no page after a cursor is requested twice.
_PAST_DOCUMENTS = 20_000
_TURNS = 10
_CURSORS = """query ($asOf: TimePoint!, $after: String) { page: productsAsOf(
    asOf: $asOf, first: 1000, after: $after, where: {id: {ne: -1}}, orderBy: [{id: DESC}]
    ) { edges { cursor } pageInfo { hasNextPage endCursor } } }"""
_CURSORS_NOW = """query ($after: String) {
    page: products(first: 1000, after: $after, orderBy: [{id: DESC}]) {
        edges { cursor } pageInfo { hasNextPage endCursor } } }"""
# The queries, by names that are short enough for a bar of the chart.
_PAGES = {
    "now": "{ products(first: 20) { nodes { id sku name price stock } } }",
    "with version": "{ products(first: 20) { nodes { id version sku name price stock } } }",
    "now, next page": """query ($next: String) { page: products(first: 20, after: $next) {
        nodes { id sku name price stock } pageInfo { endCursor } } }""",
    "now, elsewhere": """query ($lotNow: String) {
        products(first: 20, after: $lotNow, orderBy: [{id: DESC}]) {
            nodes { id sku name price stock } } }""",
    "as of": """query ($asOf: TimePoint!) { productsAsOf(asOf: $asOf, first: 20) {
        nodes { documentId document { sku name price stock } } } }""",
    "as of, next page": """query ($asOf: TimePoint!, $next: String) {
        page: productsAsOf(asOf: $asOf, first: 20, after: $next) {
            nodes { documentId document { sku name price stock } } pageInfo { endCursor } } }""",
    "as of, elsewhere": """query ($asOf: TimePoint!, $lot: String) {
        productsAsOf(asOf: $asOf, first: 20, after: $lot, orderBy: [{id: DESC}]) {
            nodes { documentId document { sku name price stock } } } }""",
    "history": """query ($id: ID!) { product(id: $id) { history(first: 20) {
        nodes { version operation at document { sku name price stock } } } } }""",
    "with diffs": """query ($id: ID!) { product(id: $id) { history(first: 20) {
        nodes { version operation at diff { path kind before after } } } } }""",
    "audit trail": """{ productVersions(first: 20) {
        nodes { documentId version operation at author changedFields } } }""",
}


def run(stage: Stage) -> list[Part]:
    scale = stage.scale
    table = Table(
        f"As-of reads: pages of 20 out of {scale.documents:,} documents "
        f"with {scale.versions} versions each, median ms",
        "page",
        "now",
        *_MOMENTS,
        _CLOCK,
        "worst against now",
    )
    with stage.database() as database:
        past = write_long_history(stage, database)
        with stage.gateway(database) as (_, address):
            client = connect(address)
            deployment = deployment_tag(client)
            for kind, arguments in _KINDS.items():
                _compare(stage, table, client, kind, arguments, moments(past, deployment))
    return [table]


def _page_times(client: GraphqlClient, query: str, count: int, **variables: Any) -> list[float]:
    """Request `count` pages one after the other; returns the milliseconds of each."""
    after, took = None, []
    for _ in range(count):
        started = time.perf_counter()
        page = client.ask(query, after=after, **variables)["page"]
        took.append((time.perf_counter() - started) * 1000)
        # Start again after the last page.
        after = page["pageInfo"]["endCursor"] if len(page["nodes"]) == 20 else None
    return took


def deployment_tag(client: GraphqlClient) -> str:
    """Return the deployment's tag at the end of its resume tokens."""
    token: str = client.ask("{ resumeToken }")["resumeToken"]
    return token.rpartition(".")[2]


def moments(past: LongHistory, deployment: str) -> dict[str, dict[str, str]]:
    """Return time points by resume token, which is exact, and one by the clock.

    For a time a resume token must be found.
    """
    found = {
        name: {
            "token": resume_tokens.encode(
                resume_tokens.token_from_time(past.moment(share)), deployment
            )
        }
        for name, share in _MOMENTS.items()
    }
    middle = past.moment(_MOMENTS["middle"]).as_datetime()
    return found | {_CLOCK: {"time": middle.isoformat()}}


def _compare(
    stage: Stage,
    table: Table,
    client: GraphqlClient,
    kind: str,
    arguments: str,
    moments: dict[str, dict[str, str]],
) -> None:
    queries: dict[str, tuple[str, dict[str, Any]]] = {
        "now": (_CURRENT % (arguments, _INFO, _FIELDS), {})
    }
    for name, moment in moments.items():
        queries[name] = (_PAST % (arguments, _INFO, _FIELDS), {"asOf": moment})
    took: dict[str, list[float]] = {name: [] for name in queries}
    for query, variables in queries.values():
        _page_times(client, query, 2, **variables)
    # In turn, so that a temporary load of the machine affects all of them.
    for _ in stage.rounds(f"pages {kind}"):
        for name, (query, variables) in queries.items():
            took[name].append(median(_page_times(client, query, stage.scale.pages, **variables)))
    now, *past = (median(took[name]) for name in queries)
    table.add(kind, now, *past, f"{max(past) / now:.1f} x")


def run_past(stage: Stage) -> list[Part]:
    """Measure pages of 20 of each kind of history read, beside a page of current documents."""
    scale = replace(stage.scale, documents=min(stage.scale.documents, _PAST_DOCUMENTS))
    table = Table(
        f"Pages of 20 out of {scale.documents:,} documents with {scale.versions} versions each, "
        "requested one after the other",
        "page",
        "ms",
        "x now",
        "gateway's CPU, ms",
    )
    took: dict[str, list[tuple[float, float]]] = {}
    with stage.database() as database:
        past = write_long_history(replace(stage, scale=scale), database)
        with stage.gateway(database) as (gateway, address):
            client = connect(address)
            at = moments(past, deployment_tag(client))["middle"]
            dice = random.Random(1)
            lots = _cursors(client, _CURSORS, asOf=at)[:: 20 + 1]
            lots_now = _cursors(client, _CURSORS_NOW)[:: 20 + 1]
            dice.shuffle(lots)
            dice.shuffle(lots_now)
            lot, lot_now = cycle(lots), cycle(lots_now)
            ends: dict[str, str | None] = {}
            given: dict[str, Callable[[str], Any]] = {
                "asOf": lambda _: at,
                "id": lambda _: str(dice.randrange(scale.documents)),
                "lot": lambda _: next(lot),
                "lotNow": lambda _: next(lot_now),
                "next": ends.get,
            }

            def ask(query: str) -> None:
                declared = {
                    name: each(query) for name, each in given.items() if f"${name}:" in query
                }
                page = client.ask(query, **declared).get("page")
                if page is not None:
                    ends[query] = page["pageInfo"]["endCursor"]

            for query in _PAGES.values():
                _timed(gateway, ask, query, scale.pages * _TURNS)
            for _ in stage.rounds("pages of the past"):
                # A few of each by turns: a temporary load of the machine affects all of them.
                turns = [
                    (name, *_timed(gateway, ask, query, scale.pages))
                    for _ in range(_TURNS)
                    for name, query in _PAGES.items()
                ]
                for name in _PAGES:
                    ms = [each for one, times, _ in turns if one == name for each in times]
                    cpu_s = sum(taken_s for one, _, taken_s in turns if one == name)
                    took.setdefault(name, []).append((median(ms), cpu_s / len(ms) * 1000))
    rows = {name: medians(each) for name, each in took.items()}
    now = next(iter(rows.values()))[0]
    for name, (middle_ms, cpu_ms) in rows.items():
        table.add(name, middle_ms, middle_ms / now, cpu_ms)
    return [table, bars("pages of 20: ms", {name: row[0] for name, row in rows.items()})]


def _cursors(client: GraphqlClient, query: str, **variables: Any) -> list[str]:
    """Return the cursors of all documents."""
    found: list[str] = []
    after, more = None, True
    while more:
        page = client.ask(query, after=after, **variables)["page"]
        found += (each["cursor"] for each in page["edges"])
        after, more = page["pageInfo"]["endCursor"], page["pageInfo"]["hasNextPage"]
    return found


def _timed(
    gateway: Process, ask: Callable[[str], None], query: str, pages: int
) -> tuple[list[float], float]:
    """Return the milliseconds of each page, and the gateway's CPU seconds for all."""
    took, cpu_s = [], gateway.cpu_s()
    for _ in range(pages):
        started = time.perf_counter()
        ask(query)
        took.append((time.perf_counter() - started) * 1000)
    return took, gateway.cpu_s() - cpu_s
