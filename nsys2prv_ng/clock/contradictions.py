"""Finds reports of one host whose clocks differ, by the collectives of its ranks.

Reports of one host have one clock, unless the system clock was stepped between the starts of their captures, or several
machines have the same host name. Then ranks seem to leave collectives before others have entered them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.clock.alignment import LEAST_CAUSAL
from nsys2prv_ng.clock.matches import NEVER_ENTERS, NEVER_LEAVES, mark_roles
from nsys2prv_ng.operations.matching import Operations


def part_nodes(operations: Operations, nodes: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the node of each report, where reports whose clocks differ are on nodes of their own.

    Also return the number of each new node and of the node that its reports were on. `operations` have times of
    uncorrected UTC (ns), `nodes` the node of each report. Reports without a common operation stay on one node.
    """
    parted, origins = list(nodes), []
    for node in sorted({node for node in nodes if nodes.count(node) > 1}) if len(operations) else ():
        reports = [report for report, other in enumerate(nodes) if other == node]
        enter, leave = _show_reports(operations, np.array(reports))
        if not _contradict(enter.max(1), leave.min(1)):
            continue
        groups: list[list[int]] = []
        for i in range(len(reports)):
            own = next((group for group in groups if not any(_differ(enter, leave, i, j) for j in group)), None)
            if own is None:
                groups.append(own := [])
            own.append(i)
        for group in groups[1:]:
            origins.append((max(parted) + 1, node))
            for i in group:
                parted[reports[i]] = origins[-1][0]
    return parted, origins


def _show_reports(operations: Operations, reports: IntArray) -> tuple[IntArray, IntArray]:
    """Return when the last rank of each report entered each operation, and when the first left it (n x reports, ns)."""
    table, column = operations.table, np.full(int(operations.table.report.max(initial=0)) + 1, -1, np.int64)
    reports = reports[reports < column.size]
    column[reports] = np.arange(reports.size)
    at = column[table.report[operations.part]]
    number, part = np.repeat(np.arange(len(operations)), np.diff(operations.first))[at >= 0], operations.part[at >= 0]
    enters, leaves = mark_roles(table, part)
    enter, leave = (np.full((len(operations), reports.size), never) for never in (NEVER_ENTERS, NEVER_LEAVES))
    at = at[at >= 0]
    np.maximum.at(enter, (number[enters], at[enters]), table.begin[part[enters]])
    np.minimum.at(leave, (number[leaves], at[leaves]), table.end[part[leaves]])
    return enter, leave


def _differ(enter: IntArray, leave: IntArray, a: int, b: int) -> bool:
    return _contradict(enter[:, a], leave[:, b]) or _contradict(enter[:, b], leave[:, a])


def _contradict(enter: IntArray, leave: IntArray) -> bool:
    """Return whether too many of the operations with both times end before they could."""
    checked: BoolArray = (enter != NEVER_ENTERS) & (leave != NEVER_LEAVES)
    return bool(np.count_nonzero(checked & (leave < enter)) > (1 - LEAST_CAUSAL) * np.count_nonzero(checked))
