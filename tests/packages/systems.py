"""Clean systems that debootstrap makes, and images and containers of them; for root."""

from __future__ import annotations

import contextlib
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UBUNTU_KEYS = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
# Options of pip that name where packages come from; they are this machine's own.
PIP_OPTIONS = ("cert", "default-timeout", "extra-index-url", "index-url", "proxy", "trusted-host")
BUILD_TOOLS = ("gcc", "cc", "make", "node", "npm", "git", "mongod")


@dataclass(frozen=True)
class System:
    """A root directory with an operating system, whose programs use this machine's network."""

    root: Path

    def command(self, *arguments: str, user: str = "root") -> list[str]:
        """Return a command that runs a program in the system, with a /proc of its own mount."""
        mount = 'mount -t proc proc "$0/proc" && exec chroot --userspec "$1" "$0" "${@:2}"'
        environment = ("env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp")
        shell = ("unshare", "--mount", "bash", "-c", mount, str(self.root), user)
        return [*shell, *environment, *arguments]

    def run(self, *arguments: str) -> str:
        """Run a program to its end as root and return its output."""
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def found(self, *programs: str) -> list[str]:
        """Return those programs that are on its PATH."""
        script = 'for each in "$@"; do command -v "$each" || true; done'
        return self.run("sh", "-c", script, "sh", *programs).split()


@contextlib.contextmanager
def clean_system(suite: str, *packages: str) -> Iterator[System]:
    """Yield a minimal Debian or Ubuntu with these packages; it is removed at the end."""
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    root = Path(tempfile.mkdtemp(prefix=f"revstream-{suite}-"))
    # Otherwise its users reach nothing in it.
    root.chmod(0o755)
    try:
        target: list[str | Path] = [suite, root]
        if suite == "noble":
            # Debian's debootstrap has neither a script for it nor, as a rule, the keys.
            command += ["--components=main,universe"]
            command += [f"--keyring={UBUNTU_KEYS}" if UBUNTU_KEYS.exists() else "--no-check-gpg"]
            target += ["", "/usr/share/debootstrap/scripts/gutsy"]
        done = subprocess.run([*command, *target], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        _use_network_of_this_machine(root)
        yield System(root)
    finally:
        shutil.rmtree(root)


def _use_network_of_this_machine(root: Path) -> None:
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        shutil.copy(name, root / name.lstrip("/"))
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    # Variables, which have precedence, are listed first.
    options: dict[str, str] = {}
    for line in listed.splitlines():
        name, _, quoted = line.partition("=")
        option, value = name.rpartition(".")[2], quoted.strip("'")
        if option in PIP_OPTIONS:
            options.setdefault(option, value)
    if "cert" in options:
        copy = root / options["cert"].lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(options["cert"], copy)
    lines = [f"{option} = {value}\n" for option, value in options.items()]
    (root / "etc" / "pip.conf").write_text("".join(["[global]\n", *lines]))


@dataclass(frozen=True)
class Engine:
    """buildah and podman with a store of their own, without the network of a bridge."""

    store: Path

    def run(self, program: str, *arguments: str | Path) -> str:
        """Run `buildah` or `podman` to its end and return its output."""
        done = subprocess.run(
            self.command(program, *arguments), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    def command(self, program: str, *arguments: str | Path) -> list[str | Path]:
        options: list[str | Path] = ["--storage-driver", "vfs", "--root", self.store / "images"]
        options += ["--runroot", self.store / "run"]
        if program == "podman":
            options += ["--runtime", "runc", "--cgroup-manager", "cgroupfs"]
        return [program, *options, *arguments]

    def image_of(self, system: System, name: str) -> None:
        """Make an image of a system's files."""
        container = self.run("buildah", "from", "scratch").strip()
        self.run("buildah", "add", "--quiet", container, system.root, "/")
        self.run("buildah", "commit", "--quiet", "--rm", container, name)

    @contextlib.contextmanager
    def container(self, image: str, *options: str, command: tuple[str, ...] = ()) -> Iterator[str]:
        """Yield the id of a container of a running container, on the network of this machine."""
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        limits = ("--ulimit", f"nofile={files}:{files}", "--ulimit", "nproc=4096:4096")
        container = self.run(
            "podman", "run", "--detach", "--network", "host", *limits, *options, image, *command
        ).strip()
        try:
            yield container
        finally:
            self.run("podman", "rm", "--force", "--time", "0", container)


@contextlib.contextmanager
def container_engine() -> Iterator[Engine]:
    """Yield an engine whose images are removed at the end."""
    with tempfile.TemporaryDirectory(prefix="revstream-images-") as name:
        yield Engine(Path(name))
