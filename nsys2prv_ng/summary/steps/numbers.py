"""Numbers on slow steps against the usual steps of the same job. Times are ns, means over the steps of each kind."""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.value_class import ValueClass


class StepPart(ValueClass, kw_only=True):
    """A time in the mean usual step and in the mean slow step. `difference_ns`: slow less usual."""

    name: str
    usual_ns: int
    slow_ns: int
    difference_ns: int


class IdlePart(StepPart, kw_only=True):
    """Host-bound time of a mean GPU while the launching thread was in a range and in a call (`name`; "": in none)."""

    range: str


class StepChange(StepPart, kw_only=True):
    """The time of kernels, copies, NCCL, NVTX ranges or calls of one name, by the definitions of a comparison."""

    kind: str
    """"class" (of kernels), "kernel", "transfer", "range" or "call"."""
    per: str
    """What the times are means over: "rank" or "GPU"."""
    rank: int | None
    """The rank with nearly all of the difference, of which the times are then; None for the mean."""


class OnlySlow(ValueClass, kw_only=True):
    """A call or NVTX range that every slow step has, on any rank, and that no usual step has."""

    kind: str
    """"call" or "range"."""
    name: str
    count: int
    """How often it occurs in all slow steps."""
    ns: int
    """Its time in a mean slow step, of a mean rank or process."""
    per: str = "rank"
    """"rank", or "process" where ranks are not known."""


class LateInSlow(ValueClass, kw_only=True):
    """The task that cost others more wait time in slow steps than in usual ones, and what it was in meanwhile."""

    rank: int | None
    task: str
    ns: int
    """How much longer the others wait for it in a mean slow step than in a mean usual step, over all of them."""
    others: int
    """The number of other tasks."""
    range: str
    what: str
    """A call of its thread, or an operation that ended late; "" for none."""


class SlowStepNumbers(ValueClass, kw_only=True):
    """Slow steps, and the usual steps of the same job, in numbers that add up.

    `parts` add up to `usual_ns`, `slow_ns` and `difference_ns`. `idle` adds up to the part "host-bound", but for less
    than one ns for each of its rows.
    """

    slow: list[int]
    """Numbers of the slow steps."""
    usual: list[int]
    usual_ns: int
    """Mean usual step, as the sum of its parts, each of which is rounded to ns."""
    slow_ns: int
    difference_ns: int
    unit: str
    """What the parts are times of: "GPU" or "main thread"."""
    units: int
    """The number of GPUs or main threads that the parts are means over."""
    parts: list[StepPart]
    """The largest difference first."""
    idle: list[IdlePart] = field(default_factory=list)
    """The largest difference first; empty if the reports do not show what hosts did."""
    causes: list[StepPart] = field(default_factory=list)
    """Host-bound time of a mean GPU by its cause in words, as far as reports show it (summary/gpus/host_causes.py)."""
    changes: list[StepChange] = field(default_factory=list)
    """What differs by 0.5 % of a usual step or more, at most ten of each kind; the largest difference first."""
    only_slow: list[OnlySlow] = field(default_factory=list)
    """The longest time first; only what cannot be chance (summary/difference/slow_steps.py)."""
    late: LateInSlow | None = None
    """None unless each of the other tasks waits for one task for half of the difference or more, on average."""
