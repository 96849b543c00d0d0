"""The sinks that a model asks for, each with its receiver, its secrets and its name."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from revstream.model.definition import Model
from revstream.resolvers.admin.cloud_event import Events
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.listeners.context import ListenerContext
from revstream.streams.listeners.webhooks.parked_delivery import PendingDeliveries
from revstream.streams.listeners.webhooks.sink import Sink, SinkOptions

__all__ = ["Secret", "secrets_for", "secrets_of", "sink_name", "sinks_of", "urls_of"]

_MARK = "whsec_"
# Standard Webhooks: 192 to 512 bits.
_LEAST_BYTES, _MOST_BYTES = 24, 64


@dataclass(frozen=True, slots=True)
class Secret:
    """`beginning`: of the URLs that it is for; "" is all."""

    beginning: str
    text: str = field(repr=False)


def secrets_of(given: str | None) -> list[Secret]:
    """Parse `--sink-secrets`, separated by commas or spaces.

    Each is `whsec_…` for every sink, or `https://example.org/=whsec_…` for sinks whose URL begins
    so.

    Raises:
        click.UsageError: One is invalid; named by its position, without its value.
    """
    found = []
    for place, each in enumerate(re.split(r"[,\s]+", (given or "").strip(", \t\n")), 1):
        if not each:
            continue
        beginning, mark, encoded = each.partition(_MARK)
        problem: str | None
        if not mark:
            problem = f"no {_MARK}"
        elif beginning and not re.fullmatch(r"https?://\S+=", beginning):
            problem = f"text before {_MARK}, expected the beginning of a URL and ="
        else:
            problem = _problem(encoded)
        if problem:
            raise click.UsageError(
                f"--sink-secrets: number {place}: {problem}; "
                f"write {_MARK} and 24 to 64 random bytes in base64, as printed by\n"
                f"  echo {_MARK}$(head -c 32 /dev/urandom | base64)"
            )
        found.append(Secret(beginning.removesuffix("="), mark + encoded))
    return found


def _problem(encoded: str) -> str | None:
    try:
        size = len(base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True))
    except (binascii.Error, ValueError):
        return "not base64"
    if _LEAST_BYTES <= size <= _MOST_BYTES:
        return None
    return f"{size} bytes, expected {_LEAST_BYTES} to {_MOST_BYTES}"


def secrets_for(url: str, secrets: Sequence[Secret]) -> list[str]:
    """Return the secrets with the longest prefix that fits the URL: all of them sign."""
    fitting = [each for each in secrets if url.startswith(each.beginning)]
    longest = max((len(each.beginning) for each in fitting), default=0)
    return [each.text for each in fitting if len(each.beginning) == longest]


def sink_name(collection: str, url: str) -> str:
    """The same in every process and release: its place in the stream is stored under it."""
    return f"sink:{collection}:{hashlib.sha256(url.encode()).hexdigest()[:8]}"


def sinks_of(
    context: ListenerContext,
    deployment: str,
    checkpoints: Checkpoints,
    secrets: Sequence[Secret],
    *,
    options: SinkOptions | None = None,
) -> list[Sink]:
    """Create the sinks of all entities, in the model's order."""
    if not any(entity.sinks for entity in context.model.entities):
        return []
    # A client for HTTP is a tenth of what a start imports; for sinks alone.
    from revstream.streams.listeners.webhooks.http_client import WebhookClient  # noqa: PLC0415

    made = []
    for entity in context.model.entities:
        for each in entity.sinks:
            name = sink_name(entity.collection, each.url)
            made.append(
                Sink(
                    name=name,
                    archive=context.archives[entity.collection],
                    deliveries=PendingDeliveries(context.mongo, checkpoints, name),
                    receiver=WebhookClient(each.url, secrets_for(each.url, secrets)),
                    rendering=Events(context.model, entity, sink=name, deployment=deployment),
                    operations=each.operations,
                    options=options,
                )
            )
    return made


def urls_of(model: Model) -> dict[str, str]:
    """Return the URLs of the sinks by name."""
    return {
        sink_name(entity.collection, each.url): each.url
        for entity in model.entities
        for each in entity.sinks
    }
