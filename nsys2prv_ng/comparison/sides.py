"""Makes the sides of a comparison: their captures, and their names by what differs in the paths of their files.

With several captures a side, the captures are the samples: the steps of one capture share its node, clocks and
neighbours, so that they show how certain the capture is, not how certain the program is. The time of a side is then the
median over its captures of their median steps. Tables are of one capture, the typical one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.comparison.model import CaptureNumbers, Side
from nsys2prv_ng.report.formats import get_report_name
from nsys2prv_ng.steps.numbered_names import OTHER_WORK
from nsys2prv_ng.summary.difference.budget import group_steps
from nsys2prv_ng.summary.difference.statistics import find_median
from nsys2prv_ng.summary.efficiency.numbers import StepNumbers
from nsys2prv_ng.summary.efficiency.windows import are_steps
from nsys2prv_ng.summary.job import JobSummary


def make_side(label: str, captures: Sequence[JobSummary]) -> Side:
    """Return the side with these captures, at least one."""
    if len(captures) == 1:
        return Side(label, captures[0])
    return Side(label, captures[choose_typical(captures)], tuple(captures))


def choose_typical(captures: Sequence[JobSummary]) -> int:
    """Return the index of the capture whose median step is nearest to the median of all; the first of equal ones."""
    times = [measure_capture(capture) for capture in captures]
    middle = find_median(times)
    return min(range(len(times)), key=lambda index: abs(times[index] - middle))


def measure_capture(summary: JobSummary) -> int:
    """Return the median step of a capture (ns); without steps, its length."""
    steps = list_step_times(summary)
    if steps:
        return find_median(steps)
    return summary.duration_ns if summary.efficiency is None else summary.efficiency.length_ns


def list_step_times(summary: JobSummary, size: int = 1) -> list[int]:
    """Return the length (ns) of each step after the warm-up, or of each group of `size` steps."""
    steps = [] if summary.efficiency is None else summary.efficiency.steps
    return [sum(steps[n].length_ns for n in group) for group in group_steps(summary, size)]


def list_kinds(summary: JobSummary, size: int) -> list[str]:
    """Return the kind of each of these groups, by its first step."""
    steps = [] if summary.efficiency is None else summary.efficiency.steps
    return [steps[group.start].kind for group in group_steps(summary, size)]


def count_units(steps: StepNumbers) -> int:
    """Return the number of steps after the warm-up, without other work between them."""
    return steps.count - sum(kind.count for kind in steps.kinds if kind.name == OTHER_WORK)


def covers_its_steps(summary: JobSummary) -> bool:
    """Return whether the chosen time of a summary is its steps: then totals can be divided by the number of steps."""
    if summary.steps is None or summary.efficiency is None:
        return False
    return are_steps(summary.windows_ns, summary.efficiency.steps_ns)


def has_steps(side: Side) -> bool:
    """Return whether steps were found in every capture."""
    return all(list_step_times(capture) for capture in side.every)


def describe_captures(side: Side, size: int) -> list[CaptureNumbers]:
    """Return the measurements of each capture. `size`: how many steps are compared as one."""
    steps = [list_step_times(capture, size) for capture in side.every]
    return [
        CaptureNumbers(capture.reports, own, find_median(own) if own else None)
        for capture, own in zip(side.every, steps, strict=True)
    ]


def find_table_capture(side: Side) -> int:
    """Return the index of the capture that tables are of."""
    return next(index for index, capture in enumerate(side.every) if capture is side.summary)


SUMMARY = "summary.json"
"""The saved summary in the folder of a run, which has the name of the run."""
_RANK = re.compile(r"[._-]*((rank|task|proc|report|node)[._-]*\d*)?[._-]*$", re.IGNORECASE)
"""The end of a file name that only numbers the files of a side."""


def label_sides(sides: Sequence[Sequence[Path]]) -> list[str]:
    """Return distinct names for sides: the common start of their file names, or their folders, or A, B, C."""
    for names in ([_find_beginning(paths) for paths in sides], _find_folders(sides)):
        if all(names) and len(set(names)) == len(sides):
            return names
    return [chr(ord("A") + i) if i < 26 else f"side {i + 1}" for i in range(len(sides))]


def _find_beginning(paths: Sequence[Path]) -> str:
    """Return the common start of the file names, without a word that only numbers them, such as "rank"."""
    names = [
        path.absolute().parent.name if path.name == SUMMARY else get_report_name(path).removesuffix(".json")
        for path in paths
    ]
    return _RANK.sub("", os.path.commonprefix(names))  # noqa: RUF071 (compares characters, as it should)


def _find_folders(sides: Sequence[Sequence[Path]]) -> list[str]:
    """Return the names of the innermost folders that are all different; [""] if there are none."""
    folders = [
        Path(os.path.commonpath([path.absolute().parent for path in paths])) if paths else Path() for paths in sides
    ]
    depth = min(len(folder.parts) for folder in folders)
    for position in range(1, depth + 1):
        names = [folder.parts[-position] for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [""]
