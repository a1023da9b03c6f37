"""Holds what a judge looks at: a summary, the time to judge, its losses, and what changes would save."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

from nsys2prv_ng.analysis.gpus.samples import CALLS
from nsys2prv_ng.paraver.families import GIL_WAIT
from nsys2prv_ng.paraver.value_tables import BY_NCCL, communicates
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.summary.answer.slow_steps import SlowSteps, find_slow_steps
from nsys2prv_ng.summary.efficiency.numbers import Losses, StepKind
from nsys2prv_ng.summary.efficiency.windows import NamedWindow, are_steps, choose_window, list_parts
from nsys2prv_ng.summary.gpus.host_causes import CauseTime, HostCause, sum_host_causes
from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.memory.numbers import MemoryOperationNumbers
from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.waits.numbers import MpiWaits, RankWaits
from nsys2prv_ng.summary.waits.words import NOT_SELECTED
from nsys2prv_ng.value_class import ValueClass

_OPERATORS = re.compile(r"^(aten|autograd)::|Backward\d+$")
"""Names of ranges that PyTorch opens for each operator, if asked to."""
_LEAST_HOST = 0.1
"""Least share of GPU time that is host-bound for that cost to matter.

A choice: GPUs do not wait for every slow host."""
_TRACED_LAUNCH_NS = 9_000
"""What tracing costs a host for each operation that it launches, with the calls around it.

The median of 20 host-bound programs whose steps were timed with and without nsys (5 to 18 us:
docs/development/programs.md)."""
_BACK_TRACE_NS = 60_000
"""The same with a back trace of Python for each call: 53 and 68 us in evalloop and gan."""
_MANY_RANGES = 1
"""Ranges per kernel from which the ranges themselves cost the host time that matters."""

_STARTS = re.compile(r"MPI_(Init|Finalize|File_|Win_|Comm_|Type_|Group_)")
"""MPI calls that neither transfer data between ranks nor wait for messages."""
LEAST = 0.05
"""Least share of a step, or of GPU time, that is worth a change: the 5% of docs/reference/bottlenecks.md."""
MUCH = 1 / 3
"""Least part of a whole that is named first, or beside the first: a choice. (In pong-a, data on the GPU saves 31 % of a
step, and 37 % of the host-bound time is before copies of data.)"""
CLEAR = 2
"""Savings below so many times the variation of steps (sigma) are no difference between two runs of a program.

