"""Handlers of a deployment besides recording: copies, sinks, and listeners of users."""

from __future__ import annotations

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.listeners.consumers import own_listeners
from revstream.gql.runtime.listeners.webhook_sinks import secrets_of, sinks_of
from revstream.streams.coordination.checkpoint import Checkpoints
from revstream.streams.listeners.consumer import Handler
from revstream.streams.listeners.context import ListenerContext
from revstream.streams.listeners.copies.listeners import create_copy_listeners

__all__ = ["handlers_of"]


def handlers_of(
    context: ListenerContext, settings: Settings, deployment: str, checkpoints: Checkpoints
) -> list[Handler]:
    """Create the handlers.

    Raises:
        click.UsageError: A setting of theirs cannot be used.
    """
    secrets = secrets_of(settings.sink_secrets)
    return [
        *create_copy_listeners(context.model, context.mongo, context.archives, context.progress),
        *sinks_of(context, deployment, checkpoints, secrets),
        *(make(context) for make in own_listeners(settings.listeners)),
    ]
