"""Start a process on its core, hear what it says, measure what it takes, and end it.

A process says something by writing a JSON object with an `event` on a line of its own: the gateway
in its log, the programs of `benchmarks.programs` on standard output.
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

__all__ = ["Died", "Process", "allow_sockets", "pinned", "python", "spread"]

_ROOT = Path(__file__).parents[1]
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Died(Exception):
    """A process that a benchmark needs has ended; the message holds the last that it wrote."""


@contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """What this thread does or starts within the context runs on these cores; on Linux."""
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
    """As many files as this user may open, for this process and those that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def spread(pid: int, cores: set[int]) -> None:
    """Let a process that runs, with all its threads, have these cores; on Linux."""
    if hasattr(os, "sched_setaffinity"):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module."""
    return [sys.executable, "-m", module, *arguments]


class Process:
    """A command that runs. Use as a context, which ends it."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cores: set[int],
        log: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Args:
        log: what it says comes on standard error.
        environment: what it has beside this process's own.
        """
        self._name = " ".join(command)[:200]
        # Settings of whoever runs the benchmarks are not to change what is measured.
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

    def hear(self, *events: str, timeout_s: float = 120.0) -> dict[str, Any]:
        """The next of these events; others are passed over.

        Raises:
            Died: it ended, or did not say so in time.
        """
        while True:
            try:
                said = self._said.get(timeout=timeout_s)
            except queue.Empty:
                said = None
            if said is None:
                raise Died(f"{self._name} did not say {' or '.join(events)}: {''.join(self._tail)}")
            if said.get("event") in events:
                return said

    def has_said(self, event: str) -> bool:
        """Whether it has, of what has not been heard yet; does not wait.

        Raises:
            Died: it has ended.
        """
        with contextlib.suppress(queue.Empty):
            while True:
                said = self._said.get_nowait()
                if said is None:
                    raise Died(f"{self._name} has ended: {''.join(self._tail)}")
                if said.get("event") == event:
                    return True
        return False

    def tell(self, **facts: Any) -> None:
        """A line of JSON on its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(facts) + "\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        """Close its standard input, upon which a program of ours says its `result` and ends."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.hear("result")

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> None:
        """As a supervisor does."""
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
        """`VmRSS` for what it has now, `VmHWM` for the most that it ever had."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == kind:
                return int(rest.split()[0]) * 1024
        raise Died(f"{self._name} is gone")

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
    """Processor time that it has taken, user and system; 0 where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
