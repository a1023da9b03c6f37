"""Checks the sides of a comparison and their captures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar, overload

from nsys2prv_ng.api.paths import Reports, list_some_reports, refuse_traces
from nsys2prv_ng.comparison.sides import SUMMARY
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.options.calls import CompareOptions

if TYPE_CHECKING:
    from nsys2prv_ng.summary.job import JobSummary

Capture: TypeAlias = "list[Path] | JobSummary"
"""The reports of a capture, its saved summary, or its summary."""
GivenSide: TypeAlias = "Reports | JobSummary | Iterable[Reports | JobSummary]"
"""A side as users give it: a capture, the folder of a run, or a list of captures."""
Keywords = ParamSpec("Keywords")
Answer = TypeVar("Answer", covariant=True)


class TakesSides(Protocol[Keywords, Answer]):
    """A call on two sides, or on a list of sides."""

    @overload
    def __call__(self, sides: Iterable[GivenSide], *args: Keywords.args, **options: Keywords.kwargs) -> Answer: ...
    @overload
    def __call__(
        self, sides: GivenSide, other: GivenSide, *args: Keywords.args, **options: Keywords.kwargs
    ) -> Answer: ...


def list_sides(sides: Iterable[GivenSide] | GivenSide, other: GivenSide | None = None) -> list[list[Capture]]:
    """Return the captures of each side: of two, or of a list of sides. Raises UsageError for fewer than two sides."""
    from nsys2prv_ng.summary.job import JobSummary

    every: Any = sides if other is None else [sides, other]
    if isinstance(every, str | os.PathLike | JobSummary) or not isinstance(every, Iterable):
        raise UsageError("give two, or a list with the reports or the summary of each run", parameter="sides")
    given = [_list_captures(side) for side in every]
    if len(given) < 2:
        raise UsageError("give at least two", parameter="sides")
    return given


def _list_captures(side: Any) -> list[Capture]:
    """Return the captures of a side: several if it is a list of lists or of summaries."""
    from nsys2prv_ng.summary.job import JobSummary

    if isinstance(side, JobSummary):
        return [side]
    if not isinstance(side, str | os.PathLike) and isinstance(side, Iterable):
        side = list(side)
        if any(isinstance(part, JobSummary | list | tuple) for part in side):
            return [part if isinstance(part, JobSummary) else _list_capture(part) for part in side]
    return [_list_capture(side)]


def find_summary(path: Path) -> Path:
    """Return the saved summary in the folder of a run, which the Slurm script leaves; any other path as it is."""
    summary = path / SUMMARY
    return summary if os.path.isfile(summary) else path  # noqa: PTH113 (Path raises if it may not look there)


def is_saved(capture: Capture) -> bool:
    """Return whether a capture was summed up before."""
    return not isinstance(capture, list) or capture[0].suffix == ".json"


def refuse_restrictions(sides: Sequence[Sequence[Capture]], options: CompareOptions) -> None:
    """Raise UsageError if the user restricts a capture that was summed up before."""
    if any(is_saved(capture) for side in sides for capture in side):
        for name in ("time", "steps", "skip_warmup", "step", "nvtx_range", "ranks"):
            if getattr(options, name) not in (None, "", False):
                raise UsageError("saved numbers cannot be restricted; give the reports", parameter=name)


def _list_capture(side: Reports) -> list[Path]:
    """Return the reports of a capture, or its saved summary.

    Raises UsageError for a mixture, and ReportError if none exists: reading another side first may take long.
    """
    given = list(map(find_summary, list_some_reports(side, "sides")))
    if not any(path.exists() for path in given):
        from nsys2prv_ng.report.files import miss

        raise miss(given[0])
    refuse_traces(given)
    if len(given) > 1 and (saved := [path for path in given if path.suffix == ".json"]):
        raise UsageError(
            "a capture is either reports or one saved summary; write + between captures (in Python: lists in a list)",
            parameter="sides",
            value=str(saved[0]),
        )
    return given
