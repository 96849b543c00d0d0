"""Authentication of a request by a bearer token or an API key.

`Authorization: Bearer <token>` or `X-API-Key: <key>`. Over a WebSocket the payload of
`connection_init` has the same as `authorization` and `apiKey`, because browsers cannot send headers
with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from revstream.gql.auth.api_keys import ApiKeys
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.errors import Unauthenticated

if TYPE_CHECKING:  # Imports HTTP and cryptography, which take long, only for tokens.
    from revstream.gql.auth.bearer_token import BearerTokens
    from revstream.gql.auth.jwks import JsonWebKeySet

__all__ = ["Authenticator", "Credentials"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a request, before they are checked.

    Attributes:
        authorization: scheme and token.
    """

    authorization: str | None = None
    api_key: str | None = None

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Credentials:
        """Read the credentials of an HTTP request."""
        return cls(headers.get("authorization"), headers.get("x-api-key"))

    @classmethod
    def from_payload(cls, payload: object) -> Credentials:
        """Read the credentials in the payload of `connection_init`.

        Raises:
            Unauthenticated: A credential is not text.
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
        """True if there is any credential."""
        return self.authorization is not None or self.api_key is not None


class Authenticator:
    """Check credentials and return the principal that they belong to.

    Args:
        bearer: Tokens; None if this gateway accepts none.
        keys: API keys; None if there are none.
        anonymous: Accept requests without credentials as `ANONYMOUS`.
    """

    def __init__(
        self, bearer: BearerTokens | None, keys: ApiKeys | None, *, anonymous: bool
    ) -> None:
        self._bearer = bearer
        self._keys = keys
        self._anonymous = anonymous

    @property
    def keys(self) -> Sequence[JsonWebKeySet | ApiKeys]:
        """The key stores, whose `watch` the server runs."""
        tokens = None if self._bearer is None else self._bearer.keys
        return [each for each in (tokens, self._keys) if each is not None]

    def holds(self, principal: Principal) -> bool:
        """Return whether the key that authenticated a principal is still in force."""
        if principal.key is None:
            return True
        # An API key is known by its hash.
        if isinstance(principal.key, str):
            return self._keys is None or self._keys.holds(principal)
        return self._bearer is None or self._bearer.keys.holds(principal.key)

    def known(self, headers: Mapping[str, str]) -> Principal | None:
        """Return the principal of a token that was verified before; None if it is unknown."""
        authorization = headers.get("authorization")
        bearer = self._bearer
        if authorization is None or bearer is None or "x-api-key" in headers:
            return None
        if not authorization.startswith("Bearer ") or not bearer.keys.fresh:
            return None
        return bearer.known(authorization[len("Bearer ") :])

    async def principal(self, credentials: Credentials) -> Principal:
        """Verify credentials.

        Raises:
            Unauthenticated: They are missing or wrong; the message says which.
            Unavailable: The keys cannot be read at the moment.
        """
        if credentials.authorization is not None and credentials.api_key is not None:
            raise Unauthenticated(
                "credentials: a token and an API key, expected one of them; send only one"
            )
        if credentials.api_key is not None:
            if self._keys is None:
                raise Unauthenticated("credentials: an API key, expected a token; send one")
            return self._keys.principal(credentials.api_key)
        if credentials.authorization is not None:
            scheme, _, token = credentials.authorization.strip().partition(" ")
            if self._bearer is None or scheme.lower() != "bearer" or not token:
                expected = "X-API-Key" if self._bearer is None else "Authorization: Bearer <token>"
                raise Unauthenticated(f"authorization scheme: unknown, expected {expected}")
            return await self._bearer.principal(token.strip())
        if not self._anonymous:
            raise Unauthenticated("credentials: none, expected a token or an API key; send one")
        return ANONYMOUS


def _text(payload: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    for name in names:
        value = payload.get(name)
        if value is not None:
            if not isinstance(value, str):
                raise Unauthenticated(f"{name}: {type(value).__name__}, expected a string")
            return value
    return None
