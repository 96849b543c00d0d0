"""Parsing of `Retry-After`, and redaction of URLs."""

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
    """The maximum is one hour; an invalid value is ignored."""
    assert _retry_after_s(text) == seconds


def test_a_date_to_wait_for() -> None:
    """A date in the past means now."""
    later = datetime.now(UTC) + timedelta(seconds=100)
    found = _retry_after_s(format_datetime(later, usegmt=True))
    assert found is not None
    assert 90 < found <= 100
    assert _retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


@pytest.mark.parametrize(
    ("url", "redacted"),
    [
        ("https://example.org/a", "https://example.org/…"),
        ("https://example.org", "https://example.org/"),
        ("https://ada:secret@example.org:8443/a?key=secret#secret", "https://example.org:8443/…"),
        ("http://[::1]:9000/", "http://[::1]:9000/"),
    ],
)
def test_secret_parts_of_a_url_are_redacted(url: str, redacted: str) -> None:
    """These are user, password, path and query."""
    assert redact_url(url) == redacted
