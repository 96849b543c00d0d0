"""Receiver of revstream's sinks with an exactly-once effect.

The effect of an event and the note that it was done are one transaction.

    SECRET=whsec_… uvicorn receiver:app --port 9000

Each event is checked in this order:
  1. its signature: without the secret it is refused (401);
  2. its fencing token: once a newer process has delivered, an older one is refused (409);
  3. its place in the stream: what was done before is answered with 200, and not done again.

The effect here is a table of products and a count of what happened to each; put yours in `_apply`.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

SCHEMA = """
create table if not exists fences (sink text primary key, token integer not null);
create table if not exists places (sink text, subject text, sequence text not null,
  primary key (sink, subject));
create table if not exists products (id text primary key, version integer, document text,
  changes integer not null);
"""
MOST_BYTES = 32 * 1024 * 1024


def create_app(database: str, secret: str) -> Starlette:
    """Args:
    database: a file of SQLite's.
    secret: one of those that revstream signs with.
    """
    webhook = Webhook(secret)
    # One connection and one thread: each event is a transaction of its own.
    store = sqlite3.connect(database, isolation_level=None)
    store.execute("pragma journal_mode = wal")
    store.executescript(SCHEMA)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        with closing(store):
            yield

    async def receive(request: Request) -> Response:
        if int(request.headers.get("content-length", 0)) > MOST_BYTES:
            return PlainTextResponse("too large", 413)
        body = await request.body()
        try:
            event = webhook.verify(body, dict(request.headers))
        except (WebhookVerificationError, ValueError) as exc:
            return PlainTextResponse(f"signature: {exc}", 401)
        status, said = take(store, event)
        return PlainTextResponse(said, status)

    async def products(_: Request) -> Response:
        rows = store.execute("select id, version, document, changes from products order by id")
        return JSONResponse(
            [
                {"id": i, "version": v, "document": json.loads(d), "changes": n}
                for i, v, d, n in rows
            ]
        )

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/changes", receive, methods=["POST"]),
            Route("/products", products, methods=["GET"]),
        ],
    )


def take(store: sqlite3.Connection, event: dict[str, Any]) -> tuple[int, str]:
    """Do what an event says, once. Returns an HTTP status, and a word for the log."""
    sink, fence = event["sink"], event["fencingtoken"]
    store.execute("begin immediate")
    try:
        found = store.execute("select token from fences where sink = ?", (sink,)).fetchone()
        newest = found[0] if found else 0
        if fence < newest:
            store.execute("rollback")
            return 409, f"fencing token {fence} is older than {newest}"
        store.execute("insert or replace into fences values (?, ?)", (sink, fence))
        said = "done" if _is_new(store, event) else "known"
        if said == "done":
            _apply(store, event)
        store.execute("commit")
    except BaseException:
        store.execute("rollback")
        raise
    return 200, said


def _is_new(store: sqlite3.Connection, event: dict[str, Any]) -> bool:
    """Record the place of an event; False if it was done before.

    Events of one document come in order, so its last place is enough.
    """
    subject, sequence = event.get("subject"), event.get("sequence")
    if subject is None or sequence is None:
        # That history was lost is harmless to hear twice.
        return True
    key = (event["sink"], subject)
    found = store.execute(
        "select sequence from places where sink = ? and subject = ?", key
    ).fetchone()
    if found and sequence <= found[0]:
        return False
    store.execute("insert or replace into places values (?, ?, ?)", (*key, sequence))
    return True


def _apply(store: sqlite3.Connection, event: dict[str, Any]) -> None:
    """The effect: yours goes here, in the same transaction."""
    if event["type"].endswith(".history-lost"):
        # Some changes will never come: read again what you need of `subject`, or of everything.
        return
    data = event["data"]
    store.execute(
        "insert into products values (?, ?, ?, 1) on conflict (id) do update set "
        "version = excluded.version, document = excluded.document, changes = changes + 1",
        (event["subject"], data["version"], json.dumps(data["document"])),
    )


def __getattr__(name: str) -> Starlette:
    """`receiver:app` for uvicorn, made when it is asked for."""
    if name != "app":
        raise AttributeError(name)
    return create_app(os.environ.get("DATABASE", "receiver.sqlite"), os.environ["SECRET"])
