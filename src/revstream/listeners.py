"""The public interface for listeners of your own: `revstream serve --listeners module:Class`.

A listener derives from `Handler`. It is made with a `ListenerContext` and receives each `Version`
of its collection, in order and at least once. See docs/how-to/listeners.md.
"""

from __future__ import annotations

from revstream.streams.listeners.consumer import Handler
from revstream.streams.listeners.context import ListenerContext
from revstream.streams.versioning.version import Version

__all__ = ["Handler", "ListenerContext", "Version"]
