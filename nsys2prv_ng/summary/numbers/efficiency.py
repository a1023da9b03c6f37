"""The efficiencies of POP and TALP for a job and the pace of its steps, for programs and for the text.

Efficiencies are numbers from 0 to 1; where nothing is useful they are 0. Those of a tree multiply to the last bit, in
the order in which they are declared: `parallel` is the product of the floats. From the exact ratio of the times it
differs by a few units in the last place at most. The trees of host and device are not to be multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class DeviceEfficiency:
    """Efficiencies of GPUs: parallel = load_balance x communication x orchestration.

    With U the useful time of a GPU, A its useful time and its communication and copies that do not overlap with it, and
    T the window: mean U / max U, max U / max A, max A / T. The two maxima may be those of different GPUs. Graphs in
    which NCCL may be (`whole_graph_ns`) are communication.
    """

    parallel: float
    load_balance: float
    communication: float
    orchestration: float


@dataclass(frozen=True, kw_only=True)
class HostEfficiency:
    """Efficiencies of main threads: parallel = mpi_parallel x offload.

    With O the time of a thread outside of MPI and U that outside of MPI and CUDA: mpi_load_balance = mean O / max O,
    mpi_communication = max O / T, mpi_parallel is their product, and offload = sum of U / sum of O. With N the largest
    mean O of the threads of one node: mpi_balance_in_nodes = N / max O and mpi_balance_of_nodes = mean O / N, whose
    product is mpi_load_balance (TALP, perf_metrics.c).
    """

    parallel: float
    mpi_parallel: float
    mpi_load_balance: float
    mpi_communication: float
    offload: float
    mpi_balance_in_nodes: float
    mpi_balance_of_nodes: float


@dataclass(frozen=True, kw_only=True)
class EfficiencyTrees:
    """Efficiencies in one convention; None where there are no GPUs, or no main threads. The host has no convention."""

    device: DeviceEfficiency | None
    host: HostEfficiency | None


@dataclass(frozen=True, kw_only=True)
class IdleInRange:
    """Time in which GPUs were idle while the thread that launched next was in an NVTX range ("": in none)."""

    range: str
    ns: int


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Time of all GPUs in a window, as parts that add up to the window times the GPUs.

    `compute_ns` is the only part that is certain to be useful in both conventions. `whole_graph_ns` is of CUDA graphs
    that were traced as a whole, while no other kernel computes: compute or communication. `waiting_ns`, `moving_ns` and
    `not_split_ns` is communication while nothing computes, `memory_ns` copies and sets while no kernel runs. Then a GPU
    is idle between operations: the thread that launches next is late (`host_ns`), the operation was launched before
    (`queued_ns`), it is a node of a CUDA graph (`graph_ns`), no launch is recorded (`unknown_ns`), or the gap goes on
    after the chosen time (`cut_ns`).
    """

    devices: int
    compute_ns: int
    waiting_ns: int
    moving_ns: int
    not_split_ns: int
    memory_ns: int
    host_ns: int
    queued_ns: int
    graph_ns: int
    unknown_ns: int
    cut_ns: int
    before_first_ns: int
    """Before the first operation of a capture."""
    after_last_ns: int
    """After the last operation of a capture."""
    not_captured_ns: int
    """While no report with operations of the GPU was captured."""
    outside_ns: int
    """After the own ranges of the GPU's tasks, which are shorter than the longest of any task."""
    idle_by_range: list[IdleInRange] = field(default_factory=list)
    """`host_ns` by range; for steps and ranges empty."""
    compute_by_class: dict[str, int] = field(default_factory=dict)
    """`compute_ns` by kernel class, to which it adds up: most time first, then by name.

    Of kernels that run at a time on a GPU, that counts which began first; of several that began first, the longest.
    Graphs that were traced as a whole are a class, if no NCCL can be in them. "not selected": kernels that the user
    did not choose. Empty in summaries of versions without it.
    """
    whole_graph_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class WindowEfficiency:
    """Efficiencies in windows of `window_ns` each, in both conventions on what kernels of NCCL are."""

    window_ns: int
    threads: int
    """Main threads that count: those of processes with events of GPUs, MPI or NCCL."""
    nccl_as_communication: EfficiencyTrees
    """As in BasicAnalysis."""
    nccl_as_useful: EfficiencyTrees
    """As in TALP."""
    losses: Losses | None
    """None where there are no GPUs."""


@dataclass(frozen=True, kw_only=True)
class StepEfficiency(WindowEfficiency):
    """Efficiencies in one step: each rank's own range counts, and the window is the longest of any task or GPU.

    The range of a GPU is that of its tasks together: where tasks share it, the window is longer than any range of them.
    """

    number: int = 0


@dataclass(frozen=True, kw_only=True)
class RangeEfficiency(WindowEfficiency):
    """Efficiencies in an NVTX range that repeats: each rank's own ranges count, and the window is the longest sum."""

    domain: str = ""
    name: str = ""
    occurrences: int = 0
    """How often it counts, over all tasks."""
    tasks: int = 0


@dataclass(frozen=True, kw_only=True)
class EfficiencyNumbers(WindowEfficiency):
    """Efficiencies of a job in the chosen time; without one, from the first begin of a capture to the last end."""

    windows_ns: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end of each window, from time 0 of the trace."""
    is_chosen: bool = False
    """Whether the user chose the time; otherwise it is the capture."""
    in_steps: WindowEfficiency | None = None
    """The same from the first begin of a step to the last end of one, without the warm-up; None without steps."""
    steps_ns: tuple[int, int] | None = None
    """Begin of the first step of these and end of the last one, from time 0 of the trace."""
    in_work: WindowEfficiency | None = None
    """The same in the time in which GPUs work; None with steps, with a chosen time, or above half of the capture."""
    work_ns: tuple[int, int] | None = None
    """Begin of the first operation of a GPU and end of the last one, from time 0 of the trace; None as `in_work`."""
    steps: list[StepEfficiency] = field(default_factory=list)
    ranges: list[RangeEfficiency] = field(default_factory=list)
    """Those with most time first, at most 100."""


@dataclass(frozen=True, kw_only=True)
class StepOfRank:
    """Steps of a task: their median time, and that without the time in which its thread waits for other ranks."""

    rank: int | None
    task: str
    median_ns: int
    median_without_waiting_ns: int


@dataclass(frozen=True, kw_only=True)
class StepNumbers:
    """The steps of a program, without its warm-up. A step takes as long as the longest range of any task."""

    name: str
    count: int
    warmup: int
    """Steps before these, which do not count."""
    first: int
    """Number of the first of them."""
    last: int
    median_ns: int
    min_ns: int
    max_ns: int
    spread: float
    """(max - min) / median."""
    slowest: int
    """Number of the slowest step."""
    drift: float | None
    """Median of the differences of each step of the later half from each of the earlier one, / median of all steps.

    None for less than two steps.
    """
    ranks: list[StepOfRank]
    turns_ns: tuple[int, int] | None = None
    """Medians of short and of long steps, if these take turns."""
