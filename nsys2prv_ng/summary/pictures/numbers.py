"""What a page draws of a job in addition to the tables of a summary: quantities over time, by row. Times are ns.

Times count from the first record of all time, as in the option `time`. Rows are GPUs or tasks, in the order of the
trace; their names come from reports. What is not known is NaN in floats, and 0 in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nsys2prv_ng.analysis.efficiency.typical_step import RangesOfTask
from nsys2prv_ng.arrays.types import ByteArray, FloatArray, IntArray
from nsys2prv_ng.clock.alignment_table import NodeClock
from nsys2prv_ng.text.formatting import format_window
from nsys2prv_ng.value_class import ValueClass


@dataclass(eq=False, repr=False)
class MapKind(ValueClass):
    """A kind of heat map: its texts, and what it shows."""

    title: str
    about: str
    """A sentence that defines a value."""
    preset: str = ""
    """The preset that shows the same, such as `analysis/lateness`; empty without one."""
    states: tuple[int, ...] = ()
    """The states whose share of time it shows, if it shows states."""
    unit: str = "%"
    """"%", "ns" or "B". The scale of percentages ends at 100, that of others at the largest value."""


@dataclass(eq=False, repr=False, kw_only=True)
class HeatMap(MapKind):
    """A quantity over time: its mean, sum or maximum in each of b bins of equal length, for each of r rows."""

    key: str
    """One of "busy", "computing", "whole_graph", "moving", "waiting", "not_split", "lateness", "sm", "tensor", "dram",
    "nvlink_received", "nvlink_transmitted" and "memory"."""
    rows: list[str]
    values: FloatArray
    """(r, b); NaN if nothing is known."""


@dataclass(eq=False, repr=False, kw_only=True)
class TypicalStep(ValueClass):
    """One step with all rows: the step whose length is nearest to the median of the steps after the warm-up.

    If long and short steps alternate, it is the median of the long steps. Each of the b bins of a row shows the
    activity with most time in it.
    """

    name: str
    """Name and number of the step: "step 12"."""
    begin_ns: int
    """Start of the step on the task that starts first."""
    end_ns: int
    """End of the step on the task that ends last."""
    ns: int
    """Its length on the task on which it is longest."""
    rows: list[str]
    activities: dict[str, str]
    """Label of each kind of activity, by the key of its colour: see ACTIVITIES in paraver/palette.py."""
    values: ByteArray
    """(r, b): one more than the index of the activity; 0 if nothing is known."""
    ranges: list[RangesOfTask]


@dataclass(eq=False, repr=False, kw_only=True)
class Pace(ValueClass):
    """How long each of m steps, warm-up steps included, took on each of t tasks."""

    name: str
    tasks: list[str]
    numbers: IntArray
    """Number of each step (m)."""
    warmup: int
    """How many of the m steps are warm-up steps; they are the first."""
    ns: IntArray
    """(t, m)."""
    count: int
    """How many steps follow the warm-up, whether they are among the m steps or not."""
    median_ns: FloatArray
    """Median time of these `count` steps on each task (t)."""
    least_ns: IntArray
    """Shortest time of these steps on each task (t)."""
    most_ns: IntArray
    """Longest time of these steps on each task (t)."""
    begin_ns: IntArray
    """First start of each step (m) on any task."""
    end_ns: IntArray
    """Last end of each step (m) on any task."""
    every: int = 1
    """Each of the m steps is the slowest of so many consecutive steps; 1: they are all steps."""


@dataclass(eq=False, repr=False, kw_only=True)
class KernelDurations(ValueClass):
    """How long the kernels of one name took: counts in bins of equal width on a logarithmic scale, n + 1 `edges_ns`."""

    name: str
    kernel_class: str
    edges_ns: FloatArray
    counts: IntArray


@dataclass(eq=False, repr=False, kw_only=True)
class Pictures(ValueClass):
    """What a page draws of a job."""

    begin_ns: int
    """Start of the first bin of all heat maps."""
    end_ns: int
    """End of the last bin of all heat maps."""
    heat_maps: list[HeatMap] = field(default_factory=list)
    step: TypicalStep | None = None
    """The typical step; None if no steps were found."""
    other_step: TypicalStep | None = None
    """A short step, if no step is typical: then `step` is a long one. A slow step, if `is_other_slow`."""
    is_other_slow: bool = False
    pace: Pace | None = None
    kernels: list[KernelDurations] = field(default_factory=list)
    """The longest time first."""
    shift_ns: int = 0
    """Time 0 of a trace of the chosen time, from which the times of a summary count."""
    alignment: str = ""
    """How clocks were aligned (`Alignment.way`)."""
    clocks: Sequence[NodeClock] = ()

    def format_window(self, begin: int, end: int) -> str:
        """Return a window of the summary (ns, from time 0 of its trace) in the form of the option `time`."""
        return format_window(begin + self.shift_ns, end + self.shift_ns)
