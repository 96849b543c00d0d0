"""From a request to what it can reach: who sends it, and the services as they are for him.

What is made for a caller is kept under his sign-in, so that the next request of the same token
finds it.
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
    """Args:
    sign_in: None where everyone is served as nobody known.
    make: a context for a caller, whose services are within his scope.
    author_header: names the author where nobody signs in.
    deciding: the claims that row rules name.
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

    async def of_request(self, headers: Mapping[str, str]) -> RequestContext:
        """Raises:
        Unauthenticated, Unavailable: see `Authenticator.principal`.
        """
        known = self.known(headers)
        if known is not None:
            return known
        principal = await self.principal(Credentials.from_headers(headers))
        return self._context(principal, headers)

    def known(self, headers: Mapping[str, str]) -> RequestContext | None:
        """The same, where nobody has to look closer."""
        principal = ANONYMOUS if self._sign_in is None else self._sign_in.known(headers)
        return None if principal is None else self._context(principal, headers)

    def of_socket(self, headers: Mapping[str, str]) -> RequestContext:
        """Before it has been introduced: nothing is asked with it."""
        return self._context(ANONYMOUS, headers)

    async def introduced(
        self, headers: Mapping[str, str], payload: object
    ) -> tuple[Principal, RequestContext]:
        """Who a socket is of, by what its client says, or has sent headers with.

        Raises:
            Unauthenticated, Unavailable.
        """
        if self._sign_in is None:
            return ANONYMOUS, self._context(ANONYMOUS, headers)
        credentials = Credentials.from_payload(payload)
        if not credentials.given:
            credentials = Credentials.from_headers(headers)
        principal = await self.principal(credentials)
        return principal, self._context(principal, headers)

    async def renewed(self, principal: Principal, payload: object) -> Principal | None:
        """The sign-in that takes the place of another one; None where none was sent.

        Raises:
            Unauthenticated: it is no good.
            SignInEnded: it is of somebody else, or with other rights: what runs was begun with the
                old ones.
        """
        if self._sign_in is None:
            return None
        credentials = Credentials.from_payload(payload)
        if not credentials.given:
            return None
        other = await self.principal(credentials)
        if (other.name, other.account) != (principal.name, principal.account):
            raise SignInEnded("this is the sign-in of another one; connect again")
        same = other.roles == principal.roles and all(
            other.claim(each) == principal.claim(each) for each in self._deciding
        )
        if not same:
            raise SignInEnded("what you may see has changed; connect again")
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
            # Whoever executes takes a fresh one of it.
            return kept
        return replace(kept, principal=name, idempotency_key=key)
