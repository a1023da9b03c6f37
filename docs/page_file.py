"""Writes a page that a program makes, or checks it: for the programs beside this module."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent


def write_or_check(page: Path, text: str, arguments: Sequence[str], usage: str | None) -> int:
    """Write a page, or with `--check` only say that it differs; return the exit code."""
    if arguments not in ([], ["--check"]):
        print(usage, file=sys.stderr)
        return 2
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    name = page.relative_to(DOCS.parent)
    if arguments:
        print(f"differs: {name}")
        return 1
    page.write_text(text, encoding="utf-8")
    print(f"wrote: {name}")
    return 0
