"""What the listeners of a deployment do, beside recording: its copies, its sinks, and the user's
own."""

from __future__ import annotations

from gql.listeners import Context, own_listeners
from gql.settings import Settings
from gql.sinks import secrets_of, sinks_of
from streams.checkpoints import Checkpoints
from streams.consumer import Handler
from streams.copier import copiers

__all__ = ["handlers_of"]


def handlers_of(
    context: Context, settings: Settings, deployment: str, checkpoints: Checkpoints
) -> list[Handler]:
    """Raises:
    click.UsageError: a setting of theirs cannot be used.
    """
    secrets = secrets_of(settings.sink_secrets)
    return [
        *copiers(context.model, context.mongo, context.archives, context.progress),
        *sinks_of(context, deployment, checkpoints, secrets),
        *(make(context) for make in own_listeners(settings.listeners)),
    ]
