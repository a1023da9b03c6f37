"""Puts into words why ranks were late, by reason and NVTX range, how fast NCCL moves data, and what is not known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.report.export_settings import describe_payload_remedy
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.waits.numbers import Bandwidth, Culprit, LateCost, RankWaits, WaitNumbers
from nsys2prv_ng.text.formatting import count_noun, format_bytes
from nsys2prv_ng.text.names import NO_CALL, NO_RANGE

LAUNCH = types.LATE_REASONS[types.LATE_LAUNCH]
DEVICE = types.LATE_REASONS[types.LATE_DEVICE]
DEPENDENCY = types.LATE_REASONS[types.LATE_DEPENDENCY]
CALL = types.LATE_REASONS[types.LATE_CALL]
UNKNOWN = types.LATE_REASONS[types.LATE_UNKNOWN]
NOT_SELECTED = "not selected"
"""The reason is on ranks, or in time, that the user did not choose. The trace shows it as unknown."""

ON_HOST = LAUNCH, CALL


class LateRow(NamedTuple):
    """One task, reason and NVTX range: what cost others most in it, how often, and how long (ns) they waited.

    `whats`: calls of the late thread, or operations that ended late ("" for none), and their parts of `ns`, largest
    first. `origins`: names of the tasks that delayed this one, the most expensive first. `times`: number of late
    kernels and calls whose main reason this is.
    """

    rank: int | None
    task: str
    reason: str
    range: str
    whats: list[tuple[str, int]]
    origins: list[str]
    times: int
    ns: int

    @property
    def what(self) -> str:
        """The call or operation that cost most; "" for none."""
        return self.whats[0][0]

    @property
    def range_label(self) -> str:
        """The range for a column; without one, NO_RANGE if the host was late."""
        return self.range or (NO_RANGE if self.reason in ON_HOST else "-")

    @property
    def what_label(self) -> str:
        """The call or operation for a column; without one, NO_CALL if the host was late."""
        return self.what or (NO_CALL if self.reason in ON_HOST else "-")


class MainReason(NamedTuple):
    """The reason that cost others most for one task: the cost (ns), and its rows, the largest first."""

    reason: str
    ns: int
    rows: list[LateRow]

    @property
    def row(self) -> LateRow:
        """The row with most of the cost."""
        return self.rows[0]

    @property
    def label(self) -> str:
        """What made the task late, for a column: for the host the range, else the call; for a GPU the operation."""
        if self.reason in ON_HOST:
            return self.row.range or self.row.what or NO_CALL
        return self.row.what or f"({self.reason})"


def list_stragglers(waits: WaitNumbers) -> list[tuple[RankWaits, MainReason | None]]:
    """Return all tasks and why others waited for them, by how long they did in NCCL and MPI, the longest first.

    The reason is None if nobody waited for the task.
    """
    main = find_main_reasons(group_costs(waits.costs, waits.culprits))
    ranks = sorted(waits.ranks, key=lambda rank: -rank.all_caused_ns)
    return [(rank, main.get(rank.task)) for rank in ranks]


def group_costs(costs: Sequence[LateCost], culprits: Sequence[Culprit]) -> list[LateRow]:
    """Return the rows of all tasks, the most expensive first."""
    parts = group_by_key(((cost.task, cost.reason, cost.range), cost) for cost in costs)
    times: Counter[tuple[str, str, str]] = Counter()
    origins: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for culprit in culprits:
        key = culprit.task, culprit.reason, culprit.range
        times[key] += culprit.times
        if culprit.origin_task:
            origins[key][culprit.origin_task] += culprit.ns
    rows = [_make_row(own, [name for name, _ in origins[key].most_common()], times[key]) for key, own in parts.items()]
    return sorted(rows, key=lambda row: (-row.ns, row.task, row.reason, row.range))


def _make_row(costs: Sequence[LateCost], origins: list[str], times: int) -> LateRow:
    sums = sum_by_key((cost.call or cost.operation, cost.ns) for cost in costs)
    whats = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    first = costs[0]
    return LateRow(first.rank, first.task, first.reason, first.range, whats, origins, times, sum(sums.values()))


def find_main_reasons(rows: Sequence[LateRow]) -> dict[str, MainReason]:
    """Return the main reason of each task, by its name."""
    sums = sum_by_key(((row.task, row.reason), row.ns) for row in rows)
    parts = group_by_key(((row.task, row.reason), row) for row in rows)
    main: dict[str, MainReason] = {}
    for (task, reason), ns in sorted(sums.items(), key=lambda item: (-item[1], item[0])):
        main.setdefault(task, MainReason(reason, ns, parts[task, reason]))
    return main


class BandwidthRow(NamedTuple):
    """Collectives of one function, number of ranks and printed size, over communicators of a name; rates in bytes/s.

    `bytes`: the sum of their sizes. `operations`: the number of collectives. `ns`: their transfer time, summed.
    `communicator`: what the communicators are for, or their name; without one, the only communicator, or their number.
    """

    function: str
    ranks: int
    size: str
    bytes: int
    operations: int
    ns: int
    algorithm_bytes_per_s: float
    bus_bytes_per_s: float
    communicator: str


def list_bandwidth(bandwidth: Sequence[Bandwidth]) -> list[BandwidthRow]:
    """Return the bandwidth by function, number of ranks and size, most bytes first."""
    groups = group_by_key(
        ((part.function, part.ranks, format_bytes(part.bytes), part.communicator_name), part) for part in bandwidth
    )
    rows = []
    for (function, ranks, size, name), parts in groups.items():
        count, ns = sum(part.count for part in parts), sum(part.ns for part in parts)
        algorithm = sum(part.algorithm_bytes_per_s * part.ns for part in parts) / ns
        bus = sum(part.bus_bytes_per_s * part.ns for part in parts) / ns
        amount = sum(part.bytes * part.count for part in parts)
        communicator = name or _name_unnamed(parts)
        rows.append(BandwidthRow(function, ranks, size, amount, count, ns, algorithm, bus, communicator))
    return sorted(rows, key=lambda row: -row.bytes)


def _name_unnamed(parts: Sequence[Bandwidth]) -> str:
    """Return the only communicator in words, or the number of communicators; empty if they are not known."""
    labels = {part.communicator_label for part in parts}
    if "" in labels:
        return ""
    return labels.pop() if len(labels) == 1 else f"{len(labels):,} communicators"


def describe_missing_payload(waits: WaitNumbers | None, reports: int) -> list[str]:
    """Return what is not known if some of the reports lack payload, and the remedy; [] if no report does."""
    if waits is None or not waits.reports_without_payload:
        return []
    remedy = waits.payload_remedy or describe_payload_remedy([])
    return [
        f"no payload of NCCL's calls in {waits.reports_without_payload:,} of {count_noun(reports, 'report')}: "
        f"collectives are matched by order alone, sends and receives not at all, and sizes are not known; {remedy}"
    ]
