"""HTTP client of webhooks: signs a message by Standard Webhooks, posts it, and returns the result.

Guarantees: a post ends within its time limit; at most a few KB of an answer are held; redirects are
not followed, since a signature for one receiver is not for another; no reason reveals a secret of
the signature or the URL.
Does not guarantee: that an unanswered message did not arrive.
Source: docs/decisions/0021-sinks.md; https://www.standardwebhooks.com.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
from standardwebhooks import Webhook

from revstream.streams.listeners.webhooks.message import DeliveryOutcome, DeliveryResult, Message

__all__ = ["WebhookClient"]

# Maximum bytes of an answer; beyond it, the connection is closed.
_MOST_BYTES = 8 * 1024
# Maximum wait for the rest of an answer after its status.
_REST_S = 1.0
_QUOTED = 200
# Maximum pause that a receiver can request.
_RETRY_AFTER_MOST_S = 3600.0
# Status codes about the receiver's state or the moment, not about the message.
_PASSING = frozenset({408, 425, 429})


class WebhookClient:
    """Client of one URL. Keeps its connections open between posts.

    Args:
        secrets: `whsec_…`; each signs, so that the receiver can change its own at any time. Empty:
            not
            signed.
        connections: Maximum number of connections.
        timeout_s: Time limit of one post, from the name lookup to the status.

    Raises:
        ValueError: A malformed secret; the message has its position, not its text.
    """

    def __init__(
        self,
        url: str,
        secrets: Sequence[str] = (),
        *,
        connections: int = 32,
        timeout_s: float = 15.0,
    ) -> None:
        self.url = url
        self.signed = bool(secrets)
        self._keys = [Webhook(each) for each in secrets]
        self._connections = connections
        self._timeout = aiohttp.ClientTimeout(
            total=timeout_s, sock_connect=min(5.0, timeout_s), sock_read=timeout_s
        )
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=self._connections),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=self._timeout,
                # An answer that is not decompressed cannot become large.
                auto_decompress=False,
                headers={"User-Agent": "revstream", "Accept-Encoding": "identity"},
            )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, message: Message) -> DeliveryResult:
        """Post a message, between `open` and `close`. Cancellation: safe; it may have arrived."""
        assert self._session is not None
        headers = {**message.headers, **self._signature(message)}
        try:
            async with self._session.post(
                self.url, data=message.body, headers=headers, allow_redirects=False
            ) as response:
                return _result(response, await _read_excerpt(response))
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as exc:
            return DeliveryResult(
                outcome=DeliveryOutcome.AWAY, reason=f"no connection: {_cause(exc)}", at_once=True
            )
        except TimeoutError:
            return DeliveryResult(
                outcome=DeliveryOutcome.FAILED,
                reason=f"no response within {self._timeout.total:g} s, which is the maximum",
            )
        except (aiohttp.ClientError, OSError) as exc:
            reason = f"the connection was lost: {_cause(exc)}"
            return DeliveryResult(outcome=DeliveryOutcome.FAILED, reason=reason, at_once=True)

    def _signature(self, message: Message) -> dict[str, str]:
        if not self._keys:
            return {}
        now = datetime.now(UTC)
        text = message.body.decode()
        return {
            "webhook-id": message.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": " ".join(key.sign(message.id, now, text) for key in self._keys),
        }


async def _read_excerpt(response: aiohttp.ClientResponse) -> str:
    """Read the start of an answer's text, for operators; a complete answer keeps the connection."""
    if response.content.at_eof():
        return ""
    said = b""
    try:
        async with asyncio.timeout(_REST_S):
            while len(said) < _MOST_BYTES:
                more = await response.content.read(_MOST_BYTES - len(said))
                if not more:
                    break
                said += more
            else:
                response.close()
    except (TimeoutError, aiohttp.ClientError, OSError):
        # The status is enough.
        response.close()
    text = " ".join(said[: 4 * _QUOTED].decode("utf-8", "replace").split())
    printable = "".join(each for each in text if each.isprintable())
    return printable if len(printable) <= _QUOTED else f"{printable[: _QUOTED - 1]}…"


def _result(response: aiohttp.ClientResponse, said: str) -> DeliveryResult:
    status = response.status
    if 200 <= status < 300:
        return DeliveryResult(outcome=DeliveryOutcome.TAKEN)
    if 300 <= status < 400:
        return DeliveryResult(
            outcome=DeliveryOutcome.REFUSED,
            reason=f"HTTP {status}: a redirect, which is not followed; correct the URL",
        )
    reason = f"HTTP {status}"
    if 400 <= status < 500 and status not in _PASSING:
        return DeliveryResult(
            outcome=DeliveryOutcome.REFUSED, reason=reason, said=said, gone=status == 410
        )
    pause_s = _retry_after_s(response.headers.get("Retry-After"))
    at_once = pause_s is None and status != 429
    return DeliveryResult(
        outcome=DeliveryOutcome.FAILED,
        reason=reason,
        said=said,
        at_once=at_once,
        retry_after_s=pause_s,
    )


def _retry_after_s(text: str | None) -> float | None:
    """Parse Retry-After (RFC 9110, 10.2.3): seconds, or a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        asked_s = float(text)
    else:
        try:
            asked_s = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(asked_s, 0.0), _RETRY_AFTER_MOST_S)


def _cause(exc: BaseException) -> str:
    """Return the cause without the library's message, which contains the URL."""
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        return "the host name is unknown"
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return "its certificate is not trusted"
    if isinstance(exc, aiohttp.ClientSSLError):
        return "TLS failed"
    if isinstance(exc, TimeoutError):
        return "it took too long"
    if isinstance(exc, aiohttp.ClientResponseError):
        return "the response is not HTTP"
    number = getattr(exc, "errno", None)
    return os.strerror(number) if number else type(exc).__name__
