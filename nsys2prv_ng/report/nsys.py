"""Finds the nsys of this machine, runs it in a way that it can be ended, and describes what it failed at.

The patterns of its messages match nsys 2022.4 and 2023.4.
"""

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

from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.value_class import ValueClass

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


class Nsys(ValueClass):
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
        self, command: list[str], timeout: float | None = None, on_output: Callable[[bytes], object] = lambda _: None
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


_NEWER = "the report is from a newer Nsight Systems: load that version's module, or set NSYS_HOME to its folder"
_DAMAGED = "the report is damaged or was cut off: copy it again, or capture it again"
_FULL = "free space in the folder of the report, or look at the quota"
_NO_LOCKS = "the file systems of the report and of the temporary folder have no locks: choose another temporary folder"
_REMEDIES = (
    (r"newer than your current version|update your Nsight Systems|newer version", _NEWER),
    (r"Version number is invalid: *20\d\d\W|Version number is invalid *$", _NEWER),
    (
        r"magic number mismatch|decompression failed|ParseException|Failed to read section|Cannot read from stream"
        r"|outside of the allowed range|Version tag is not found|Invalid version prefix"
        r"|Version number is invalid: *(?!20\d\d\W)\S",
        _DAMAGED,
    ),
    (r"database is locked", _NO_LOCKS),
    (r"disk is full|No space left|quota exceeded|Error writing bytes|Cannot finalize Arrow", _FULL),
)
"""Patterns of nsys output, and their remedies. The first match counts."""

_SIGNAL_REMEDIES = {
    int(signal.SIGXFSZ): "a file of the export is larger than the limit of this shell allows: see `ulimit -f`"
}
_INCOMPLETE = re.compile(r"^[^\w\n]*Error writing", re.IGNORECASE | re.MULTILINE)
_ERROR = re.compile(r"^Exportation error: *", re.IGNORECASE)
_PROGRESS = re.compile(r"\[=|\d%|^Processing\b|^Generating\b|^Exporting\b")


class NoLocksError(TranslationError):
    """Failure of nsys to lock its SQLite file: the file system has no locks.

    NVIDIA's release notes list it as a known issue. No other program opens the file, which is in a temporary folder.
    """


def wrote_incompletely(text: str) -> bool:
    """Return whether nsys reports that it could not write, which it may do and still end with exit code 0."""
    return _INCOMPLETE.search(text) is not None


def describe_failure(report: Path, nsys: Nsys, code: int, text: str) -> TranslationError:
    """Return the error of an export, given the exit code and the whole output of nsys.

    It is a ReportError unless the machine is at fault.
    """
    line, remedy = _find_reason(text)
    # A shell between this program and nsys reports a signal as 128 + its number.
    killed = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if killed:
        name = signal.Signals(killed).name if killed in set(signal.Signals) else str(killed)
        what = f"nsys {nsys.version} was killed by signal {name}"
        remedy = remedy or _SIGNAL_REMEDIES.get(killed, "often for lack of memory: export it on a machine with more")
    else:
        what = (
            f"nsys {nsys.version} failed (exit code {code})" if code else f"nsys {nsys.version} wrote no whole export"
        )
    remedy = remedy or "see what `nsys export --type sqlite` says of it; a report that was cut off cannot be read"
    message = f"{report}: {what}: {line or 'it printed nothing'}; {remedy}"
    if remedy == _NO_LOCKS:
        return NoLocksError(message, see=("tmp",))
    return TranslationError(message) if remedy == _FULL else ReportError(message)


def _find_reason(text: str) -> tuple[str, str]:
    """Return the most informative line and its remedy, which is empty if it is not known.

    nsys calls the error that ended it an exportation error and prints it after all other errors. It redraws progress
    after a carriage return.
    """
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if re.search(r"\w", line) and not _PROGRESS.search(line)]
    lines = [line for line in lines if _ERROR.match(line)] + lines
    for pattern, remedy in _REMEDIES:
        known = [line for line in lines if re.search(pattern, line, re.IGNORECASE)]
        if known:
            return _ERROR.sub("", known[0])[:300], remedy
    if lines and _ERROR.match(lines[0]):
        return _ERROR.sub("", lines[0])[:300], ""
    return lines[-1][:300] if lines else "", ""
