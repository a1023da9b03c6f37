"""The sides of a comparison, and what it finds, for programs and for the text. Times are ns, sizes bytes.

The fields are the keys of the JSON that `nsys2prv-ng compare --json` prints. Programs rely on them: to change a key, or
its meaning, increase COMPARISON_VERSION.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

from nsys2prv_ng.summary.difference.budget import BudgetRow
from nsys2prv_ng.summary.difference.changes import Change
from nsys2prv_ng.summary.difference.statistics import Average
from nsys2prv_ng.summary.efficiency.numbers import DeviceEfficiency, HostEfficiency
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.names import clean_name
from nsys2prv_ng.value_class import ValueClass

COMPARISON_VERSION = 3
STRONG, WEAK = "strong", "weak"
"""Kinds of scaling."""


class Side(NamedTuple):
    """A side of a comparison: a program, captured once or several times, and its label.

    `summary`: the numbers of the tables: of the only capture, or of the typical one of several (sides.py). `captures`:
    all captures, if there are several.
    """

    label: str
    summary: JobSummary
    captures: tuple[JobSummary, ...] = ()

    @property
    def every(self) -> tuple[JobSummary, ...]:
        """All captures, also if there is one."""
        return self.captures or (self.summary,)


class CaptureNumbers(ValueClass):
    """Measurements of a capture."""

    reports: int
    step_ns: list[int]
    """Length of each step after the warm-up."""
    step_median_ns: int | None
    """None if no steps were found."""


class SideNumbers(ValueClass):
    """Measurements of a side. If it has several captures, its numbers are those of one, unless described otherwise."""

    label: str
    reports: int
    ranks: int
    gpus: int
    step_name: str | None
    """None if no steps were found."""
    step_delimiter: str
    """What recurs at the end of steps that no NVTX ranges mark; else ""."""
    group: int
    """How many steps that follow each other are compared as one, as much work as a step of the other side."""
    step_ns: list[int]
    """Length of each step, or group of steps, after the warm-up (summary: `efficiency.steps`)."""
    step_median_ns: int | None
    """Median of the steps; with several captures, the median of their medians."""
    step_mean_ns: int | None
    """Mean of the same; None if no steps were found."""
    step_median_low_ns: int | None
    """Lower limit of the median with 95 % confidence; None for less than six steps, or less than six captures."""
    step_median_high_ns: int | None
    """Upper limit of the median with 95 % confidence; None for less than six steps, or less than six captures."""
    length_ns: int
    """Time that the tables of this side cover."""
    per_step: bool
    """Whether the window is the time of the steps, so that totals can be divided by the number of steps."""
    captures: list[CaptureNumbers]
    table_capture: int
    """Index of the capture that the tables are of: its median step is nearest to the median of all captures."""


Kind = Literal["faster", "slower", "no difference", "below noise", "inconclusive"]
Samples = Literal["steps", "captures"]
Measure = Literal["step", "capture"]


class Verdict(ValueClass):
    """Whether b is faster than a: within two captures, or over several captures a side.

    `kind`: "faster" and "slower" are significant (p < 0.05) and at least 2 %. "below noise" is significant, but less.
    "no difference" is not significant, and less than 5 %. "inconclusive": no steps, too few of them (or captures) to
    decide, or a larger difference that may be chance.
    """

    kind: Kind
    measure: Measure
    """What the times are: averages of the steps, or the time in which GPUs work if there are no steps."""
    samples: Samples
    """What is tested, and has parts: the steps of two captures, or the captures if a side has several."""
    average: Average
    """What the times are of the samples: "mean" if a few steps differ so much that medians mislead."""
    a_ns: int
    b_ns: int
    difference_ns: int
    change: float | None
    """difference_ns / a_ns; None if a took no time."""
    p: float | None
    """p of the rank test over the samples, or of a permutation test of means; None for less than four a side."""

    @property
    def is_significant(self) -> bool:
        return self.kind in ("faster", "slower", "below noise")


class Evidence(ValueClass):
    """How sure the change of the verdict is, beyond what captures of one program vary by (evidence.py).

    Changes are shares of the time of a: 0.05 is 5 % slower.
    """

    captures: list[int]
    """The number of captures of a and b."""
    host_share: float
    """Share of GPU time that is host-bound, the mean of all captures; 1 without GPUs."""
    host_speed: float
    """How many times as long the launches of b take as the same launches of a."""
    deviation: float
    """Standard deviation between captures of one program, as a share of the step."""
    change: float
    """Of the means of all captures."""
    least: float
    """The change, or the change beside the speed of hosts: the smaller one."""
    most: float
    """The larger one."""
    low: float
    """The change is less with a probability of 5 % at most."""
    high: float
    """The change is more with a probability of 5 % at most."""


class Prediction(ValueClass):
    """What a change of what differs would save in the slower side, per step, by a replay of that side."""

    label: str
    """The slower side."""
    change: str
    saving_ns: int


class TableRow(ValueClass):
    """One quantity on both sides, with its count and bytes; None if a side does not have it."""

    name: str
    detail: str
    a: float | None
    b: float | None
    differs: bool
    count_a: float | None = None
    count_b: float | None = None
    bytes_a: float | None = None
    bytes_b: float | None = None
    only_a: tuple[str, ...] = ()
    """Names that only side a has, and that were matched by their class."""
    only_b: tuple[str, ...] = ()
    """Names that only side b has, and that were matched by their class."""


class Table(ValueClass):
    """Quantities of one kind. `unit`: the unit of a and b, "ns", "bytes", "ratio" or another one."""

    key: str
    title: str
    unit: str
    rows: list[TableRow]


class WorkUnits(ValueClass):
    """An NVTX range of which a step has more on one side: a unit of work, such as a micro-batch."""

    range: str
    count_a: int
    """How often each rank that has the range opens it in each step."""
    count_b: int
    a_ns: int
    """Time of a step / its number of units."""
    b_ns: int
    change: float
    """(b_ns - a_ns) / a_ns."""


class SharedCount(ValueClass):
    """How often a kernel or copy that both sides have occurs in a mean step of each, per GPU."""

    name: str
    a: float
    b: float


class Pair(ValueClass):
    """Two sides compared."""

    verdict: Verdict
    evidence: Evidence | None
    """How sure the change is; None without steps."""
    a: SideNumbers
    b: SideNumbers
    difference_ns: int
    """b - a, of the times of the verdict."""
    unit: str
    """What the rows are times of: "GPU", "main thread", or "" without rows."""
    rows: list[BudgetRow]
    """The parts, which add up to the times of the verdict, and to the difference."""
    cause: str
    """NVTX range with most of the difference of the row "host-bound"; "" if no range has most of it."""
    tables: list[Table]
    # Here, {a} and {b} stand for the names of the sides; the JSON has the names.
    notes: list[str]
    """What is missing, and why."""
    units: WorkUnits | None
    """None unless a step has more units of work on one side."""
    changes: list[Change]
    """What explains most of the difference, the largest change first; empty if nothing exceeds noise."""
    prediction: Prediction | None
    """None unless one side is slower, and a change of what differs would save something measurable."""
    shared: list[SharedCount]
    """What shows how many steps are the same work. If that is not known, what has most time of all that both sides
    have. Empty for ranges of one name, and without steps."""
    step: str
    """If it is not known: a range of both sides that `--step` takes as the steps; "" without one."""

    @property
    def sizes(self) -> tuple[int, int]:
        """How many steps of each side are compared as one."""
        return self.a.group, self.b.group

    def name_notes(self, quote: Callable[[str], str]) -> list[str]:
        """Return the notes with the names of the sides. `quote`: makes a name part of a sentence."""
        return [note.format(a=quote(self.a.label), b=quote(self.b.label)) for note in self.notes]


class ScalingRun(ValueClass):
    """A run and its rates; None for a rate that does not apply. Rates relative to the first run may exceed 1."""

    label: str
    nodes: int
    processes: int
    gpus: int
    time_ns: int
    """Median time of a step, or the length of the window."""
    useful_ns: int | None
    """Useful time of all GPUs, or of all main threads if no run has GPUs, in a mean step, or in the window."""
    speedup: float | None
    efficiency: float | None
    """speedup / growth of the GPUs (or main threads) from the first run."""
    global_efficiency: float | None
    """parallel x computation_scalability."""
    computation_scalability: float | None
    parallel: float | None
    """Parallel efficiency of `device`, or of `host` if no run has GPUs."""
    device: DeviceEfficiency | None
    host: HostEfficiency | None


class Scaling(ValueClass):
    """Runs by number of GPUs, then of processes; the first run is the reference of the others."""

    kind: str | None
    """STRONG or WEAK; None if it cannot be determined."""
    is_chosen: bool
    """Whether the user chose the kind."""
    rule: str
    """How the kind was determined, in words."""
    step_name: str | None
    """NVTX range of the steps that are timed; None if whole windows are timed."""
    runs: list[ScalingRun]
    notes: list[str]


class Finding(ValueClass):
    """A difference between sides, and the tables that cannot be compared because of it."""

    severity: str
    text: str
    prevents: frozenset[str] = frozenset()


class Comparability(ValueClass):
    """The differences between sides, warnings first."""

    findings: list[Finding]

    @property
    def prevented(self) -> frozenset[str]:
        """Keys of all tables to omit."""
        return frozenset().union(*(finding.prevents for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as `json.dumps` takes them."""
        return {"findings": [vars(finding) | {"prevents": sorted(finding.prevents)} for finding in self.findings]}


