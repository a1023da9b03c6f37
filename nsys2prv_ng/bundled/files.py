"""Finds the files that come with the program beside its code."""

from __future__ import annotations

from pathlib import Path


def locate_bundled(name: str, in_clone: str) -> Path:
    """Return the path of a file or folder: inside an installed package, or at `in_clone` in a clone."""
    installed = Path(__file__).parent / name
    return installed if installed.exists() else Path(__file__).parents[2] / in_clone
