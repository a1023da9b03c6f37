"""What a page draws of a job, and no table of a summary holds: quantities over time, by row. Times are ns.

Times count from the first record of all time, as the option `time` takes them. Rows are GPUs or tasks, in the order of
the trace; names in them come from reports. Of what is not known, values are NaN, and bytes 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from nsys2prv_ng.arrays.types import ByteArray, FloatArray, IntArray
from nsys2prv_ng.text.formatting import format_window


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """A quantity over time: its mean, sum or maximum in each of b bins of equal length, for each of r rows."""

    key: str
    """Names it: "busy", "computing", "whole_graph", "moving", "waiting", "not_split", "lateness", "sm", "dram" or
    "memory"."""
    title: str
    about: str
    """A sentence that defines a value."""
    unit: str
    """"%", "ns", "B" or the unit of a metric."""
    rows: list[str]
    values: FloatArray
    """(r, b); NaN where nothing is known."""
    highest: float | None = None
    """Top of the scale, where it is fixed: 100 for percentages; None: the largest value."""
    preset: str = ""
    """The preset that shows the same, as `analysis/lateness`; empty where there is none."""


@dataclass(frozen=True, kw_only=True)
class Activity:
    """A kind of what a row does at a time. `key` names its colour: see ACTIVITIES in paraver/palette.py."""

    key: str
    label: str


@dataclass(frozen=True, kw_only=True)
class RangeBar:
    """An NVTX push/pop range of a main thread in the typical step, cut to it; depth 0 is the outermost there."""

    depth: int
    begin_ns: int
    end_ns: int
    name: str


@dataclass(frozen=True, kw_only=True)
class RangesOfTask:
    """The ranges of one task in the typical step."""

    label: str
    bars: list[RangeBar]
    hidden: int
    """Ranges that are not here, as they are too short or too deep to be seen."""


@dataclass(frozen=True, kw_only=True)
class TypicalStep:
    """One step with all rows: that whose length is nearest to the median of the steps without the warm-up.

    Where long and short ones of these take turns, it is the median of the long ones.

    Of the b bins of a row, each has the activity that has most time in it.
    """

    name: str
    """As the steps are named: "step 12"."""
    begin_ns: int
    """First begin of the step of any task."""
    end_ns: int
    """Last end."""
    ns: int
    """Its length on the task on which it is longest."""
    rows: list[str]
    activities: list[Activity]
    values: ByteArray
    """(r, b): one more than the index in `activities`; 0 where nothing is known."""
    ranges: list[RangesOfTask]


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long each step took on each of t tasks, for m steps with those that warm up."""

    name: str
    tasks: list[str]
    numbers: IntArray
    """Number of each step (m)."""
    warmup: int
    """How many of the first steps warm up."""
    ns: IntArray
    """(t, m)."""
    count: int
    """How many steps do not warm up, drawn or not."""
    median_ns: FloatArray
    """Of these, on each task (t)."""
    least_ns: IntArray
    most_ns: IntArray
    begin_ns: IntArray
    """First begin of each step (m)."""
    end_ns: IntArray
    """Last end of each step (m)."""
    every: int = 1
    """Each of these is the slowest of so many consecutive steps; 1: these are all steps."""


@dataclass(frozen=True, kw_only=True)
class KernelDurations:
    """How long the kernels of one name took: counts between `edges_ns` (one more than counts), equal in logarithm."""

    name: str
    kernel_class: str
    edges_ns: FloatArray
    counts: IntArray


@dataclass(frozen=True, kw_only=True)
class NodeClockLine:
    """How the clock of a node was aligned; None for what is not known."""

    node: str
    reference: str
    offset_ns: float
    drift_ppm: float
    bound_ns: float | None
    """Limit of the error against the reference, 95 times out of 100."""
    operations: int
    """Collectives and messages that were compared."""


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """What a page draws of a job."""

    begin_ns: int
    """Begin of the first bin of all heat maps."""
    end_ns: int
    """End of the last one."""
    heat_maps: list[HeatMap] = field(default_factory=list)
    step: TypicalStep | None = None
    """None where no steps were found."""
    pace: Pace | None = None
    kernels: list[KernelDurations] = field(default_factory=list)
    """Those with most time first."""
    shift_ns: int = 0
    """Time 0 of a trace of the chosen time, from which the times of a summary count."""
    alignment: str = ""
    """How clocks were aligned (`Alignment.way`)."""
    clocks: list[NodeClockLine] = field(default_factory=list)

    def format_window(self, begin: int, end: int) -> str:
        """Return a window of the summary (ns, from time 0 of its trace) as the option `time` takes it."""
        return format_window(begin + self.shift_ns, end + self.shift_ns)
