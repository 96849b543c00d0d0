"""Bearer tokens: JSON Web Tokens, verified once and then cached.

Guarantees: signature, `exp`, `nbf`, `iss` and `aud` are verified, with the algorithms of the
settings and no others. The cache is bounded. A cached token is accepted only while it has not
expired and the key that signed it is in force.
Source: RFC 8725 (JSON Web Token Best Current Practices).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jwt

from revstream.gql.auth.jwks import JsonWebKeySet
from revstream.resolvers.access.principal import Principal
from revstream.resolvers.errors import Unauthenticated
from revstream.streams.core.lru_cache import LruCache
from revstream.streams.versioning.attribution import RESERVED_NAMES, is_reserved_name

__all__ = ["BearerOptions", "BearerTokens"]

_MOST_TOKENS = 10_000
_MOST_CHARACTERS = 16_384
# The end of the year 9999, the largest time of `datetime`: some issuers write milliseconds.
_LATEST_S = 253_402_300_799.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BearerOptions:
    """Verification of tokens.

    Attributes:
        roles: Dotted path of the claim that lists the roles.
    """

    algorithms: Sequence[str]
    issuer: str
    audience: str
    leeway_s: float = 5.0
    roles: str = "roles"

    def __post_init__(self) -> None:
        known = set(jwt.algorithms.get_default_algorithms()) - {"none"}
        unknown = [each for each in self.algorithms if each not in known]
        if unknown or not self.algorithms:
            raise ValueError(
                f"{', '.join(unknown) or 'none'}, expected algorithms of {', '.join(sorted(known))}"
            )
        if len({each.startswith("HS") for each in self.algorithms}) > 1:
            # With both kinds, a public key could be used as a shared secret (RFC 8725, 2.1).
            raise ValueError(
                f"{', '.join(self.algorithms)}, expected algorithms either for shared secrets (HS) "
                "or for key pairs; remove those of one kind"
            )


class BearerTokens:
    """Verifier of tokens, with a cache of 10,000 of them."""

    def __init__(self, keys: JsonWebKeySet, options: BearerOptions) -> None:
        self.keys = keys
        self._known = LruCache[str, Principal](most=_MOST_TOKENS)
        self._options = options

    async def principal(self, token: str) -> Principal:
        """Verify a token. Returns the same object each time for the same token.

        Raises:
            Unauthenticated: The token is refused; the message says why.
            Unavailable: The keys cannot be read.
        """
        await self.keys.freshen()
        known = self.known(token)
        if known is not None:
            return known
        key, claims = await self._checked(token)
        if is_reserved_name(claims["sub"]):
            raise Unauthenticated(
                f"sub: {claims['sub'][:100]!r}, names that begin with {RESERVED_NAMES} are reserved"
            )
        principal = Principal(
            name=claims["sub"],
            roles=frozenset(_roles(claims, self._options.roles)),
            claims=claims,
            expires_at=min(int(claims["exp"]) + self._options.leeway_s, _LATEST_S),
            key=key,
        )
        self._known.put(token, principal)
        return principal

    def known(self, token: str) -> Principal | None:
        """Return the principal of a cached token that is still valid, without waiting."""
        known = self._known.get(token)
        if known is None or known.expired or not self.keys.holds(known.key):
            return None
        return known

    async def _checked(self, token: str) -> tuple[jwt.PyJWK, dict[str, Any]]:
        """Return the key of a token and its verified claims."""
        if len(token) > _MOST_CHARACTERS:
            raise Unauthenticated(
                f"characters of the token: {len(token):,}, maximum is {_MOST_CHARACTERS:,}; send a "
                "shorter one"
            )
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError as exc:
            raise Unauthenticated("token: not readable, expected a JWT; send one") from exc
        algorithm, name = str(header.get("alg")), header.get("kid")
        if algorithm not in self._options.algorithms:
            raise Unauthenticated(
                f"algorithm of the token: {algorithm[:20]!r}, expected "
                f"{' or '.join(self._options.algorithms)}; sign it with another"
            )
        key = await self.keys.key(name if isinstance(name, str) else None, algorithm)
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._options.audience,
                issuer=self._options.issuer,
                leeway=self._options.leeway_s,
                options={"require": ["exp", "sub", "iss", "aud"]},
            )
        except jwt.PyJWTError as exc:
            raise Unauthenticated(_reason(exc)) from exc
        except (OverflowError, ValueError) as exc:
            # Python's JSON parser accepts numbers, such as Infinity, that are not a time.
            raise Unauthenticated(
                "token: exp, nbf or iat is no time, expected seconds since 1970; send another"
            ) from exc
        return key, claims


def _reason(exc: jwt.PyJWTError) -> str:
    """Return the reason without PyJWT's message, which quotes the token."""
    match exc:
        case jwt.ExpiredSignatureError():
            return "token: expired, expected a valid one; authenticate again"
        case jwt.ImmatureSignatureError():
            return "token: not valid yet (nbf or iat), expected a valid one; send it later"
        case jwt.InvalidAudienceError():
            return "aud of the token: another audience, expected that of this service; send another"
        case jwt.InvalidIssuerError():
            return "iss of the token: another issuer, expected that of this service; send another"
        case jwt.MissingRequiredClaimError():
            return f"token: no claim {exc.claim!r}, expected one; send a token that has it"
        case jwt.InvalidSignatureError():
            return "signature of the token: wrong, expected that of its key; send another token"
    return "token: invalid, expected a valid JWT; send another"


def _roles(claims: Mapping[str, Any], path: str) -> Sequence[str]:
    value: Any = claims.get(path)
    if value is None:
        value = claims
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        return value.split()
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
