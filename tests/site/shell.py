"""One bash session, whose folder and variables are kept from block to block."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.eventually import wait_until

__all__ = ["Background", "Ended", "Shell"]

STOP_S = 30.0
"""A command that runs longer after SIGTERM is killed, and the page fails."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A block that was run: its exit code, and what it wrote to stdout and stderr."""

    code: int
    output: str


class Background:
    """A command that stays: a process group whose output goes to a file."""

    def __init__(self, group: int, log: Path) -> None:
        self._group = group
        self._log = log

    @property
    def output(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def alive(self) -> bool:
        """Return whether a process of the group runs."""
        try:
            os.killpg(self._group, 0)
        except ProcessLookupError:
            return False
        return True

    def stop(self) -> bool:
        """Send SIGTERM and wait for the end; returns False if it had to be killed."""
        try:
            os.killpg(self._group, signal.SIGTERM)
            wait_until(lambda: not self.alive, within_s=STOP_S)
        except ProcessLookupError:
            return True
        except AssertionError:
            os.killpg(self._group, signal.SIGKILL)
            return False
        return True


class Shell:
    """The session. `folder` is its current folder; `scripts` takes files of the protocol.

    bash reads one command per block from its standard input, sources the block's text from a file,
    and writes exit code and folder to a pipe.
    """

    def __init__(self, folder: Path, scripts: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self._scripts = scripts
        self._count = 0
        self._status, status = os.pipe()
        self._status_fd = status
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[status],
            start_new_session=True,
        )
        os.close(status)

    def run(self, text: str, *, within_s: float, keep: bool = True) -> Ended:
        """Run a block until its first command that fails.

        Args:
            text: the block.
            within_s: a block that takes longer fails.
            keep: changes of the folder and of variables stay, and a failure ends the session;
                otherwise the block runs in a session below this one.
        """
        script, output = self._write(text)
        body = f'. "{script}" {self._redirections(output)}'
        body = f"set -e; {body}; set +e" if keep else f"( set -e; {body} )"
        answer = self._send(body, "$?", within_s)
        code = self._bash.wait() if answer is None else answer
        return Ended(code, output.read_text(encoding="utf-8", errors="replace"))

    def start(self, text: str) -> Background:
        """Start a block in the background, in a process group of its own."""
        script, output = self._write(text)
        body = f'set -m; ( . "{script}" ) {self._redirections(output)} & set +m'
        group = self._send(body, "$!", 10)
        assert group is not None, "bash has ended"
        return Background(group, output)

    def close(self) -> None:
        """End bash and what it still runs."""
        assert self._bash.stdin is not None
        if self._bash.poll() is None:
            os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        self._bash.stdin.close()
        os.close(self._status)

    def _redirections(self, output: Path) -> str:
        # Without the pipe: a process that a block leaves behind would keep it open.
        return f'</dev/null >"{output}" 2>&1 {self._status_fd}>&-'

    def _write(self, text: str) -> tuple[Path, Path]:
        self._count += 1
        script = self._scripts / f"{self._count}.sh"
        script.write_text(text, encoding="utf-8")
        output = self._scripts / f"{self._count}.out"
        output.touch()
        return script, output

    def _send(self, command: str, value: str, within_s: float) -> int | None:
        """Return the value after the command, or None if bash has ended."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f'{command}; echo "{value} $PWD" >&{self._status_fd}\n'.encode())
        self._bash.stdin.flush()
        deadline, answer = time.monotonic() + within_s, b""
        while not answer.endswith(b"\n"):
            ready, _, _ = select.select([self._status], [], [], deadline - time.monotonic())
            if not ready:
                raise TimeoutError(f"runs for more than {within_s:g} s")
            part = os.read(self._status, 65536)
            if not part:
                return None
            answer += part
        number, _, folder = answer.decode().strip().partition(" ")
        self.folder = Path(folder)
        return int(number)
