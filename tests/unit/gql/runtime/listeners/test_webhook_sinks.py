"""Secrets of webhook sinks: valid forms, matching by URL, and redaction."""

from __future__ import annotations

import base64

import click
import pytest

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.listeners.webhook_sinks import secrets_for, secrets_of, sink_name

ONE = "whsec_" + base64.b64encode(b"1" * 24).decode()
TWO = "whsec_" + base64.b64encode(b"2" * 64).decode()
THREE = "whsec_" + base64.b64encode(b"3" * 32).decode()


def test_the_secret_with_the_longest_matching_prefix_signs() -> None:
    """Several for the same prefix all sign, so that a secret can be rotated."""
    found = secrets_of(f"{ONE}, https://example.org/={TWO}")
    assert secrets_for("https://example.org/a", found) == [TWO]
    assert secrets_for("https://example.com/a", found) == [ONE]
    found = secrets_of(f"https://a/={ONE} https://a/={TWO}\n{THREE}")
    assert secrets_for("https://a/x", found) == [ONE, TWO]
    assert secrets_for("https://b/x", found) == [THREE]
    assert secrets_for("https://b/x", secrets_of(None)) == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("hunter2", "no whsec_"),
        ("whsec_hunter2!", "not base64"),
        ("whsec_aHVudGVyMg==", "7 bytes, expected"),
        ("hunter2=" + ONE, "the beginning of a URL"),
        ("whsec_" + base64.b64encode(b"hunter2" * 10).decode(), "70 bytes, expected"),
    ],
)
def test_an_invalid_secret_is_refused_and_not_printed(given: str, problem: str) -> None:
    """The error has its number."""
    with pytest.raises(click.UsageError) as caught:
        secrets_of(f"{TWO},{given}")
    assert "number 2: " in caught.value.message
    assert problem in caught.value.message
    assert given not in caught.value.message
    assert "hunter2" not in caught.value.message


def test_settings_do_not_print_secrets() -> None:
    """The secret's own text form does not either."""
    assert "whsec" not in repr(Settings(sink_secrets=ONE))
    assert "sink_secrets=None" in repr(Settings())
    assert ONE not in repr(secrets_of(ONE))


def test_a_sinks_name_is_stable() -> None:
    """Its lease, its checkpoint and its parked deliveries are stored under it."""
    assert sink_name("products", "https://example.org/changes") == "sink:products:6d56ab48"
