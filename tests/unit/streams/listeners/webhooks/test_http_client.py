"""What is understood of an answer, and what is shown of a URL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from revstream.streams.listeners.webhooks.http_client import _retry_after_s
from revstream.streams.listeners.webhooks.message import redact_url


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(None, None), ("7", 7.0), ("0", 0.0), ("999999", 3600.0), ("soon", None), ("-1", None)],
)
def test_seconds_to_wait(text: str | None, seconds: float | None) -> None:
    """At most an hour; what is neither is as if it were not there."""
    assert _retry_after_s(text) == seconds


def test_a_date_to_wait_for() -> None:
    """In the past it is now."""
    later = datetime.now(UTC) + timedelta(seconds=100)
    found = _retry_after_s(format_datetime(later, usegmt=True))
    assert found is not None
    assert 90 < found <= 100
    assert _retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://example.org/a", "https://example.org/…"),
        ("https://example.org", "https://example.org/"),
        ("https://ada:secret@example.org:8443/a?key=secret#secret", "https://example.org:8443/…"),
        ("http://[::1]:9000/", "http://[::1]:9000/"),
    ],
)
def test_what_may_be_secret_of_a_url_is_not_shown(url: str, shown: str) -> None:
    """User, password, path and query."""
    assert redact_url(url) == shown
