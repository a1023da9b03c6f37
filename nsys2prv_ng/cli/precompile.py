"""The command precompile."""

from __future__ import annotations

import time


def precompile() -> None:
    """Compile all numba kernels now, so that no later run has to. For a site: once, as the user who installed.

    The machine code stays beside the program, or in $NUMBA_CACHE_DIR, or else in the user's cache folder.
    """
    from nsys2prv_ng.errors import TranslationError, escape_unprintable
    from nsys2prv_ng.runtime.precompile import compile_all, find_folder

    folder = find_folder()
    if folder is None:
        raise TranslationError("no folder to keep machine code; set NUMBA_CACHE_DIR to one that only you can write")
    start = time.monotonic()
    kernels = compile_all()
    when = f"compiled in {time.monotonic() - start:.0f} s" if kernels.compiled else "compiled before"
    print(escape_unprintable(f"{kernels.total} kernels {when}; their machine code is in {folder}"))
