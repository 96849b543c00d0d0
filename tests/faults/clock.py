"""Wall clocks that jump, for one process each: a preloaded library of a few lines of C (`clock.c`).

Without a C compiler clocks are unchanged, and the run reports that.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

__all__ = ["Clocks"]

SOURCE = Path(__file__).with_name("clock.c")


class Clocks:
    """The clocks of a run's processes, by name; their files are in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._library = self._directory / "clock.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        self.movable = False
        if compiler is not None:
            made = subprocess.run(
                [
                    compiler,
                    "-O2",
                    "-shared",
                    "-fPIC",
                    "-o",
                    str(self._library),
                    str(SOURCE),
                    "-ldl",
                ],
                check=False,
                capture_output=True,
            )
            self.movable = made.returncode == 0

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment variables for a process of this name."""
        if not self.movable:
            return {}
        if not self._file(name).exists():
            self.set(name, 0.0)
        return {"LD_PRELOAD": str(self._library), "FAULTS_CLOCK": str(self._file(name))}

    def set(self, name: str, ahead_s: float) -> None:
        """Set a clock ahead of the real one, or behind it if `ahead_s` is negative."""
        # In place and atomically: the file is mapped.
        with self._file(name).open("r+b" if self._file(name).exists() else "wb") as file:
            file.write(struct.pack("=q", int(ahead_s * 1e9)))

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.clock"
