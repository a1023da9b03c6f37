"""Finds the nsys of this machine, and runs it in a way that it can be ended."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.light_dataclass import dataclass

# Where installers put nsys. CUDA, the HPC SDK and Nsight Compute each include an nsys.
INSTALL_FOLDERS = (
    "/opt/nvidia/nsight-systems/*",
    "/opt/nvidia/nsight-systems-cli/*",
    "/opt/nvidia/nsight-compute/*/host",
    "/opt/nvidia/hpc_sdk/Linux_*/*/profilers/Nsight_Systems",
    "/usr/local/cuda*",
    "/usr/local/cuda*/nsight-systems-*",
    "/usr/lib/nsight-systems",
)
_PROGRAMS = ("nsys", "bin/nsys", "target-linux-*/nsys")
"""Where nsys is in each of them, and in NSYS_HOME."""

NORMALISE = "--ts-normalize"
"""Option of nsys export for UTC instead of times from the start: by vClock if the report contains vClock data."""
_FIRST_WITH_VCLOCK = (2026, 4)

_VERSION_TIMEOUT = 120
"""Seconds that `nsys --version` may take: the first start is slow on the file system of a cluster."""


@dataclass(frozen=True)
class Nsys:
    """An nsys that runs on this machine. `version` is the full version, such as 2024.2.3.38."""

    path: Path
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """Year, number and update, which decide the form of an export."""
        return parse_release(self.version)


def find_nsys() -> Nsys | None:
    """Return the nsys in NSYS_HOME, else in PATH, else the newest in the usual install folders; None if there is none.

    A program that does not print its version (another architecture, a broken install) does not count.
    """
    home, on_path = os.environ.get("NSYS_HOME"), shutil.which("nsys")
    chosen = _list_programs(Path(home).expanduser()) if home else []
    for path in [*chosen, *([Path(on_path)] if on_path else [])]:
        if nsys := _ask_version(path):
            return nsys
    folders = (folder for pattern in INSTALL_FOLDERS for folder in sorted(Path("/").glob(pattern[1:])))
    installed = {os.path.realpath(path): path for folder in folders for path in _list_programs(folder)}
    working = [nsys for path in installed.values() if (nsys := _ask_version(path))]
    return max(working, key=lambda nsys: _parse_numbers(nsys.version), default=None)


def _list_programs(folder: Path) -> list[Path]:
    return [path for pattern in _PROGRAMS for path in sorted(folder.glob(pattern))]


class Children:
    """Child programs, started by any thread, that an interrupt can end all at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def end(self) -> None:
        """Kill the programs with everything that they started; no program can be started from now on."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _kill(process)

    def run(
        self,
        command: list[str],
        timeout: float | None = None,
        on_output: Callable[[bytes], object] = lambda _: None,
    ) -> tuple[int, str]:
        """Run a command; return its exit code (-N for signal N, also after `timeout` seconds) and all of its output.

        `on_output` is called with each piece of the output. An interrupt kills the program. Raises TranslationError for
        a command that cannot be started.
        """
        process = self._start(command)
        timer = threading.Timer(timeout, _kill, [process]) if timeout is not None else None
        pieces = []
        try:
            if timer:
                timer.start()
            assert process.stdout is not None
            while piece := os.read(process.stdout.fileno(), 1 << 16):
                pieces.append(piece)
                on_output(piece)
            process.wait()
        except BaseException:
            _kill(process)
            raise
        finally:
            if timer:
                timer.cancel()
            with process, self._lock:
                self._running.discard(process)
        return process.returncode, b"".join(pieces).decode("utf-8", "replace")

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._ended:
                raise TranslationError(f"{command[0]}: not started, as the translation ends")
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise TranslationError(
                    f"{command[0]}: cannot be started: {error.strerror}; set NSYS_HOME to another"
                ) from error
            self._running.add(process)
            return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program with its group, even if it has ended: nothing waits for it before its output has ended."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


@functools.lru_cache(maxsize=8)
def read_export_help(nsys: Path) -> str:
    """Return the help text of `nsys export`."""
    return Children().run([str(nsys), "export", "--help"])[1]


def knows_vclock(nsys: Nsys) -> bool:
    """Return whether nsys exports vClock times if a report contains them."""
    return nsys.release >= _FIRST_WITH_VCLOCK and NORMALISE in read_export_help(nsys.path)


def _ask_version(path: Path) -> Nsys | None:
    """Return the nsys at `path`; None if it does not print its version."""
    if not (path.is_file() and os.access(path, os.X_OK)):
        return None
    try:
        code, text = Children().run([str(path), "--version"], timeout=_VERSION_TIMEOUT)
    except TranslationError:
        return None
    match = re.search(r"\b20\d\d(?:\.\d+)+", text)
    return Nsys(path.absolute(), match.group()) if match and code == 0 else None


def _parse_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def parse_release(version: str) -> tuple[int, ...]:
    """Return the first three numbers of a version: 2025.3.2.0 and 2025.3.2 export the same."""
    return (*_parse_numbers(version), 0, 0, 0)[:3]
