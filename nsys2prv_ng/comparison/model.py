"""The sides of a comparison, and what it finds, for programs and for the text. Times are ns, sizes bytes.

The fields are the keys of the JSON that `nsys2prv-ng compare --json` prints. Programs rely on them: a key that changes,
or its meaning, needs another COMPARISON_VERSION.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from nsys2prv_ng.summary.numbers.efficiency import DeviceEfficiency, HostEfficiency
from nsys2prv_ng.summary.numbers.job import JobSummary

COMPARISON_VERSION = 1
STRONG, WEAK = "strong", "weak"
"""Kinds of scaling."""


class Side(NamedTuple):
    """A side of a comparison: a run."""

    label: str
    summary: JobSummary


@dataclass(frozen=True)
class SideNumbers:
    """What was measured on a side. A step takes as long as the longest range of any rank."""

    label: str
    reports: int
    ranks: int
    gpus: int
    step_name: str | None
    """None where no steps were found."""
    step_ns: list[int]
    """Time of each step, without the warm-up."""
    step_median_ns: int | None
    step_median_low_ns: int | None
    """Limits of the median with 95 % confidence; None for less than six steps."""
    step_median_high_ns: int | None
    window_ns: int
    """Time that the tables of this side cover."""
    per_step: bool
    """Whether that is the time of its steps, so that totals can be divided by their number."""


Kind = Literal["faster", "slower", "no difference", "below noise", "inconclusive"]


@dataclass(frozen=True)
class Verdict:
    """Whether b is faster than a, within these captures.

    `kind`: "faster" and "slower" are significant (p < 0.05) and at least 2 %; "below noise" is significant and less;
    "no difference" is not significant; "inconclusive": too few steps to know, or none.
    """

    kind: Kind
    measure: Literal["step", "capture"]
    """What the times are: the medians of the steps, or without steps the captures."""
    a_ns: int
    b_ns: int
    difference_ns: int
    change: float | None
    """difference_ns / a_ns; None where a took no time."""
    p: float | None
    """Of the rank test over steps; None for less than four steps a side."""

    @property
    def is_significant(self) -> bool:
        return self.kind in ("faster", "slower", "below noise")

    def is_slower_by(self, limit: float) -> bool:
        """Return whether b is significantly slower by more than a part of a."""
        return self.is_significant and self.change is not None and self.change > limit


@dataclass(frozen=True)
class BudgetRow:
    """A part of the step, or of the capture: the mean over steps and over GPUs."""

    name: str
    a_ns: int
    b_ns: int
    difference_ns: int
    p: float | None
    """Of the rank test over steps; None for less than four steps a side, and for what is no time of single steps."""
    differs: bool
    """Whether it differs by more than noise."""


@dataclass(frozen=True)
class TableRow:
    """One quantity on both sides; None where a side has nothing of it. `count_*` and `bytes_*` belong to it."""

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
    """Names that stand on one side only and were matched by their class."""
    only_b: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Quantities of one kind: `unit` is "ns", "bytes", "ratio" or another unit of a, b."""

    key: str
    title: str
    unit: str
    rows: list[TableRow]


@dataclass(frozen=True)
class Pair:
    """Two sides compared."""

    verdict: Verdict
    a: SideNumbers
    b: SideNumbers
    difference_ns: int
    """Of the medians of the steps, or without steps of the captures: b - a."""
    unit: str
    """What the rows are times of: "GPU", "main thread", or "" where there are none."""
    rows: list[BudgetRow]
    """They add up to the times of the verdict, and to the difference."""
    cause: str
    """NVTX range with most of the difference of the row "host late"; "" if none has."""
    tables: list[Table]
    notes: list[str]
    """What is missing, and why."""


@dataclass(frozen=True)
class ScalingRun:
    """A run and its rates; None where a rate does not apply. Rates against the first run can be more than 1."""

    label: str
    nodes: int
    processes: int
    gpus: int
    time_ns: int
    """Median time of a step, or the length of the window."""
    useful_ns: int | None
    """Useful time of all GPUs, or of all main threads where no run has GPUs: of a step on average, or in the window."""
    speedup: float | None
    efficiency: float | None
    """speedup / growth of the GPUs (or main threads) from the first run."""
    global_efficiency: float | None
    """parallel x computation_scalability."""
    computation_scalability: float | None
    parallel: float | None
    """That of `device`, or of `host` where no run has GPUs."""
    device: DeviceEfficiency | None
    host: HostEfficiency | None


@dataclass(frozen=True)
class Scaling:
    """Runs by their number of GPUs, then of processes; the first is the reference of the others."""

    kind: str | None
    """STRONG or WEAK; None where it cannot be found."""
    is_chosen: bool
    """Whether the user said so."""
    rule: str
    """How the kind was found, in words."""
    step_name: str | None
    """NVTX range of the steps that times are of; None where they are of whole windows."""
    runs: list[ScalingRun]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as `json.dumps` takes them."""
        return asdict(self)


@dataclass(frozen=True)
class Finding:
    """What differs between sides, and the tables that cannot be compared because of it."""

    severity: str
    text: str
    prevents: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Comparability:
    """What differs between sides, warnings first."""

    findings: list[Finding]

    @property
    def prevented(self) -> frozenset[str]:
        """All tables to skip."""
        return frozenset().union(*(finding.prevents for finding in self.findings))

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as `json.dumps` takes them."""
        return {
            "findings": [
                {"severity": own.severity, "text": own.text, "prevents": sorted(own.prevents)} for own in self.findings
            ]
        }


@dataclass(frozen=True)
class SideTraces:
    """The traces of all sides, to be opened side by side."""

    files: list[str]
    steps: tuple[int, int] | None
    """First and last step in them; None for all time, where the sides have no steps in common."""
    presets: list[str]
    """Those that show what differs."""


@dataclass(frozen=True)
class Comparison:
    """Runs compared: each later one with the first."""

    comparability: Comparability
    pairs: list[Pair]
    scaling: Scaling | None
    """None for runs of one size."""
    traces: SideTraces | None = None
    """None unless they were wanted."""

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as `json.dumps` takes it: that of the first two runs, and all as `comparisons`."""
        pairs = [asdict(pair) for pair in self.pairs]
        return {
            "version": COMPARISON_VERSION,
            **self.comparability.to_dict(),
            **pairs[0],
            "comparisons": pairs,
            "scaling": None if self.scaling is None else self.scaling.to_dict(),
            "traces": None if self.traces is None else asdict(self.traces),
        }
