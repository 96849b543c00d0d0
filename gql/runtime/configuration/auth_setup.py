"""Authenticator of the settings."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from revstream.gql.auth.api_keys import ApiKeys
from revstream.gql.auth.authenticator import Authenticator
from revstream.gql.runtime.configuration.settings import Settings
from revstream.model.definition import Model
from revstream.resolvers.access.permissions import has_access
from revstream.resolvers.access.row_filter import claims_named

if TYPE_CHECKING:
    from revstream.gql.auth.bearer_token import BearerTokens

__all__ = ["sign_in_of"]

log = logging.getLogger(__name__)


def sign_in_of(settings: Settings, model: Model) -> Authenticator | None:
    """Create the authenticator; None if there are no credentials and no `@access`.

    Raises:
        click.UsageError: The settings are invalid, or leave `@access` without principals.
    """
    bearer = _bearer_of(settings)
    keys = None
    if settings.api_keys is not None:
        try:
            keys = ApiKeys(settings.api_keys)
        except ValueError as exc:
            raise click.UsageError(f"--api-keys: {exc}") from exc
    if bearer is None and keys is None:
        if settings.admin_role is not None:
            raise click.UsageError(
                "--admin-role: requires authentication; set --jwt-keys or --api-keys"
            )
        if has_access(model) and not settings.anonymous:
            raise click.UsageError(
                "authentication: none, expected one for a model with @access; set --jwt-keys or "
                "--api-keys, or --anonymous to serve all callers without roles"
            )
        if not settings.anonymous or not has_access(model):
            return None
    if settings.author_header is not None:
        raise click.UsageError(
            "--author-header: set together with authentication, in which the principal is the "
            "author; remove one of them"
        )
    if keys is not None and "sub" in claims_named(model) and (without := keys.without("sub")):
        log.warning(
            "row rules use $sub, which these API keys do not have: they match no rows for them, "
            "unless their claims have a sub",
            extra={"principals": without},
        )
    return Authenticator(bearer, keys, anonymous=settings.anonymous)


def _bearer_of(settings: Settings) -> BearerTokens | None:
    if settings.jwt_keys is None:
        return None
    if settings.jwt_issuer is None or settings.jwt_audience is None:
        raise click.UsageError(
            "--jwt-keys: requires --jwt-issuer and --jwt-audience, since otherwise tokens of other "
            "services would be accepted; set them"
        )
    if "://" not in settings.jwt_keys and not Path(settings.jwt_keys).is_file():
        raise click.UsageError(
            # Not its value, which may be the keys themselves.
            "--jwt-keys: no URL and no existing file, expected one of them"
        )
    # Clients for HTTP and cryptography are an eighth of what a start imports; for tokens alone.
    from revstream.gql.auth.bearer_token import BearerOptions, BearerTokens  # noqa: PLC0415
    from revstream.gql.auth.jwks import JsonWebKeySet  # noqa: PLC0415

    algorithms = [each.strip() for each in settings.jwt_algorithms.split(",") if each.strip()]
    try:
        options = BearerOptions(
            algorithms=algorithms,
            issuer=settings.jwt_issuer,
            audience=settings.jwt_audience,
            leeway_s=settings.jwt_leeway_s,
            roles=settings.jwt_roles,
        )
    except ValueError as exc:
        raise click.UsageError(f"--jwt-algorithms: {exc}") from exc
    return BearerTokens(JsonWebKeySet(settings.jwt_keys, fresh_s=settings.jwt_keys_s), options)
