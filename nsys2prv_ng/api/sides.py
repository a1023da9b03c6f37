"""Checks the sides of a comparison, and names their traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nsys2prv_ng.api.paths import Reports, list_some_reports, refuse_traces
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import CompareOptions

if TYPE_CHECKING:
    from nsys2prv_ng.summary.numbers.job import JobSummary


def is_saved(side: Sequence[Path] | JobSummary) -> bool:
    """Return whether a side was summed up before."""
    return not isinstance(side, Sequence) or side[0].suffix == ".json"


def refuse_restrictions(sides: Sequence[Sequence[Path] | JobSummary], options: CompareOptions) -> None:
    """Raise UsageError if the user restricts a side that was summed up before."""
    if any(is_saved(side) for side in sides):
        for name in ("time", "steps", "skip_warmup", "step", "nvtx_range", "ranks"):
            if getattr(options, name) not in (None, "", False):
                raise UsageError("saved numbers cannot be restricted; give the reports", parameter=name)


def name_side_traces(folder: Path, labels: Sequence[str], sides: Sequence[Sequence[Path] | JobSummary]) -> list[Path]:
    """Return the file for the trace of each side. Raises UsageError for saved summaries and existing files."""
    from nsys2prv_ng.comparison.side_traces import name_traces

    if any(is_saved(side) for side in sides):
        raise UsageError("traces are made of reports, and a side is a saved summary", parameter="traces")
    files = [folder / name for name in name_traces(labels)]
    if folder.exists() and not folder.is_dir():
        raise UsageError("is no folder; choose another name", parameter="traces", value=str(folder))
    if there := [file for file in files if file.exists()]:
        raise UsageError(
            f"{there[0].name} is there already; choose another folder", parameter="traces", value=str(folder)
        )
    return files


def list_side(side: Reports) -> list[Path]:
    """Return the reports of a side, or its saved summary.

    Raises UsageError for a mixture, and ReportError if none exists: reading another side first may take long.
    """
    given = list_some_reports(side, "sides")
    if not any(path.exists() for path in given):
        from nsys2prv_ng.report.files import miss

        raise miss(given[0])
    refuse_traces(given)
    if len(given) > 1 and (saved := [path for path in given if path.suffix == ".json"]):
        raise UsageError("a side is either reports or one saved summary", parameter="sides", value=str(saved[0]))
    return given
