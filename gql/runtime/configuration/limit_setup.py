"""Limits of requests that the settings ask for."""

from __future__ import annotations

from dataclasses import fields

import click

from revstream.gql.engine.limits.concurrency import ConcurrencyLimiter
from revstream.gql.engine.limits.document_limits import Limits
from revstream.gql.engine.limits.operation_budget import OperationLimits
from revstream.gql.engine.limits.persisted_documents import (
    AutomaticDocuments,
    Persisted,
    TrustedDocuments,
    read_manifest,
)
from revstream.gql.engine.limits.subscription_filters import SubscriptionFilters
from revstream.gql.runtime.configuration.settings import Settings

__all__ = ["concurrency_limiter", "document_limits", "persisted_documents", "subscription_filters"]


def document_limits(settings: Settings) -> Limits:
    """Limits of GraphQL documents and variables."""
    return Limits(**{each.name: getattr(settings, each.name) for each in fields(Limits)})


def concurrency_limiter(settings: Settings) -> ConcurrencyLimiter:
    """Create the limiter of the operations of one process."""
    return ConcurrencyLimiter(
        executing=settings.max_executing,
        waiting=settings.max_waiting,
        suspended=settings.max_archive_waiting,
        limits=OperationLimits(
            read_bytes=settings.max_read_bytes,
            process_read_bytes=settings.max_process_read_bytes,
            cost=settings.max_cost,
            values=settings.max_values,
        ),
        per_principal=settings.max_principal_operations,
        limit_s=settings.operation_limit_s,
    )


def subscription_filters(settings: Settings) -> SubscriptionFilters:
    """Create the budgets of the filters of open subscriptions."""
    return SubscriptionFilters(
        per_subscription=settings.max_subscription_conditions,
        per_caller=settings.max_principal_conditions,
        in_all=settings.max_process_conditions,
    )


def persisted_documents(settings: Settings) -> Persisted:
    """Read the trusted documents, or create an empty store of automatic persisted queries.

    Raises:
        click.UsageError: The file of trusted documents cannot be used.
    """
    if settings.trusted_documents is None:
        return AutomaticDocuments()
    try:
        return TrustedDocuments(read_manifest(settings.trusted_documents))
    except ValueError as exc:
        raise click.UsageError(f"--trusted-documents: {exc}") from exc
