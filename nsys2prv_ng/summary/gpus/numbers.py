"""Numbers on each GPU: its activity, its gaps and their causes."""

from __future__ import annotations

from dataclasses import field

from nsys2prv_ng.value_class import ValueClass


class Cause(ValueClass, kw_only=True):
    """Idle time of a GPU with one cause (see analysis/gpus/times.py), and the number of gaps it occurs in."""

    cause: str
    range: str
    call: str
    """What the thread called; for `queued` and `graph`, what the operation waited for. Empty if that is not known."""
    next: str = ""
    """For `host`, the copy between host and GPU that a main thread launched at the end of the gap, or `loaded kernels`,
    if the thread loaded kernels in the gap. Empty for all else."""
    ns: int
    gaps: int


class Sampled(ValueClass, kw_only=True):
    """Samples of threads that kept a GPU waiting (see analysis/gpus/samples.py), by what they were in."""

    source: str
    """"Python", "CPU", or "calls of Python": back traces of the CUDA calls for which GPUs waited."""
    function: str
    """The innermost function of the program, of Python with its file. Empty without one."""
    called: str
    """The function of a library that it called; in samples of a CPU, the function that ran. Empty without one."""
    samples: int
    ns: int = 0
    """Of calls: how long GPUs waited for them."""


class GpuNumbers(ValueClass, kw_only=True):
    """A physical GPU. Its span reaches from its first operation to its last: busy and idle time add up to it."""

    node: str
    gpu: int
    name: str
    ranks: list[int]
    tasks: list[str]
    span_ns: int
    busy_ns: int
    compute_ns: int
    communication_ns: int
    overlap_ns: int
    """Compute and communication at once."""
    memory_ns: int
    idle_ns: int
    gaps: int
    longest_gap_ns: int
    longest_gap_at_ns: int | None
    """Its start, from time 0 of the trace."""
    idle_causes: list[Cause] | None
    """None if the reports lack the events that show them."""
    peak_memory_bytes: int | None
    """Memory in use by the processes of the reports; None if the reports do not record it."""
    whole_graph_ns: int = 0
    """CUDA graphs that were traced as a whole and may contain NCCL kernels; not in `compute_ns`."""
    sampled: list[Sampled] = field(default_factory=list)
    """Most samples first; empty if nsys sampled no host, and in summaries of older versions."""
