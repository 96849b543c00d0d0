"""Who sends a request: by a token, by an API key, or nobody known.

`Authorization: Bearer <token>` or `X-API-Key: <key>`; over a socket the same as `authorization` and
`apiKey` in the payload of `connection_init`, for browsers, which cannot send headers with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from revstream.gql.auth.api_keys import ApiKeys
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.errors import Unauthenticated

if TYPE_CHECKING:  # Not imported where nobody signs in: HTTP and cryptography take long.
    from revstream.gql.auth.bearer_token import BearerTokens
    from revstream.gql.auth.jwks import JsonWebKeySet

__all__ = ["Authenticator", "Credentials"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """As they were sent. `authorization`: scheme and token."""

    authorization: str | None = None
    api_key: str | None = None

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> Credentials:
        return cls(headers.get("authorization"), headers.get("x-api-key"))

    @classmethod
    def of_payload(cls, payload: object) -> Credentials:
        """Raises:
        Unauthenticated: not text.
        """
        if not isinstance(payload, Mapping):
            return cls()
        given = [
            _text(payload, names)
            for names in (("authorization", "Authorization"), ("apiKey", "x-api-key", "X-API-Key"))
        ]
        return cls(*given)

    @property
    def given(self) -> bool:
        return self.authorization is not None or self.api_key is not None


class Authenticator:
    """Args:
    anonymous: whether nobody known may ask, too.
    """

    def __init__(
        self, bearer: BearerTokens | None, keys: ApiKeys | None, *, anonymous: bool
    ) -> None:
        self._bearer = bearer
        self._keys = keys
        self._anonymous = anonymous

    @property
    def keys(self) -> Sequence[JsonWebKeySet | ApiKeys]:
        """All key stores; the server runs `watch` of each."""
        tokens = None if self._bearer is None else self._bearer.keys
        return [each for each in (tokens, self._keys) if each is not None]

    def holds(self, principal: Principal) -> bool:
        """Return whether the key that a principal has signed in with is still in force."""
        if principal.key is None:
            return True
        # An API key is known by its hash.
        if isinstance(principal.key, str):
            return self._keys is None or self._keys.holds(principal)
        return self._bearer is None or self._bearer.keys.holds(principal.key)

    def known(self, headers: Mapping[str, str]) -> Principal | None:
        """Who was found to have sent these before, where that holds without a closer look."""
        authorization = headers.get("authorization")
        bearer = self._bearer
        if authorization is None or bearer is None or "x-api-key" in headers:
            return None
        if not authorization.startswith("Bearer ") or not bearer.keys.fresh:
            return None
        return bearer.known(authorization[len("Bearer ") :])

    async def principal(self, credentials: Credentials) -> Principal:
        """Raises:
        Unauthenticated: says what is wrong, or what is missing.
        Unavailable: it cannot be said at the moment.
        """
        if credentials.authorization is not None and credentials.api_key is not None:
            raise Unauthenticated("give a token or an API key, not both")
        if credentials.api_key is not None:
            if self._keys is None:
                raise Unauthenticated("there are no API keys here; sign in with a token")
            return self._keys.principal(credentials.api_key)
        if credentials.authorization is not None:
            scheme, _, token = credentials.authorization.strip().partition(" ")
            if self._bearer is None or scheme.lower() != "bearer" or not token:
                expected = "X-API-Key" if self._bearer is None else "Authorization: Bearer <token>"
                raise Unauthenticated(f"this cannot be signed in with; send {expected}")
            return await self._bearer.principal(token.strip())
        if not self._anonymous:
            raise Unauthenticated("sign in: nothing is served to those who have not")
        return ANONYMOUS


def _text(payload: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = payload.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise Unauthenticated(f"{name} is text")
            return value
    return None