The usual two sigma; w-base and w-base-again are one program (test_a_program_run_twice_has_one_class)."""
HALF = 0.5
"""What is more than this part of a whole is most of it."""
_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaGraphLaunch", "cuGraphLaunch")
"""Beginnings of the names of calls that launch."""
HOST_BOUND, NETWORK_BOUND, WAIT_BOUND, COPY_BOUND = map(Change, (what.HOST, what.NETWORK, what.WAITS, what.COPIES))
NO_READBACKS = Change(what.READBACKS)

IF_BOUND = {
    HOST_BOUND: "if the host never delayed the GPUs",
    NETWORK_BOUND: "if transfer were free",
    WAIT_BOUND: "if no rank waited for another",
    COPY_BOUND: "if copies were free",
}
"""What each bound assumes, as a clause."""


class Case(ValueClass):
    """A summary and what a judge looks at."""

    summary: JobSummary

    @cached_property
    def window(self) -> NamedWindow | None:
        """The time that is judged; None if it has no length, or no efficiencies are known."""
        if self.summary.efficiency is None:
            return None
        window = choose_window(self.summary.efficiency, self.summary.steps)
        return window if window.numbers.length_ns else None

    @cached_property
    def losses(self) -> Losses | None:
        """Where GPU time goes; None without GPUs."""
        return None if self.window is None else self.window.numbers.losses

    @property
    def gpu_ns(self) -> int:
        """The time of all GPUs in the window; 0 without GPUs."""
        if self.window is None or self.losses is None:
            return 0
        return self.losses.devices * self.window.numbers.length_ns

    @property
    def whole(self) -> str:
        """What shares are parts of, over all GPUs: the step, or else the time that is judged."""
        return "the step" if self.window is not None and self.window.title == "steps" else "the time"

    @property
    def compute_by_class(self) -> dict[str, int]:
        """The compute time (ns) of each class of kernels, the longest first, without unselected ranks."""
        classes = {} if self.losses is None else self.losses.compute_by_class
        return {name: ns for name, ns in classes.items() if name != NOT_SELECTED}

    @property
    def scenarios(self) -> list[Scenario]:
        """All changes that a replay tried."""
        return [] if self.summary.what_if is None else self.summary.what_if.scenarios

    @property
    def noise_ns(self) -> int:
        """By how much steps vary (ns); 0 if no replay knows."""
        return 0 if self.summary.what_if is None else self.summary.what_if.noise_ns

    @property
    def ranks(self) -> list[RankWaits]:
        """The waits of each task; empty if no operation is over ranks."""
        return [] if self.summary.waits is None else self.summary.waits.ranks

    @property
    def mpi(self) -> list[MpiWaits]:
        """The MPI calls over ranks of each task that has any."""
        return [rank.mpi for rank in self.ranks if rank.mpi is not None]

    @property
    def inherited(self) -> list[tuple[RankWaits, int]]:
        """Each task, and how long others waited for it because it had waited for another one (ns)."""
        culprits = [] if self.summary.waits is None else self.summary.waits.culprits
        sums = sum_by_key((culprit.task, culprit.ns) for culprit in culprits if culprit.origin_task)
        return [(rank, min(sums[rank.task], rank.all_caused_ns)) for rank in self.ranks]

    @property
    def mpi_calls(self) -> dict[str, int]:
        """The time (ns, over all ranks) in each MPI call that may transfer data or wait for messages."""
        calls = self.summary.mpi
        return {call.call: call.total_ns for call in calls if call.total_ns and not _STARTS.match(call.call)}

    @property
    def nccl_kernels(self) -> dict[str, int]:
        """The kernel time (ns) of each NCCL function that has kernels."""
        return {nccl.function: nccl.kernel_ns for nccl in self.summary.nccl if nccl.kernel_ns}

    @property
    def has_copy_engines(self) -> bool:
        """Whether copies carry out calls of NCCL."""
        return any(each.operation.endswith(BY_NCCL) for each in self.summary.memory_operations)

    @property
    def communication(self) -> dict[str, int]:
        """The time (ns) of all communication on GPUs: NCCL by function, the rest by name."""
        return self.nccl_kernels | self.summary.other_communication

    @property
    def copies_between(self) -> list[MemoryOperationNumbers]:
        """Copies between GPUs that NCCL did not launch."""
        return [each for each in self.summary.memory_operations if each.operation in self.summary.other_communication]

    @property
    def copies(self) -> list[MemoryOperationNumbers]:
        """Copies and sets that are no communication, in the time that is judged."""
        operations = self.summary.memory_operations if self.covers_window else []
        return [each for each in operations if not communicates(each.operation)]

    def measure_mpi(self, field: str) -> float | None:
        """Return the part of the ranks' time that is in a field of MpiWaits, from 0 to 1; None without such calls."""
        if not self.mpi or self.window is None or not self.covers_window:
            return None
        return sum(getattr(mpi, field) for mpi in self.mpi) / (self.window.numbers.length_ns * len(self.mpi))

    @cached_property
    def bounds(self) -> dict[Change, Scenario]:
        """Bounds that a replay predicts, by their change; without those that are below the variation of the steps."""
        return {each.changes[0]: each for each in self.scenarios if each.only in IF_BOUND and is_worth(each)}

    def find_bound(self, change: Change | None) -> Scenario | None:
        """Return what a bound saves, that of a rank or else of no waits for what.RANK; None if nothing measurable."""
        if change is None or change.target != what.RANK:
            return None if change is None else self.bounds.get(change)
        return self.rank_change if self.rank_to_change is not None else self.bounds.get(WAIT_BOUND)

    @cached_property
    def changes(self) -> list[Scenario]:
        """Changes that somebody can make and that save something measurable, the best first.

        Remedies have factors of their own: they are named only where they apply.
        """
        single = [each for each in self.scenarios if each.only is not None and each.only.target in what.NAMED]
        named = [each for each in single if each.changes[0].factor in (0, HALF)]
        return sorted(filter(is_worth, named), key=lambda each: -each.saving_ns)

    @cached_property
    def rank_change(self) -> Scenario | None:
        """What the slowest rank as fast as the others would save, whether that is measurable or not."""
        return next((each for each in self.scenarios if find_rank(each) is not None), None)

    @property
    def rank_to_change(self) -> int | None:
        """The number of that rank, if its change saves something measurable; else None."""
        change = self.rank_change
        return find_rank(change) if change is not None and is_worth(change) else None

    @property
    def counted_steps(self) -> int:
        """The number of steps that the times of ranges, kernels and GPUs cover; 0 if they cover other times."""
        summary = self.summary
        if summary.steps is None or summary.efficiency is None:
            return 0
        return summary.steps.count if are_steps(summary.windows_ns, summary.efficiency.steps_ns) else 0

    @property
    def covers_window(self) -> bool:
        """Whether times of ranges, calls, kernels and GPUs cover the time that is judged, which steps decide if any."""
        return bool(self.counted_steps) or self.summary.steps is None

    @property
    def gpus(self) -> list[GpuNumbers]:
        """The GPUs, with the causes of their idle time in the time that is judged; none if they are of another time."""
        return self.summary.gpus if self.covers_window else []

    @property
    def readbacks(self) -> list[ReadbackNumbers]:
        """Where hosts wait for GPUs in the time that is judged."""
        return self.summary.readbacks if self.covers_window else []

    @property
    def launches(self) -> float:
        """The number of operations that are launched for a GPU in a step; 0 if numbers do not cover steps."""
        operations = sum(node.operations for node in self.summary.range_tree if not node.depth)
        return operations / max(self.counted_steps * len(self.summary.gpus), 1) if self.counted_steps else 0.0

    @property
    def tracing_ns(self) -> int:
        """What tracing may cost the host in a step (ns), if hosts limit the job by as much; 0 if it is little.

        Nodes of CUDA graphs are operations without a launch of their own.
        """
        losses, numbers = self.losses, self.summary.what_if
        if losses is None or numbers is None or losses.graph_ns or losses.whole_graph_ns:
            return 0
        cost = round(self.launches * (_BACK_TRACE_NS if self.has_back_traces else _TRACED_LAUNCH_NS))
        is_much = cost >= _LEAST_HOST * numbers.step_ns and losses.host_ns >= _LEAST_HOST * self.gpu_ns
        return min(cost, losses.host_ns * numbers.step_ns // self.gpu_ns) if is_much else 0

    @property
    def has_back_traces(self) -> bool:
        """Whether nsys took a back trace of Python at each CUDA call."""
        return any(each.source == CALLS for gpu in self.summary.gpus for each in gpu.sampled)

    @property
    def is_slowed_by_back_traces(self) -> bool:
        """Whether back traces cost most of the time in which GPUs wait for hosts."""
        losses, numbers = self.losses, self.summary.what_if
        if losses is None or numbers is None or not self.has_back_traces:
            return False
        return self.tracing_ns * self.gpu_ns > HALF * losses.host_ns * numbers.step_ns

    @cached_property
    def host_gaps(self) -> dict[tuple[str, str], tuple[int, int]]:
        """Idle time (ns) and gaps of GPUs while the host was late, by range and call, the longest time first."""
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for gpu in self.gpus:
            for cause in gpu.idle_causes or []:
                if cause.cause == "host":
                    ns, gaps = sums.get((cause.range, cause.call), (0, 0))
                    sums[cause.range, cause.call] = ns + cause.ns, gaps + cause.gaps
        return dict(sorted(sums.items(), key=lambda item: -item[1][0]))

    @cached_property
    def host_calls(self) -> Counter[str]:
        """Idle time (ns) of GPUs while the host was late, by call, "" for none."""
        return sum_by_key((call, ns) for (_, call), (ns, _) in self.host_gaps.items())

    @property
    def gil_ns(self) -> int:
        """How long threads waited for Python's lock (GIL), over all threads."""
        return sum(call.total_ns for call in self.summary.calls if call.name == GIL_WAIT)

    @cached_property
    def host_causes(self) -> dict[HostCause, CauseTime]:
        """Why hosts launched late, as far as reports show it, the longest time first."""
        return dict(sorted(sum_host_causes(self.gpus).items(), key=lambda item: -item[1].ns))

    @cached_property
    def queued_waits(self) -> Counter[str]:
        """Idle time (ns) of GPUs after the next operation was launched, by what it waited for, "" if not known."""
        causes = (cause for gpu in self.gpus for cause in gpu.idle_causes or [])
        return sum_by_key((cause.call, cause.ns) for cause in causes if cause.cause in ("queued", "graph"))

    @property
    def host_mpi_calls(self) -> Counter[str]:
        """The part of `host_calls` in MPI calls."""
        return Counter({call: ns for call, ns in self.host_calls.items() if call.startswith("MPI_")})

    @property
    def host_in_mpi_ns(self) -> int:
        """The part of the host-bound time of GPUs (ns) in which hosts were in MPI calls."""
        host_ns = 0 if self.losses is None else self.losses.host_ns
        return round(host_ns * self.host_mpi_calls.total() / max(self.host_calls.total(), 1))

    @property
    def other_kind(self) -> StepKind | None:
        """The kind of steps with most time, if that is much of all, beside the most frequent kind.

        The batches of a serving engine are all its work.
        """
        kinds = [] if self.summary.steps is None else self.summary.steps.kinds
        usual = max(kinds, key=lambda kind: kind.count, default=None)
        whole = sum(kind.total_ns for kind in kinds)
        others = [kind for kind in kinds if kind is not usual and kind.context_requests is None]
        found = max(others, key=lambda kind: kind.total_ns, default=None)
        return found if found is not None and found.total_ns > MUCH * whole else None

    @cached_property
    def slow_steps(self) -> SlowSteps | None:
        """Steps that take much longer than the usual ones; None without any."""
        return find_slow_steps(self.summary)


def find_rank(scenario: Scenario) -> int | None:
    """Return the rank that a change makes as fast as the others; None for other changes."""
    change = scenario.only
    ranks = None if change is None or change.target != what.RANK else change.ranks
    return ranks[0] if ranks is not None and len(ranks) == 1 else None


def is_launch(change: Change) -> bool:
    """Return whether a change is one of a launch call."""
    return change.target == what.CALL and is_launch_call(change.name)


def keeps_kernels(change: Change) -> bool:
    """Return whether somebody with a slow host can make a change: kernels launch as before, and in no less time."""
    return not is_launch(change) and not (change.target == what.RANGE and change.factor)


def is_launch_call(name: str) -> bool:
    """Return whether a call launches kernels or graphs."""
    return name.startswith(_LAUNCHES)


def is_worth(scenario: Scenario) -> bool:
    """Return whether a change saves something measurable."""
    return scenario.connected and scenario.measurable and scenario.saving_ns > 0


def count_operator_ranges(summary: JobSummary) -> float:
    """Return the number of ranges of PyTorch's operators per kernel, if they slow the host; 0 without many of them."""
    kernels = sum(kernel.count for kernel in summary.kernels)
    operators = [numbers for numbers in summary.ranges if _OPERATORS.search(numbers.name)]
    ranges = sum(task.count for numbers in operators for task in numbers.tasks)
    losses = None if summary.efficiency is None else choose_window(summary.efficiency, summary.steps).numbers.losses
    if losses is None or losses.host_ns < _LEAST_HOST * sum(part.ns for part in list_parts(losses)):
        return 0
    return ranges / kernels if kernels and ranges >= _MANY_RANGES * kernels else 0
