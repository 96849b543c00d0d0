"""List the blocks that are not run, with their reasons: `python -m tests.site`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tests.site.test_pages import PAGES


def skipped() -> Iterator[str]:
    for page in PAGES:
        for step in page.steps:
            if step.kind == "skip":
                yield f"{page.name}:{step.block.line}: {step.block.rest}\n"


if __name__ == "__main__":
    sys.stdout.writelines(skipped())
