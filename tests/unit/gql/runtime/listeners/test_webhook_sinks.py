"""The secrets of sinks: what may be written, which sink gets which, and that none is ever shown."""

from __future__ import annotations

import base64

import click
import pytest

from revstream.gql.runtime.configuration.settings import Settings
from revstream.gql.runtime.listeners.webhook_sinks import secrets_for, secrets_of, sink_name

ONE = "whsec_" + base64.b64encode(b"1" * 24).decode()
TWO = "whsec_" + base64.b64encode(b"2" * 64).decode()
THREE = "whsec_" + base64.b64encode(b"3" * 32).decode()


def test_the_secret_with_the_longest_beginning_of_the_url_signs() -> None:
    """Several for the same one all do, as while a secret is being changed."""
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
        ("hunter2", "it has no whsec_"),
        ("whsec_hunter2!", "is not base64"),
        ("whsec_aHVudGVyMg==", "it has 7 bytes"),
        ("hunter2=" + ONE, "the beginning of a URL"),
        ("whsec_" + base64.b64encode(b"hunter2" * 10).decode(), "it has 70 bytes"),
    ],
)
def test_a_secret_that_is_none_is_refused_without_being_told(given: str, problem: str) -> None:
    """It is named by its place."""
    with pytest.raises(click.UsageError) as caught:
        secrets_of(f"{TWO},{given}")
    assert "number 2 cannot be used: " in caught.value.message
    assert problem in caught.value.message
    assert given not in caught.value.message
    assert "hunter2" not in caught.value.message


def test_settings_do_not_show_them() -> None:
    """Nor do secrets themselves."""
    assert "whsec" not in repr(Settings(sink_secrets=ONE))
    assert "sink_secrets=None" in repr(Settings())
    assert ONE not in repr(secrets_of(ONE))


def test_a_sinks_name_is_for_ever() -> None:
    """Its lease, its place and what it has set aside are stored under it."""
    assert sink_name("products", "https://example.org/changes") == "sink:products:6d56ab48"
