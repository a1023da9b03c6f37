"""Refuses reports that are not from one job: their trace would combine unrelated runs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.tree import ObjectTree, group_reports_by_task

_CLOCK_ERROR = 10 * 10**9
"""Clocks that are set, even if nothing else aligns them, differ by less than this (ns)."""


def refuse_several_jobs(reports: Sequence[ReportRecords], tree: ObjectTree) -> None:
    """Raise UsageError if two processes have the same rank, or if reports share no time.

    Capture ranges of one run share no time either, but they share a process. Expects all records, on the common clock.
    """
    if tree.claimed_ranks:
        rank = min(tree.claimed_ranks)
        tasks = np.flatnonzero([known == rank for known in tree.ranks])
        files = [
            report.path.name
            for report, rows in zip(reports, tree.rows, strict=True)
            if np.isin(tree.task_of_row[rows[rows >= 0]], tasks).any()
        ]
        where = f" ({', '.join(files[:2])})" if len(files) > 1 else ""
        _refuse(f"{tree.claimed_ranks[rank]} processes are rank {rank}{where}")
    spans = []
    for group in group_reports_by_task([report.places for report in reports], tree):
        limits = [(limit, reports[i].path.name) for i in group if (limit := reports[i].limits())]
        if limits:
            spans.append((min(limits)[0][0], max(limit[1] for limit, _ in limits), min(limits)[1]))
    spans.sort()
    for end, (begin, _, name) in zip(accumulate((end for _, end, _ in spans), max), spans[1:], strict=False):
        if begin - end > _CLOCK_ERROR:
            _refuse(f"{name} begins {(begin - end) / 1e9:,.0f} s after the end of all reports before it")


def _refuse(what: str) -> None:
    raise UsageError(f"{what}: name the reports of one job only, or allow others", see=("several_jobs",))
