"""Bring npm's libraries into the site, which then loads nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

INSTALLED = Path(__file__).parent / "node_modules"

# Names that mkdocs.yml gives them, and their files.
LIBRARIES = {
    "assets/mermaid.min.js": INSTALLED / "mermaid" / "dist" / "mermaid.min.js",
    "assets/iframe-worker.js": INSTALLED / "iframe-worker" / "shim" / "index.js",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add each library as a file of the site."""
    for name, path in LIBRARIES.items():
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_post_page(output: str, config: MkDocsConfig, **_: object) -> str:
    """Leave the 3 MB of Mermaid out of a page without a diagram."""
    if '<pre class="mermaid">' in output:
        return output
    return re.sub(r'\s*<script src="[^"]*assets/(mermaid\.min|diagrams)\.js"></script>', "", output)
