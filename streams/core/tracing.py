"""Spans of this process's work, for a tracer that the composition root installs.

Without a tracer nothing is recorded and no work is done for it: callers ask `installed()` first.
Tracing never changes what is done: a tracer raises nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

__all__ = ["Attributes", "Kind", "Span", "Tracer", "install", "installed"]

Attributes = Mapping[str, str | int | float | bool]
"""Facts of a span, named by OpenTelemetry's semantic conventions; no contents of documents."""

Kind = Literal["server", "client", "internal"]


class Span(Protocol):
    """Interval of work, and its facts."""

    @property
    def traceparent(self) -> str | None:
        """Return the span as the parent of spans elsewhere; None where it is not recorded."""

    def rename(self, name: str) -> None: ...

    def set(self, attributes: Attributes) -> None: ...

    def fail(self, kind: str, reason: str = "") -> None:
        """Mark the work as failed.

        Args:
            kind: class of the error, of which there are few.
            reason: text without contents of documents and without secrets.
        """

    def drop(self) -> None:
        """Record nothing: there was no such work."""

    def end(self) -> None: ...


class Tracer(Protocol):
    """Recorder of spans."""

    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: Kind = "internal",
        parent: str | None = None,
        links: Sequence[str] = (),
    ) -> AbstractContextManager[Span]:
        """Record the work inside the context, which becomes the running span.

        While it is recorded, `TRACEPARENT` names it. An exception marks it as failed, by the class.

        Args:
            parent: a `traceparent`. Without it, the running span, else that of `TRACEPARENT`.
            links: `traceparent`s of the work that this one is for.
        """

    def command(self, name: str, attributes: Attributes) -> Span | None:
        """Begin a span below the running one, for a call to another process.

        None where nothing is running that is recorded, so that work in the background, which never
        ends, makes no traces.
        """

    def running(self) -> Span:
        """Return the running span."""


_tracers: list[Tracer] = []


def install(tracer: Tracer | None) -> None:
    """Have all work of this process recorded by a tracer from now on; None: by none."""
    _tracers[:] = [] if tracer is None else [tracer]


def installed() -> Tracer | None:
    return _tracers[0] if _tracers else None
