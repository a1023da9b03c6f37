"""The program as a user starts it: within the process of the tests, or in one of its own where that matters."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

from nsys2prv_ng.cli import program

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


def run(*arguments: object, cwd: Path | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the program in this process: a second less than a process. With options of `subprocess.run`, it is one."""
    if options:
        return run_process(*arguments, cwd=cwd, **options)
    words = ["nsys2prv-ng", *map(str, arguments)]
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors="backslashreplace") for _ in range(2))
    before = Path.cwd()
    try:
        os.chdir(cwd or before)
        with _in_place_of_process(words), contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
            try:
                program.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0
    finally:
        os.chdir(before)
    texts = []
    for stream in (stdout, stderr):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, code, *texts)


@contextlib.contextmanager
def _in_place_of_process(words: list[str]) -> Iterator[None]:
    """Put back what belongs to the whole process: its words, how it ends, what it does on signals, and its collector.

    The program collects garbage rarely, since it ends soon; many runs in one process would leave files open.
    """

    def leave(code: int) -> NoReturn:
        raise SystemExit(code)

    threshold = gc.get_threshold()
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    words_before, hook, program_os = sys.argv, sys.unraisablehook, program.os
    # Processes that read reports leave by the real one.
    program.os = SimpleNamespace(**{**vars(os), "_exit": leave})  # type: ignore[assignment]
    sys.argv = words
    try:
        yield
    finally:
        program.os = program_os
        gc.set_threshold(*threshold)
        sys.argv, sys.unraisablehook = words_before, hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


def run_process(*arguments: object, cwd: Path | None = None, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, for signals, closed streams, limits and another environment."""
    command = [sys.executable, "-m", "nsys2prv_ng", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=300, **options)  # type: ignore[call-overload]