class HistoryCapture(ValueClass):
    """An earlier capture."""

    name: str
    begin_utc_ns: int
    """0 if it is not known."""
    step_ns: int
    """Median step; without steps, its length."""


class HistoryNumbers(ValueClass):
    """The series of earlier captures of the same program, size and machine, and the new ones at its end."""

    captures: list[HistoryCapture]
    new: int
    """How many captures at the end are new."""
    baseline: int
    """Index of the first earlier capture of the baseline, which goes on to the last earlier one."""
    changes: list[int]
    """Index of the first capture after each change of the program."""
    unlike: int
    """The number of captures in the folder that are of other programs, sizes or machines."""
    drift: Evidence | None
    """The change since ten captures ago; None if the series has not changed since."""


class ComparisonNumbers(ValueClass):
    """The numbers of a comparison of runs: each later run with the first."""

    comparability: Comparability
    pairs: list[Pair]
    scaling: Scaling | None
    """None for runs of the same size."""
    history: HistoryNumbers | None = None
    """None unless the first run is the baseline of a history."""
    traces: None = None
    """Always None: traces to compare are made by translating each run with the labels of the first."""

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as `json.dumps` takes it: the first pair at the top, and all as `pairs`."""
        pairs = [asdict(pair) | {"notes": pair.name_notes(clean_name)} for pair in self.pairs]
        return {
            "version": COMPARISON_VERSION,
            **self.comparability.to_dict(),
            **pairs[0],
            "pairs": pairs,
            "scaling": None if self.scaling is None else asdict(self.scaling),
            "history": None if self.history is None else asdict(self.history),
            "traces": self.traces,
        }
