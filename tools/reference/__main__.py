"""Write the generated parts of the reference pages: `make reference`."""

from __future__ import annotations

import sys

from tools.reference.pages import FOLDER, generate

for path in sorted(FOLDER.glob("*.md")):
    before = path.read_text(encoding="utf-8")
    after = generate(before)
    if after != before:
        path.write_text(after, encoding="utf-8")
        sys.stdout.write(f"written: docs/reference/{path.name}\n")
