"""Files that come with the program and are no part of its code."""

from __future__ import annotations

from pathlib import Path


def locate_bundled(name: str, in_clone: str) -> Path:
    """Where a file or folder is: within the package where that is installed, in its own place in a clone."""
    installed = Path(__file__).parent / name
    return installed if installed.exists() else Path(__file__).parents[2] / in_clone
