"""From a report (.nsys-rep) to its SQLite export, made by the nsys of this machine.

The export stays beside the report, so that the next translation need not make it again. It is written under a temporary
name and renamed when it is complete: a failed or interrupted export leaves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from nsys2prv_ng.errors import TranslationError

# Where installers put nsys. CUDA, the HPC SDK and Nsight Compute bring one of their own.
INSTALL_PATTERNS = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/target-linux-*/nsys",
    "/opt/nvidia/nsight-compute/*/host/target-linux-*/nsys",
    "/opt/nvidia/hpc_sdk/Linux_*/*/profilers/Nsight_Systems/bin/nsys",
    "/opt/nvidia/hpc_sdk/Linux_*/*/profilers/Nsight_Systems/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/local/cuda*/nsight-systems-*/bin/nsys",
    "/usr/local/cuda*/nsight-systems-*/target-linux-*/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
    "/usr/lib/nsight-systems/target-linux-*/nsys",
)
_HOME_PATTERNS = ("nsys", "bin/nsys", "target-linux-*/nsys")

# Options that newer versions have and that keep what they drop by default: the option and, in the export's own
# metadata, whether it was given.
_COMPLETE = {"--include-blobs": "EXPORT_PARAM_INCLUDE_BLOBS", "--include-json": "EXPORT_PARAM_INCLUDE_JSON"}
_METADATA_TABLES = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""What the export says of itself: from 2023 on, and before."""

_REMEDIES = (
    (
        r"update your Nsight Systems|Version number is invalid|newer version",
        "the report is from a newer Nsight Systems: load that version's module, or set NSYS_HOME to its folder",
    ),
    (r"disk is full|No space left|quota exceeded", "free space in the folder of the report"),
)
_PROGRESS = re.compile(r"\[=|\d%|^Processing\b|^Generating\b|^Exporting\b")
_VERSION_TIMEOUT = 120
"""Seconds that `nsys --version` may take: on a cluster's file system the first start is slow."""


@dataclass(frozen=True)
class Nsys:
    """An nsys that runs on this machine. `version` is all of its numbers, such as 2024.2.3.38."""

    path: Path
    version: str

    @property
    def release(self) -> tuple[int, ...]:
        """Year, number and update: what decides the form of an export."""
        return _release(self.version)


def find_nsys() -> Nsys | None:
    """The nsys to export with, or None: that of NSYS_HOME, else of PATH, else the newest of the usual install folders.

    Programs that do not tell their version (another architecture, a broken install) do not count.
    """
    home = os.environ.get("NSYS_HOME")
    if home:
        inside = [path for pattern in _HOME_PATTERNS for path in sorted(Path(home).expanduser().glob(pattern))]
        for path in inside:
            if nsys := _ask_version(path):
                return nsys
    on_path = shutil.which("nsys")
    if on_path and (nsys := _ask_version(Path(on_path))):
        return nsys
    installed = {path.resolve(): path for pattern in INSTALL_PATTERNS for path in sorted(_glob(pattern))}
    found = [nsys for path in installed.values() if (nsys := _ask_version(path))]
    return max(found, key=lambda nsys: _numbers(nsys.version), default=None)


def export_sqlite(report: Path, out_folder: Path, nsys: Nsys | None = None) -> Path:
    """The path of the report's SQLite export, which is made unless a good one is there.

    The export is `<report's stem>.sqlite` beside the report. Where that folder cannot be written, it goes to
    `out_folder` with a hash of the report's path in its name, since reports of several folders may have one name. An
    export that is there is good if it is newer than the report and made by the same version of nsys, with all that this
    version can export; without any nsys, being newer is enough. A file in that place which is no nsys export is never
    overwritten.

    `nsys` is the one to use, by default `find_nsys()`. Raises TranslationError with a remedy if the report cannot be
    exported.
    """
    if not report.is_file():
        raise TranslationError(f"{report}: no such report")
    report = report.absolute()
    nsys = nsys or find_nsys()
    beside = report.with_suffix(".sqlite")
    digest = hashlib.sha256(os.fsencode(report)).hexdigest()[:8]
    elsewhere = out_folder.absolute() / f"{report.stem}-{digest}.sqlite"
    for target in (beside, elsewhere):
        if _is_good(target, report, nsys):
            return target
    if nsys is None:
        raise _no_nsys(report, beside)
    if _export_to(beside, report, nsys):
        return beside
    _make_folder(report, out_folder)
    if _export_to(elsewhere, report, nsys):
        return elsewhere
    raise TranslationError(
        f"{report}: neither its folder nor {out_folder} can be written to keep its export; name another output folder"
    )


