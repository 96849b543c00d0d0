"""Request contexts by caller: authenticates a request and provides the caller's services.

The services of a caller are stored under the principal, and used for its next requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from revstream.gql.auth.authenticator import Authenticator, Credentials
from revstream.gql.auth.sessions import Sessions
from revstream.gql.engine.request.context import RequestContext
from revstream.resolvers.access.principal import ANONYMOUS, Principal
from revstream.resolvers.errors import SignInEnded
from revstream.streams.core.lru_cache import LruCache
from revstream.streams.versioning.attribution import is_reserved_name

__all__ = ["RequestContextFactory"]

_MOST = 1000


class RequestContextFactory:
    """Factory of request contexts.

    Args:
        sign_in: None if callers are anonymous.
        make: creates a context for a caller, with services restricted to its access rights.
        author_header: header with the author's name, if callers are anonymous.
        deciding: claims that row rules use.
    """

    def __init__(
        self,
        sign_in: Authenticator | None,
        make: Callable[[Principal], RequestContext],
        *,
        author_header: str | None,
        deciding: frozenset[str],
    ) -> None:
        self._sign_in = sign_in
        self._make = make
        self._author_header = author_header
        self._deciding = deciding
        self._kept = LruCache[Principal, RequestContext](most=_MOST)
        self.sessions = Sessions() if sign_in is None else Sessions(sign_in.holds)
        for keys in () if sign_in is None else sign_in.keys:
            keys.changed = self.sessions.review

    @property
    def signs_in(self) -> bool:
        return self._sign_in is not None

    async def for_request(self, headers: Mapping[str, str]) -> RequestContext:
        """Authenticate a request and return its context.

        Raises:
            Unauthenticated, Unavailable: see `Authenticator.principal`.
        """
        known = self.known(headers)
        if known is not None:
            return known
        principal = await self.principal(Credentials.from_headers(headers))
        return self._context(principal, headers)

    def known(self, headers: Mapping[str, str]) -> RequestContext | None:
        """Return the context if the credentials are cached; None otherwise."""
        principal = ANONYMOUS if self._sign_in is None else self._sign_in.known(headers)
        return None if principal is None else self._context(principal, headers)

    def for_socket(self, headers: Mapping[str, str]) -> RequestContext:
        """Return the context of a WebSocket before authentication; no operation uses it."""
        return self._context(ANONYMOUS, headers)

    async def authenticate_socket(
        self, headers: Mapping[str, str], payload: object
    ) -> tuple[Principal, RequestContext]:
        """Authenticate a WebSocket by its `connection_init` payload, or by its headers.

        Raises:
            Unauthenticated, Unavailable: see `Authenticator.principal`.
        """
        if self._sign_in is None:
            return ANONYMOUS, self._context(ANONYMOUS, headers)
        credentials = Credentials.from_payload(payload)
        if not credentials.given:
            credentials = Credentials.from_headers(headers)
        principal = await self.principal(credentials)
        return principal, self._context(principal, headers)

    async def renew(self, principal: Principal, payload: object) -> Principal | None:
        """Return the principal of new credentials of a WebSocket; None if there are none.

        Raises:
            Unauthenticated: the credentials are invalid.
            SignInEnded: they are of another caller, or with other rights: running operations have
                begun with the old ones.
        """
        if self._sign_in is None:
            return None
        credentials = Credentials.from_payload(payload)
        if not credentials.given:
            return None
        other = await self.principal(credentials)
        if (other.name, other.account) != (principal.name, principal.account):
            raise SignInEnded(
                "authentication: another principal, expected that of the connection; connect again"
            )
        same = other.roles == principal.roles and all(
            other.claim(each) == principal.claim(each) for each in self._deciding
        )
        if not same:
            raise SignInEnded(
                "authentication: other roles or claims, expected those of the connection; connect "
                "again"
            )
        return other

    async def principal(self, credentials: Credentials) -> Principal:
        return ANONYMOUS if self._sign_in is None else await self._sign_in.principal(credentials)

    def _context(self, principal: Principal, headers: Mapping[str, str]) -> RequestContext:
        kept = self._kept.get(principal)
        if kept is None:
            kept = self._make(principal)
            kept.sessions = self.sessions
            kept.account = principal.account
            self._kept.put(principal, kept)
        name = principal.name
        if self._author_header is not None:
            name = headers.get(self._author_header)
            if is_reserved_name(name):
                name = None
        key = headers.get("idempotency-key")
        if key is None and name == kept.principal:
            # The executor takes a fresh context of it.
            return kept
        return replace(kept, principal=name, idempotency_key=key)
