"""Options with which Playwright starts a Chromium that reaches this machine only."""

from __future__ import annotations

import shutil
from typing import Any

__all__ = ["chromium_options"]

CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    # The pages are our own, and a container has no user namespaces.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    # Chromium's background requests, which would fail one by one without a network.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # No access to the network: no name resolves.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def chromium_options() -> dict[str, Any]:
    """Return the arguments of `launch`; without a Chromium of the system, Playwright's is used."""
    return {
        "executable_path": next(filter(None, map(shutil.which, CHROMIUMS)), None),
        "args": ARGUMENTS,
    }
