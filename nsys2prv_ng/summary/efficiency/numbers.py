"""The efficiencies of POP and TALP for a job, and the numbers of its steps, for programs and for the text.

Efficiencies are numbers from 0 to 1; they are 0 if nothing is useful. The factors of a tree multiply to the last bit,
in the order in which they are declared: `parallel` is the product of the floats. It differs from the exact ratio of the
times by a few units in the last place at most. Do not multiply the trees of host and device with each other.
"""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.value_class import ValueClass


class DeviceEfficiency(ValueClass, kw_only=True):
    """Efficiencies of GPUs: parallel = load_balance x communication x orchestration.

    U is the useful time of a GPU. A is U plus the communication and copies that do not overlap with it. T is the
    window. The three factors are mean U / max U, max U / max A and max A / T. The two maxima may come from different
    GPUs. Graphs that may contain NCCL (`whole_graph_ns`) count as communication.

    POP divides the same product in another way: parallel = load_balance x pop_communication, and pop_communication =
    max U / T = serialisation x transfer. I is the window on an ideal network, which moves data in no time: T less what
    a replay of the job saves, at least max U. Then serialisation = max U / I, and transfer = I / T. The three are None
    in single steps and ranges, in a chosen time unless it is steps, if nothing moves between ranks, and if NCCL counts
    as useful. They are also None if more than 5 % of the window may be waiting or moving data: of GPUs (`not_split_ns`
    and `whole_graph_ns`), or of main threads, in MPI calls without a known partner.
    """

    parallel: float
    load_balance: float
    communication: float
    orchestration: float
    pop_communication: float | None = None
    serialisation: float | None = None
    transfer: float | None = None


class HostEfficiency(ValueClass, kw_only=True):
    """Efficiencies of main threads: parallel = mpi_parallel x offload.

    O is the time of a thread outside MPI, U its time outside MPI and CUDA, and T the window. Then mpi_load_balance =
    mean O / max O, mpi_communication = max O / T, mpi_parallel is their product, and offload = sum of U / sum of O.
    N is the largest mean O of the threads of one node. Then mpi_balance_in_nodes = N / max O and mpi_balance_of_nodes =
    mean O / N; their product is mpi_load_balance (TALP, perf_metrics.c).
    """

    parallel: float
    mpi_parallel: float
    mpi_load_balance: float
    mpi_communication: float
    offload: float
    mpi_balance_in_nodes: float
    mpi_balance_of_nodes: float
    mpi_serialisation: float | None = None
    mpi_transfer: float | None = None


class EfficiencyTrees(ValueClass, kw_only=True):
    """Efficiencies in one convention; None without GPUs, or main threads. Conventions do not affect the host."""

    device: DeviceEfficiency | None
    host: HostEfficiency | None


class IdleInRange(ValueClass, kw_only=True):
    """Time in which GPUs were idle while the thread that launched next was in an NVTX range ("": in no range)."""

    range: str
    ns: int


class Losses(ValueClass, kw_only=True):
    """Time of all GPUs in a window, as parts that add up to the window times the GPUs.

    Only `compute_ns` is certain to be useful in both conventions. `whole_graph_ns` is time in CUDA graphs that were
    traced as a whole, while no other kernel computes: compute or communication. `waiting_ns`, `moving_ns` and
    `not_split_ns` are communication while nothing computes. `memory_ns` is copies and sets while no kernel runs.

    The other parts are idle time. Between operations, the launch call of the next one has not returned (`host_ns`), or
    has (`queued_ns`), the next operation is a node of a CUDA graph (`graph_ns`), its launch is not recorded
    (`unknown_ns`), or the gap goes on after the chosen time (`cut_ns`).
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
    """After the ranges of the GPU's tasks, if they are shorter than the longest range of any task."""
    idle_by_range: list[IdleInRange] = field(default_factory=list)
    """`host_ns` by range; empty for steps and ranges."""
    compute_by_class: dict[str, int] = field(default_factory=dict)
    """Parts of `compute_ns` by kernel class, the longest time first, then by name.

    While kernels overlap on a GPU, the earliest counts; on a tie, the longest. Graphs that were traced as a whole are a
    class of their own, if they cannot contain NCCL. "not selected": kernels that the user did not choose. Empty in
    summaries of older versions.
    """
    whole_graph_ns: int = 0


class WindowEfficiency(ValueClass, kw_only=True):
    """Efficiencies in windows of `length_ns` each, in both conventions on what NCCL kernels are."""

    length_ns: int = field(metadata={"earlier": "window_ns"})
    threads: int
    """The number of main threads of processes with GPU, MPI or NCCL events."""
    nccl_as_communication: EfficiencyTrees
    """The convention of BasicAnalysis."""
    nccl_as_useful: EfficiencyTrees
    """The convention of TALP."""
    losses: Losses | None
    """None without GPUs."""


