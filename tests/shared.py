"""What one worker of a test run makes, and the others take."""

from __future__ import annotations

import fcntl
import hashlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")

FOLDER: Path | None = None
"""The folder that the workers of this run share; None without workers (tests/conftest.py sets it)."""


def share(key: str, make: Callable[[], Made]) -> Made:
    """Return what the first worker that needs it has made; the others wait for it."""
    if FOLDER is None:
        return make()
    path = FOLDER / hashlib.sha256(key.encode()).hexdigest()
    with path.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        if kept := file.read():
            found: Made = pickle.loads(kept)
            return found
        made = make()
        file.write(pickle.dumps(made))
    return made
