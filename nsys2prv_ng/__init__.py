"""Translate Nsight Systems reports into Paraver traces."""

import os
import tempfile
from pathlib import Path

__version__ = "0.1.0"


def _numba_cache() -> None:
    """Give numba a folder for its compiled code where neither the package nor the home folder can be written.

    Clusters install packages read-only; without any place for the cache numba refuses to compile.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    nearest = next((folder for folder in (home, *home.parents) if folder.exists()), home)
    if not os.access(Path(__file__).parent, os.W_OK) and not os.access(nearest, os.W_OK):
        folder = Path(tempfile.gettempdir()) / f"nsys2prv-ng-{os.getuid()}"
        os.environ.setdefault("NUMBA_CACHE_DIR", str(folder))


_numba_cache()
