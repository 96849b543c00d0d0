"""Processes on chosen cores: start them, read their messages, measure and end them.

A message is a JSON object with an `event` on a line of its own: the gateway writes them to its log,
the programs of `benchmarks.programs` to standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Failed", "Process", "allow_sockets", "pinned", "python", "spread"]

_ROOT = Path(__file__).parents[1]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    """A benchmark cannot continue; the message has the last output of an ended process."""


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Run this thread, and processes that it starts, on these cores during the context (Linux)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def allow_sockets() -> None:
    """Raise the limit of open files of this process and its children to the user's maximum."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def spread(pid: int, cores: set[int]) -> None:
    """Move a running process, with all its threads, to these cores (Linux)."""
    if hasattr(os, "sched_setaffinity"):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def python(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module."""
    return [sys.executable, "-m", module, *arguments]


class Process:
    """A running command. Use it as a context manager, which ends it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cores: set[int],
        log: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the command.

        Args:
            log: its messages are on standard error.
            environment: additional environment variables.
        """
        self._name = " ".join(command)[:200]
        # Settings in the user's environment must not change the results.
        own = {k: v for k, v in os.environ.items() if not k.startswith("REVSTREAM_")}
        with pinned(cores):
            self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env={**own, **(environment or {})},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL if log else subprocess.PIPE,
                stderr=subprocess.PIPE if log else None,
                text=True,
            )
        self._tail: deque[str] = deque(maxlen=20)
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, args=(log,), daemon=True)
        self._listener.start()
        self.pid = self._process.pid

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def await_event(self, *events: str, timeout_s: float = 120.0) -> dict[str, Any]:
        """Wait for the next of these events; others are skipped.

        Raises:
            Failed: it ended, or did not write one in time.
        """
        while True:
            try:
                said = self._said.get(timeout=timeout_s)
            except queue.Empty:
                said = None
            if said is None:
                raise Failed(
                    f"{self._name} did not say {' or '.join(events)}: {''.join(self._tail)}"
                )
            if said.get("event") in events:
                return said

    def has_event(self, event: str) -> bool:
        """Return whether an unread event has this name, without waiting.

        Raises:
            Failed: it has ended.
        """
        with contextlib.suppress(queue.Empty):
            while True:
                said = self._said.get_nowait()
                if said is None:
                    raise Failed(f"{self._name} has ended: {''.join(self._tail)}")
                if said.get("event") == event:
                    return True
        return False

    def send_json(self, **facts: Any) -> None:
        """Write a line of JSON to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(facts) + "\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        """Close its standard input and return its `result` event, after which it ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.await_event("result")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        """End it as a supervisor does, by SIGTERM."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._listener.join(timeout=5)
        for each in (self._process.stdin, self._process.stdout, self._process.stderr):
            if each is not None:
                each.close()

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def memory_bytes(self, kind: str = "VmRSS") -> int:
        """Return `VmRSS`, the current memory, or `VmHWM`, the peak."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == kind:
                return int(rest.split()[0]) * 1024
        raise Failed(f"{self._name} is gone")

    def _listen(self, log: bool) -> None:
        stream = self._process.stderr if log else self._process.stdout
        assert stream is not None
        for line in stream:
            self._tail.append(line[:2000])
            try:
                self._said.put(json.loads(line))
            except ValueError:
                continue
        self._said.put(None)


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process, user and system; 0 without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
