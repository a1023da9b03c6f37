"""Translate Nsight Systems reports into Paraver traces."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

__version__ = "0.1.0"


def _numba_cache() -> None:
    """Give numba a folder for its compiled code where neither the package nor the home folder can be written.

    Clusters install packages read-only; without any place for the cache numba refuses to compile. The folder is the
    user's own and new for each run: what lies there is executed, so a known name that others may take is no choice.
    """
    try:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a user without a home
        home = Path("/nonexistent")
    nearest = next(folder for folder in (home, *home.parents) if folder.exists())
    writable = any(os.access(folder, os.W_OK) for folder in (Path(__file__).parent, nearest))
    if not writable and "NUMBA_CACHE_DIR" not in os.environ:
        os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="nsys2prv-ng-")
        atexit.register(shutil.rmtree, os.environ["NUMBA_CACHE_DIR"], ignore_errors=True)


_numba_cache()
