"""Groups what made tasks late by reason and NVTX range, as the text shows it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from nsys2prv_ng.summary.model import Culprit, LateCost


class LateRow(NamedTuple):
    """One task, reason and NVTX range: what others waited for longest in it, how often, and how long (ns)."""

    rank: int | None
    task: str
    reason: str
    range: str
    what: str
    """The call of the late thread, or the operation that ended late; empty for none."""
    what_ns: int
    """The part of `ns` that is due to it."""
    origins: list[str]
    """Tasks that delayed it, by name; those that cost most first."""
    times: int
    """Late kernels and calls of which this is the main reason."""
    ns: int


class MainReason(NamedTuple):
    """The reason of a task for which others waited longest: that time (ns), and its largest row."""

    reason: str
    ns: int
    row: LateRow


def group_costs(costs: Sequence[LateCost], culprits: Sequence[Culprit]) -> list[LateRow]:
    """Return the rows of all tasks, the longest waiting first."""
    parts: dict[tuple[str, str, str], list[LateCost]] = defaultdict(list)
    for cost in costs:
        parts[cost.task, cost.reason, cost.range].append(cost)
    times: Counter[tuple[str, str, str]] = Counter()
    origins: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for culprit in culprits:
        key = culprit.task, culprit.reason, culprit.range
        times[key] += culprit.times
        if culprit.origin_task:
            origins[key][culprit.origin_task] += culprit.ns
    rows = [
        _make_row(part, [name for name, _ in origins[key].most_common()], times[key]) for key, part in parts.items()
    ]
    return sorted(rows, key=lambda row: (-row.ns, row.task, row.reason, row.range))


def _make_row(costs: Sequence[LateCost], origins: list[str], times: int) -> LateRow:
    sums: Counter[str] = Counter()
    for cost in costs:
        sums[cost.call or cost.operation] += cost.ns
    what = min(sums, key=lambda name: (-sums[name], name))
    first = costs[0]
    return LateRow(
        first.rank, first.task, first.reason, first.range, what, sums[what], origins, times, sum(sums.values())
    )


def find_main_reasons(rows: Sequence[LateRow]) -> dict[str, MainReason]:
    """Return the main reason of each task, by its name."""
    sums: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], LateRow] = {}
    for row in rows:
        sums[row.task, row.reason] += row.ns
        first.setdefault((row.task, row.reason), row)
    main: dict[str, MainReason] = {}
    for (task, reason), ns in sorted(sums.items(), key=lambda item: (-item[1], item[0])):
        main.setdefault(task, MainReason(reason, ns, first[task, reason]))
    return main
