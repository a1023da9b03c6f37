"""Finds the reports of the exercises: for the programs beside this module."""

from __future__ import annotations

import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]


def find_exercises() -> Path:
    """Return the folder of the exercises' reports; unpack them first where that has not been done."""
    folder = ROOT / "exercises"
    if not folder.exists():
        with TemporaryDirectory(prefix=".exercises-", dir=ROOT) as partial:
            subprocess.run(["tar", "-xf", ROOT / "samples/exercises.tar.xz", "-C", partial], check=True)
            with suppress(OSError):  # another process has just done it
                Path(partial, folder.name).rename(folder)
    return folder
