"""Numbers on NVTX ranges: those that repeat, what was launched in them, and GPU time as a tree of ranges."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.value_class import ValueClass

MOST_NODES = 2_000
"""Most ranges in the tree of a report, and of a job: those with most GPU time."""
DEEPEST = 32
"""Most ranges within each other: what deeper ranges launch belongs to the deepest one that counts."""


class RangeNode(ValueClass, kw_only=True):
    """The ranges of one name within the same ranges, over all ranks, and the GPU operations launched in them (ns).

    A tree is a list in the order of its lines: each node stands before the nodes within it, the longest first. What is
    launched in no range is a node of the name "" and depth 0, so the nodes of depth 0 add up to the time of all
    operations: kernels, NCCL's too, graphs that were traced as a whole, copies and sets.
    """

    name: str
    """Numbers and shapes that PyTorch writes into names are cut off; ranges of domains start with the domain.

    `(backward)` within a range has the backward passes of its operators, which ran after it.
    """
    depth: int
    """0 for an outermost range."""
    count: int
    """How often threads opened the range."""
    host_ns: int
    """Time of these ranges on the hosts."""
    operations: int
    gpu_ns: int
    """Time of the operations launched in the range and in the ranges within it."""
    own_ns: int
    """The part of it launched in no range within it."""
    unlisted_ns: int
    """The part of it in ranges that the tree does not list, since there are too many."""
    least_ns: int
    """`gpu_ns` of the task with least of it, among those with GPU operations."""
    most_ns: int


def list_paths(tree: Sequence[RangeNode]) -> list[tuple[str, ...]]:
    """Return the names of each node and of the nodes around it, the outermost first; ("",) for no range."""
    paths: list[tuple[str, ...]] = []
    around: list[str] = []
    for node in tree:
        around = [*around[: node.depth], node.name]
        paths.append(tuple(around))
    return paths


class RangeOfTask(ValueClass, kw_only=True):
    """A repeated range on one task."""

    rank: int | None
    task: str
    count: int
    total_ns: int
    min_ns: int
    max_ns: int
    waiting_ns: int = 0
    """Time in it in which its thread waited for other ranks."""
    gpu_waiting_ns: int = 0
    """`waiting_ns` and the time in which the GPU of the task only waited for other ranks while the thread went on."""
    unsplit_ns: int = 0
    """More time in it that may have been waiting: see summary/ranges/waiting.py."""
    per_step: int = 0
    """How often it occurs in each step; 0 if not equally often in every step, and in summaries of older versions."""

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count

    @property
    def own_mean_ns(self) -> float:
        """Mean without the waiting of its thread."""
        return (self.total_ns - self.waiting_ns) / self.count

    @property
    def needed_mean_ns(self) -> float:
        """Mean without the waiting of its thread and of its GPU."""
        return (self.total_ns - self.gpu_waiting_ns) / self.count

    @property
    def least_needed_mean_ns(self) -> float:
        """Mean without all time that is or may be waiting."""
        return max(0, self.total_ns - self.gpu_waiting_ns - self.unsplit_ns) / self.count


class RepeatedRange(ValueClass, kw_only=True):
    """An NVTX range that threads opened at least three times, at this depth or deeper (1: outermost)."""

    domain: str
    name: str
    depth: int
    tasks: list[RangeOfTask]
    slowest_task: str | None = None
    """The task that takes longest without waiting for others; None if that is not certain."""

    @property
    def count(self) -> int:
        return sum(task.count for task in self.tasks)

    @property
    def total_ns(self) -> int:
        return sum(task.total_ns for task in self.tasks)

    @property
    def spread_ns(self) -> float:
        """Largest mean of a task without waiting less the smallest."""
        means = [task.own_mean_ns for task in self.tasks]
        return max(means) - min(means)


class LaunchedInRange(ValueClass, kw_only=True):
    """Kernels that threads launched in an NVTX range ("": in none), without NCCL; the innermost range counts."""

    range: str
    count: int
    total_ns: int