class StepEfficiency(WindowEfficiency, kw_only=True):
    """Efficiencies in one step (StepNumbers). `length_ns` is its length on the GPUs.

    Without GPU operations, the range of each rank counts, and the window is the longest range of any task.
    """

    number: int = 0
    host_ns: int = 0
    """Length of the step on the hosts: of its longest range on any task."""
    kind: str = ""
    """Name of its kind; "" if all steps are of one kind, and in summaries of older versions."""


class RangeEfficiency(WindowEfficiency, kw_only=True):
    """Efficiencies in an NVTX range that repeats: for each rank its ranges count; the window is their longest sum."""

    domain: str = ""
    name: str = ""
    occurrences: int = 0
    """How often the range occurs, over all tasks."""
    tasks: int = 0


class EfficiencyNumbers(WindowEfficiency, kw_only=True):
    """Efficiencies of a job in the chosen time, or in the steps after the warm-up.

    Without a chosen time and steps, from the first start of a capture to the last end.
    """

    windows_ns: list[tuple[int, int]] = field(default_factory=list)
    """Start and end of each window, from time 0 of the trace."""
    is_chosen: bool = False
    """Whether the user chose a time, and not only steps."""
    in_steps: WindowEfficiency | None = None
    """Efficiencies in the steps that `steps` lists; None without steps."""
    steps_ns: tuple[int, int] | None = None
    """Start of the first of these steps and end of the last, from time 0 of the trace."""
    in_work: WindowEfficiency | None = None
    """Efficiencies while GPUs work; None with steps, with a chosen time, or above half of the capture."""
    work_ns: tuple[int, int] | None = None
    """Start of the first GPU operation and end of the last, from time 0 of the trace; None if `in_work` is None."""
    steps: list[StepEfficiency] = field(default_factory=list)
    ranges: list[RangeEfficiency] = field(default_factory=list)
    """The longest time first, at most 100 ranges."""


class StepOfRank(ValueClass, kw_only=True):
    """Median times of the steps of a task: on the GPUs, on its host, and on the GPUs without waiting for other ranks.

    Without GPU operations, all are of the host.
    """

    rank: int | None
    task: str
    median_ns: int
    host_median_ns: int
    median_without_waiting_ns: int


class StepKind(ValueClass, kw_only=True):
    """The steps of one kind (steps/kinds.py): their lengths, and the requests and tokens of their batches."""

    name: str
    count: int
    total_ns: int
    median_ns: int
    losses: Losses | None = None
    """Time of all GPUs in these steps; None without GPUs, or if not each of the steps was measured."""
    context_requests: int | None = None
    """By the markers of a serving engine; None if these do not have them."""
    context_tokens: int | None = None
    generation_requests: int | None = None
    generation_tokens: int | None = None


class StepNumbers(ValueClass, kw_only=True):
    """The steps of a program after its warm-up, or those that the user chose.

    A step ends when the last rank's GPUs have ended what it launched in the step, and starts when the step before it
    ended. So the steps add up to their window. Without GPU operations, a step is as long as its longest range on any
    task (steps/spans.py).
    """

    name: str
    delimiter: str
    """What recurs at the end of steps that no NVTX ranges mark: `CUDA graph`, or the name of a kernel; else ""."""
    similarity: float
    """How similar the operations of steps are that no ranges mark, from 0 to 1 (steps/work.py); else 1."""
    ends_on: str
    """Where `median_ns` and its siblings are measured: "gpu", or "host" without GPU operations."""
    window_ns: tuple[int, int]
    """Start of the first step and end of the last, from time 0 of the trace."""
    host_median_ns: int
    """Median over the steps of the longest range on any host."""
    count: int
    warmup: int
    """The number of warm-up steps before these, which do not count."""
    first: int
    """Number of the first step."""
    last: int
    median_ns: int
    min_ns: int
    max_ns: int
    spread: float
    """(max - min) / median."""
    slowest: int
    """Number of the slowest step."""
    drift: float | None
    """Median difference between each step of the later half and each step of the earlier half / median of all steps.

    None for less than two steps.
    """
    ranks: list[StepOfRank]
    turns_ns: tuple[int, int] | None = None
    """Medians of short and of long steps, if they alternate."""
    kinds: list[StepKind] = field(default_factory=list)
    """The longest time first; empty if all steps are of one kind, and in summaries of older versions."""
    repeats: int = 1
    """How many shorter periods each step contains that no ranges mark, as sweeps of a solver; else 1."""