def _export_to(target: Path, report: Path, nsys: Nsys) -> bool:
    """Whether the export could be made here: False where the folder cannot be written."""
    try:
        # A folder of its own also takes the files that SQLite keeps beside its database.
        work = Path(tempfile.mkdtemp(prefix=".nsys2prv-export-", dir=target.parent))
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return False
        raise TranslationError(f"{report}: cannot write its export in {target.parent}: {error.strerror}") from error
    try:
        _refuse_foreign(target, report)
        _run_export(nsys, report, work / target.name)
        _refuse_foreign(target, report)  # an export takes minutes
        (work / target.name).replace(target)
    except OSError as error:
        raise TranslationError(f"{report}: cannot keep its export as {target}: {error.strerror}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return True


def _run_export(nsys: Nsys, report: Path, output: Path) -> None:
    """Let nsys write `output`; raises TranslationError unless it is there and is an export."""
    command = [str(nsys.path), "export", "--type", "sqlite", "--force-overwrite", "true", "--output", str(output)]
    command += [f"{option}=true" for option in _COMPLETE if option in _export_help(nsys.path)]
    code, text = _run([*command, str(report)])
    if code == 0 and _metadata(output) is not None:
        return
    line = _last_meaningful_line(text)
    # A shell between us and nsys reports a signal as 128 + its number.
    killed = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if killed:
        name = signal.Signals(killed).name if killed in set(signal.Signals) else str(killed)
        what = f"nsys {nsys.version} was killed by signal {name}"
        remedy = "often for lack of memory: export it on a machine with more"
    else:
        what = f"nsys {nsys.version} failed (exit code {code})" if code else f"nsys {nsys.version} wrote no export"
        remedy = "see what `nsys export --type sqlite` says of it; a report that was cut off cannot be read"
    for pattern, known in _REMEDIES:
        if re.search(pattern, text, re.IGNORECASE):
            remedy = known
    raise TranslationError(f"{report}: {what}: {line or 'it said nothing'}; {remedy}")


def _is_good(export: Path, report: Path, nsys: Nsys | None) -> bool:
    if not export.is_file() or export.stat().st_mtime_ns <= report.stat().st_mtime_ns:
        return False
    metadata = _metadata(export)
    if metadata is None or nsys is None:
        return metadata is not None
    if _release(metadata.get("EXPORT_PRODUCT_VERSION") or "") != nsys.release:
        return False
    # `nsys stats` and `nsys profile --export` leave an export without NVTX payloads in the same place.
    dropped = [option for option, parameter in _COMPLETE.items() if metadata.get(parameter) == "false"]
    return not any(option in _export_help(nsys.path) for option in dropped)


def _metadata(path: Path) -> dict[str, str | None] | None:
    """What an export says of itself, None if the file is not an nsys export."""
    if not path.is_file():
        return None
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            own = [table for table in _METADATA_TABLES if table in tables]
            if not own or "StringIds" not in tables:
                return None
            return dict(database.execute(f"SELECT name, value FROM {own[0]}"))
    except sqlite3.Error:
        return None


def _refuse_foreign(target: Path, report: Path) -> None:
    if os.path.lexists(target) and _metadata(target) is None:
        raise TranslationError(
            f"{target}: not an nsys export, but in the place of the export of {report.name}; move it away or delete it"
        )


def _no_nsys(report: Path, beside: Path) -> TranslationError:
    home = os.environ.get("NSYS_HOME")
    looked = f"NSYS_HOME ({home or 'not set'}), PATH, /opt/nvidia, /usr/local/cuda*, /usr/lib/nsight-systems"
    by_hand = f'nsys export --type sqlite --output "{beside.name}" "{report.name}"'
    there = ""
    if _metadata(beside) is not None:
        there = f"; {beside.name} is older than the report: `touch` it if it is the report's"
    elif beside.exists():
        there = f"; {beside.name} is not an nsys export"
    return TranslationError(
        f"{report}: no nsys to export it with (looked in {looked}){there}; load the nsight-systems module, "
        f"set NSYS_HOME to its folder, or export it where nsys is: {by_hand}"
    )


def _make_folder(report: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TranslationError(
            f"{report}: its folder cannot be written, and {folder} cannot be made to keep its export: "
            f"{error.strerror}; name another output folder"
        ) from error


@functools.lru_cache(maxsize=8)
def _export_help(nsys: Path) -> str:
    return _run([str(nsys), "export", "--help"])[1]


def _ask_version(path: Path) -> Nsys | None:
    """The nsys at `path`, or None if it does not tell its version."""
    if not (path.is_file() and os.access(path, os.X_OK)):
        return None
    try:
        code, text = _run([str(path), "--version"], timeout=_VERSION_TIMEOUT)
    except (TranslationError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\b20\d\d(?:\.\d+)+", text)
    return Nsys(path.absolute(), match.group()) if match and code == 0 else None


def _run(command: list[str], timeout: float | None = None) -> tuple[int, str]:
    """Exit code and all output of a command. If we are interrupted, it and its children are killed."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise TranslationError(
            f"{command[0]}: cannot be started: {error.strerror}; set NSYS_HOME to another"
        ) from error
    with process:
        try:
            text = process.communicate(timeout=timeout)[0]
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return process.returncode, text


def _last_meaningful_line(text: str) -> str:
    """A line whose remedy is known, else the last one that is not progress; nsys redraws progress after a return."""
    lines = [line.strip() for line in re.split(r"[\r\n]+", text)]
    lines = [line for line in lines if re.search(r"\w", line)]
    known = [line for line in lines for pattern, _ in _REMEDIES if re.search(pattern, line, re.IGNORECASE)]
    said = known or [line for line in lines if not _PROGRESS.search(line)]
    return said[-1][:300] if said else ""


def _glob(pattern: str) -> list[Path]:
    return list(Path("/").glob(pattern.lstrip("/")))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _release(version: str) -> tuple[int, ...]:
    """The first three numbers: 2025.3.2.0 and 2025.3.2 export the same."""
    return (*_numbers(version), 0, 0, 0)[:3]
