"""`revstream deliveries`: what sinks have set aside, why, and what to do about it.

The commands say what is wanted; the process that delivers does it, within a second or two, or when
there is one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import click

from revstream.gql.cli.purge import subject
from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.listeners.webhook_sinks import urls_of
from revstream.model.definition import Model
from revstream.resolvers.current.stored_ids import ids_shown_as
from revstream.resolvers.values.dates import date_text
from revstream.resolvers.values.json_value import json_value
from revstream.streams.archive.store import Archive
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.listeners.webhooks.message import redact_url
from revstream.streams.listeners.webhooks.parked_delivery import (
    DropRequest,
    PendingDelivery,
    find_deliveries,
    request_drop,
    request_retry,
)
from revstream.streams.mongo.database import Mongo
from revstream.streams.mongo.server_check import inspect_server

__all__ = ["Found", "ParkedDocument", "drop", "lines_of", "look", "report_of", "retry"]

# Documents listed by name; the totals count all of them.
_MOST = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedDocument:
    """Document whose events are not delivered.

    Attributes:
        url: None if the model has that sink no longer, so that nothing delivers it.
        behind: number of later versions that wait.
    """

    waiting: PendingDelivery
    type: str
    id: str
    url: str | None
    behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`troubles`: by sink, why it makes no progress at all."""

    listed: Sequence[ParkedDocument]
    waiting: int
    parked: int
    troubles: Mapping[str, str]
    urls: Mapping[str, str]


async def look(settings: Settings, model: Model, uri: str, database: str) -> Found:
    """List the documents that wait.

    Raises:
        Unavailable: MongoDB cannot be reached.
        Unsuitable: MongoDB cannot serve.
    """
    async with _connected(settings, uri, database) as mongo:
        urls = urls_of(model)
        everything = await find_deliveries(mongo)
        # Documents that an operator has to look at come first.
        everything.sort(key=lambda each: each.parked is None)
        stored = await Checkpoints(mongo).load_all(list(urls))
        return Found(
            listed=[await _shown(mongo, model, urls, each) for each in everything[:_MOST]],
            waiting=len(everything),
            parked=sum(each.parked is not None for each in everything),
            troubles={name: each.trouble for name, each in stored.items() if each.trouble},
            urls={name: redact_url(url) for name, url in urls.items()},
        )


async def retry(
    settings: Settings, model: Model, uri: str, database: str, type_: str | None, id_: str | None
) -> int:
    """Have one document tried at once, or all. Returns how many that are.

    Raises:
        click.ClickException: nothing of that document waits. BadUserInput: no id of one.
    """
    async with _connected(settings, uri, database) as mongo:
        query: dict[str, Any] = {}
        if type_ is not None and id_ is not None:
            query = _query_for(model, type_, id_)
        count = await request_retry(mongo, query, datetime.now(UTC))
        if query and not count:
            raise _nothing(type_, id_)
        return count


async def drop(
    settings: Settings, model: Model, uri: str, database: str, type_: str, id_: str,
    *, by: str, why: str,
) -> list[PendingDelivery]:  # fmt: skip
    """Drop the event of a document that is not accepted, at each sink at which it waits.

    Raises:
        click.ClickException: none waits. BadUserInput: no id of one.
    """
    async with _connected(settings, uri, database) as mongo:
        found = await find_deliveries(mongo, _query_for(model, type_, id_))
        failing = [each for each in found if each.reason is not None]
        if not failing:
            raise _nothing(type_, id_)
        now = datetime.now(UTC)
        return [
            each
            for each in failing
            if await request_drop(
                mongo, each, DropRequest(token=each.token, by=by, why=why, at=now)
            )
        ]


def lines_of(found: Found) -> list[str]:
    """Format for people: a line per stopped sink, one per document, and the sum."""
    lines = [
        f"{name} to {found.urls[name]}: paused: {reason}" for name, reason in found.troubles.items()
    ]
    for each in found.listed:
        waiting = each.waiting
        lines.append(
            f"{each.type} {each.id} version {waiting.number}: {_state(waiting)}, "
            f"{waiting.sink} to {each.url or 'a URL that the model no longer has'}"
            + (f"; {each.behind:,} later versions wait for it" if each.behind else "")
            + (
                f"; {waiting.tries:,} attempts, the last one: {waiting.reason}"
                if waiting.reason
                else ""
            )
        )
    if found.waiting > len(found.listed):
        lines.append(f"… and {found.waiting - len(found.listed):,} more")
    if not found.waiting:
        return [*lines, "no deliveries wait"]
    lines.append(f"{found.waiting:,} documents wait, of which {found.parked:,} are parked")
    if found.parked:
        lines.append(
            "correct the receiver, then run `revstream deliveries retry TYPE ID` (or --all); or "
            "drop an event: `revstream deliveries drop TYPE ID --by WHO --why TEXT`"
        )
    return lines


def report_of(found: Found) -> dict[str, Any]:
    """Format as JSON, for programs."""
    return {
        "waiting": found.waiting,
        "parked": found.parked,
        "troubles": dict(found.troubles),
        "documents": [
            {
                "sink": each.waiting.sink,
                "url": each.url,
                "type": each.type,
                "id": each.id,
                "version": each.waiting.number,
                "behind": each.behind,
                "attempts": each.waiting.tries,
                "reason": each.waiting.reason,
                "since": date_text(each.waiting.since),
                "parkedAt": _date(each.waiting.parked),
                "nextAt": None if each.waiting.parked else _date(each.waiting.next_at),
                "dropped": each.waiting.drop is not None,
            }
            for each in found.listed
        ],
    }


def _state(waiting: PendingDelivery) -> str:
    if waiting.drop is not None:
        return "to be dropped"
    if waiting.parked is not None:
        return f"parked since {date_text(waiting.parked)}"
    return f"waits since {date_text(waiting.since)}, next at {date_text(waiting.next_at)}"


def _date(value: datetime | None) -> str | None:
    return None if value is None else date_text(value)


async def _shown(
    mongo: Mongo, model: Model, urls: Mapping[str, str], waiting: PendingDelivery
) -> ParkedDocument:
    entity = model.entity_of_collection(waiting.collection)
    later = {"doc": {"$eq": waiting.document}, "v": {"$gt": waiting.number}}
    url = urls.get(waiting.sink)
    return ParkedDocument(
        waiting=waiting,
        type=waiting.collection if entity is None else entity.name,
        id=str(json_value(waiting.document)),
        url=None if url is None else redact_url(url),
        behind=await mongo.count(Archive(mongo, waiting.collection).name, later),
    )


def _query_for(model: Model, type_: str, id_: str) -> dict[str, Any]:
    entity, key = subject(model, type_, id_)
    return {"collection": entity.collection, "doc": {"$in": list(ids_shown_as(entity, key))}}


def _nothing(type_: str | None, id_: str | None) -> click.ClickException:
    return click.ClickException(
        f"{type_} {id_}: no failed deliveries, expected at least one; see `revstream deliveries "
        "list`"
    )


@asynccontextmanager
async def _connected(settings: Settings, uri: str, database: str) -> AsyncIterator[Mongo]:
    async with Mongo.connect(uri, database, options=settings.mongo_options()) as mongo:
        await inspect_server(mongo)
        yield mongo
