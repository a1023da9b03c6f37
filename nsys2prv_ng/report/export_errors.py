"""Describes failed exports: what nsys printed, and the remedy. The patterns match nsys 2022.4 and 2023.4."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from nsys2prv_ng.errors import ReportError, TranslationError
from nsys2prv_ng.report.nsys import Nsys

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
    int(signal.SIGXFSZ): "a file of the export is larger than the limit of this shell allows: see `ulimit -f`",
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
