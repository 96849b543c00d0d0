"""Make the screenshots of the documentation anew: `python -m tools.site.screenshots [NAME]`.

It follows the pages whose path contains NAME, or all that have screenshots, as the tests do.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.site.page import read_page
from tests.site.page_run import followed_page
from tests.site.visits import SCREENSHOTS, VISITS

IMAGES = Path("docs/images")


def main(name: str = "") -> None:
    """Follow the pages, and copy what their visits have shown."""
    shutil.rmtree(SCREENSHOTS, ignore_errors=True)
    IMAGES.mkdir(exist_ok=True)
    for path, visit in VISITS.items():
        if name in path:
            with followed_page(read_page(Path(path), path)) as ports:
                visit(ports)
    for made in sorted(SCREENSHOTS.glob("*.png")):
        shutil.copy(made, IMAGES)


if __name__ == "__main__":
    main(*sys.argv[1:])
