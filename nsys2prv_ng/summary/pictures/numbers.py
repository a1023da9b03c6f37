"""What a page draws of a job in addition to the tables of a summary: quantities over time, by row. Times are ns.

Times count from the first record of all time, as in the option `time`. Rows are GPUs or tasks, in the order of the
trace; their names come from reports. What is not known is NaN in floats, and 0 in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from nsys2prv_ng.analysis.efficiency.typical_step import RangesOfTask
from nsys2prv_ng.arrays.types import ByteArray, FloatArray, IntArray
from nsys2prv_ng.clock.alignment_table import NodeClock
from nsys2prv_ng.text.formatting import format_window
from nsys2prv_ng.value_class import ValueClass


class MapKind(ValueClass):
    """A kind of heat map: its texts, and what it shows.

    `about`: a sentence that defines a value. `preset`: the preset that shows the same, such as `analysis/lateness`;
    empty without one. `states`: the states whose share of time it shows, if it shows states. `unit`: "%" or "ns".
    The scale of percentages ends at 100, that of others at the largest value.
    """

    title: str
    about: str
    preset: str = ""
    states: tuple[int, ...] = ()
    unit: str = "%"


class HeatMap(MapKind, kw_only=True):
    """A quantity over time: its mean, sum or maximum in each of b bins of equal length, for each of r rows.

    `key`: one of "busy", "computing", "whole_graph", "moving", "waiting", "not_split", "lateness", "sm", "tensor",
    "dram", "nvlink_received" and "nvlink_transmitted". `values`: (r, b); NaN if nothing is known.
    """

    key: str
    rows: list[str]
    values: FloatArray


class TypicalStep(ValueClass, kw_only=True):
    """One step with all rows: the step whose length is nearest to the median of the steps after the warm-up.

    If long and short steps alternate, it is the median of the long steps. Each of the b bins of a row shows the
    activity with most time in it.

    `name`: name and number of the step: "step 12". `begin_ns`: start of the step on the task that starts first.
    `end_ns`: end of the step on the task that ends last. `ns`: its length on the task on which it is longest.
    `activities`: label of each kind of activity, by the key of its colour: see ACTIVITIES in paraver/palette.py.
    `values`: (r, b): one more than the index of the activity; 0 if nothing is known.
    """

    name: str
    begin_ns: int
    end_ns: int
    ns: int
    rows: list[str]
    activities: dict[str, str]
    values: ByteArray
    ranges: list[RangesOfTask]


class Pace(ValueClass, kw_only=True):
    """How long each of m steps, warm-up steps included, took on each of t tasks.

    `numbers`: number of each step (m). `warmup`: how many of the m steps are warm-up steps; they are the first. `ns`:
    (t, m). `count`: how many steps follow the warm-up, whether they are among the m steps or not. `median_ns`: median
    time of these `count` steps on each task (t). `least_ns`: shortest time of these steps on each task (t). `most_ns`:
    longest time of these steps on each task (t). `begin_ns`: first start of each step (m) on any task. `end_ns`: last
    end of each step (m) on any task. `every`: each of the m steps is the slowest of so many consecutive steps; 1: they
    are all steps.
    """

    name: str
    tasks: list[str]
    numbers: IntArray
    warmup: int
    ns: IntArray
    count: int
    median_ns: FloatArray
    least_ns: IntArray
    most_ns: IntArray
    begin_ns: IntArray
    end_ns: IntArray
    every: int = 1


class Pictures(ValueClass, kw_only=True):
    """What a page draws of a job.

    `begin_ns`: start of the first bin of all heat maps. `end_ns`: end of the last bin of all heat maps. `step`: the
    typical step; None if no steps were found. `other_step`: a short step, if no step is typical: then `step` is a long
    one. A slow step, if `is_other_slow`. `shift_ns`: time 0 of a trace of the chosen
    time, from which the times of a summary count. `alignment`: how clocks were aligned (`Alignment.way`).
    """

    begin_ns: int
    end_ns: int
    heat_maps: list[HeatMap] = field(default_factory=list)
    step: TypicalStep | None = None
    other_step: TypicalStep | None = None
    is_other_slow: bool = False
    pace: Pace | None = None
    shift_ns: int = 0
    alignment: str = ""
    clocks: Sequence[NodeClock] = ()

    def format_window(self, begin: int, end: int) -> str:
        """Return a window of the summary (ns, from time 0 of its trace) in the form of the option `time`."""
        return format_window(begin + self.shift_ns, end + self.shift_ns)
