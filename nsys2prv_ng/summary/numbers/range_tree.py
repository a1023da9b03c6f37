"""GPU time by NVTX range, as a tree of ranges."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.summary.numbers.kernel_activity import UnitActivity

MOST_NODES = 2_000
"""Most ranges in the tree of a report, and of a job: those with most GPU time."""
DEEPEST = 32
"""Most ranges within each other: what deeper ranges launch belongs to the deepest one that counts."""


@dataclass(frozen=True, kw_only=True)
class RangeNode:
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
    activity: UnitActivity | None = None
    """While kernels launched in the range or in a range within it run; null with fewer than five samples, and in
    summaries of older versions."""


def list_paths(tree: Sequence[RangeNode]) -> list[tuple[str, ...]]:
    """Return the names of each node and of the nodes around it, the outermost first; ("",) for no range."""
    paths: list[tuple[str, ...]] = []
    around: list[str] = []
    for node in tree:
        around = [*around[: node.depth], node.name]
        paths.append(tuple(around))
    return paths
