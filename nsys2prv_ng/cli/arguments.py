"""Sorts out the arguments of commands. Every function raises UsageError, whose message has what to type instead."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.api.sides import find_summary
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.paraver.files import is_trace
from nsys2prv_ng.report.formats import is_report_name


def parse_percent(text: str, parameter: str) -> float:
    """Return a percentage like 5% as a fraction of 1."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    if not match:
        raise UsageError("write a percentage, like 5%", parameter=parameter, value=text)
    return float(match[1]) / 100


_PLUS = "+"
"""Stands between the captures of a side."""


def split_sides(words: Sequence[str], between: str) -> list[list[list[Path]]]:
    """Return the files of each capture of each side. Saved summaries and folders of runs are a side each without `--`.

    Raises UsageError for fewer than two sides, and for a side or a capture without files.
    """
    if between not in words and len(words) > 1 and all(find_summary(Path(word)).suffix == ".json" for word in words):
        return [[[Path(word)]] for word in words]
    sides: list[list[list[Path]]] = [[[]]]
    for word in words:
        if word == between:
            sides.append([[]])
        elif word == _PLUS:
            sides[-1].append([])
        else:
            sides[-1][-1].append(Path(word))
    if len(sides) < 2 or any(side == [[]] for side in sides):
        raise UsageError("write -- between the runs: nsys2prv-ng compare BEFORE... -- AFTER...")
    if not all(capture for side in sides for capture in side):
        raise UsageError(
            "write + only between two captures of a run: nsys2prv-ng compare A1... + A2... -- B1... + B2..."
        )
    return sides


def split_reports_and_trace(paths: list[Path], *, compress: bool) -> tuple[list[Path], Path]:
    """Return the reports and the trace of REPORT... OUT.prv."""
    *reports, output = paths
    if not is_trace(output):
        what = "is a report; " if is_report_name(output) else ""
        raise UsageError(f"{output}: {what}the last argument must be the trace to write, OUT.prv or OUT.prv.gz")
    if not reports:
        raise UsageError(f"no report to translate into {output}: nsys2prv-ng REPORT... OUT.prv")
    if compress and output.suffix != ".gz":
        output = output.with_name(output.name + ".gz")
    return reports, output


def split_trace_and_cfgs(paths: Sequence[Path]) -> tuple[Path, list[Path]]:
    """Return the trace and the cfgs of OUT.prv FILE.cfg..., which may stand in any order."""
    traces = [path for path in paths if path.suffix != ".cfg"]
    if not traces:
        raise UsageError("no trace to check the cfgs against: nsys2prv-ng check OUT.prv FILE.cfg...")
    if len(traces) > 1:
        raise UsageError(f"{traces[1]}: check takes one trace, and cfgs that end in .cfg")
    return traces[0], [path for path in paths if path.suffix == ".cfg"]
