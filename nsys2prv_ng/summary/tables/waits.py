"""The text on waits: a table of the tasks, one of why they were late, and one of bandwidth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

from nsys2prv_ng.summary.layout import MOST_ROWS, count_more, make_table, name_task, wrap
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.late import LateRow, find_main_reasons, group_costs
from nsys2prv_ng.summary.numbers.waits import MpiWaits, WaitNumbers
from nsys2prv_ng.summary.tables.tables import tabulate_bandwidth
from nsys2prv_ng.text.formatting import format_time

_LAST_AND_CAUSED = "last: collectives in which the others waited for it; caused: how long all others waited for it"

_Row = TypeVar("_Row")


def describe_waits(summary: JobSummary, width: int) -> list[list[str]]:
    """Return the sections on waits, each as its lines."""
    waits = summary.waits
    if waits is None:
        return []
    rows = group_costs(waits.costs, waits.culprits)
    ranks = _tabulate_ranks(waits, rows, width) if waits.split else []
    mpi = _tabulate_mpi(waits, width, has_nccl=bool(ranks)) if waits.split else []
    return [
        ranks,
        mpi,
        _tabulate_reasons(rows, width),
        _tabulate_bandwidth(waits, width),
        *(wrap(text, width) for text in describe_limits(waits)),
    ]


def _tabulate_ranks(waits: WaitNumbers, late: Sequence[LateRow], width: int) -> list[str]:
    ranks = [rank for rank in waits.ranks if rank.nccl_ns or rank.caused_wait_ns]
    if not ranks:
        return []
    listed = _select_worst(ranks, lambda rank: (rank.caused_wait_ns, rank.wait_ns))
    main = find_main_reasons(late)
    has_unsplit = any(rank.unsplit_ns for rank in ranks)
    rows = [
        [
            name_task(rank.rank, rank.task),
            main[rank.task].label if rank.task in main else "-",
            format_time(rank.nccl_ns),
            format_time(rank.wait_ns),
            "-" if rank.exposed_wait_ns is None else format_time(rank.exposed_wait_ns),
            format_time(rank.transfer_ns),
            *([format_time(rank.unsplit_ns)] if has_unsplit else []),
            f"{rank.last:,}",
            format_time(rank.caused_wait_ns),
        ]
        for rank in listed
    ]
    parts = ["waiting", "exposed", "moving", *(["not split"] if has_unsplit else [])]
    titles = ["", "late because of", "in NCCL", *parts, "last", "caused"]
    caption = (
        f"Time of each rank in NCCL kernels (exposed: waiting while its GPU computes nothing; {_LAST_AND_CAUSED}):"
    )
    table = make_table(titles, rows, width, texts=2, gap=" ")
    return [*wrap(caption, width), *table, *_describe_more(len(ranks) - len(listed))]


def _tabulate_mpi(waits: WaitNumbers, width: int, *, has_nccl: bool) -> list[str]:
    ranks = [(rank, rank.mpi) for rank in waits.ranks if rank.mpi is not None]
    if not ranks:
        return []
    listed = _select_worst(ranks, lambda pair: (pair[1].caused_wait_ns, pair[1].wait_ns))
    has_unsplit = any(mpi.unsplit_ns for _, mpi in ranks)
    rows = [[name_task(rank.rank, rank.task), *_format_mpi(mpi, has_unsplit=has_unsplit)] for rank, mpi in listed]
    titles = ["", "in MPI", "waiting", "moving", *(["not split"] if has_unsplit else []), "last", "caused"]
    columns = "columns as for NCCL" if has_nccl else _LAST_AND_CAUSED
    caption = f"Time of each rank in MPI calls that carry out collectives and messages ({columns}):"
    return [*wrap(caption, width), *make_table(titles, rows, width), *_describe_more(len(ranks) - len(listed))]


def _format_mpi(mpi: MpiWaits, *, has_unsplit: bool) -> list[str]:
    times = [mpi.mpi_ns, mpi.wait_ns, mpi.transfer_ns, *([mpi.unsplit_ns] if has_unsplit else [])]
    return [*map(format_time, times), f"{mpi.last:,}", format_time(mpi.caused_wait_ns)]


def _select_worst(ranks: Sequence[_Row], key: Callable[[_Row], tuple[int, int]]) -> list[_Row]:
    """Return the MOST_ROWS rows for which others wait most, in their own order."""
    worst = sorted(range(len(ranks)), key=lambda i: key(ranks[i]), reverse=True)[:MOST_ROWS]
    return [ranks[i] for i in sorted(worst)]


def _describe_more(count: int) -> list[str]:
    return count_more(count, " for which others wait less")


# ---- why ranks were late ---------------------------------------------------------------------------------------------


def _tabulate_reasons(rows: Sequence[LateRow], width: int) -> list[str]:
    """Return a table by reason of the rows that cost most; with the number and sum of the others, it adds up."""
    if not rows:
        return []
    groups: dict[str, list[LateRow]] = defaultdict(list)
    for row in rows:
        groups[row.reason].append(row)
    by_time = sorted(groups.items(), key=lambda item: -sum(row.ns for row in item[1]))
    listed = [(reason, [row for row in group if row in rows[:MOST_ROWS]]) for reason, group in by_time]
    has_origins = any(row.origins for row in rows)
    titles = ["", "NVTX range", "mostly", *(["delayed by"] if has_origins else []), "times", "waiting"]
    cells = [_format_late_row(row, has_origins=has_origins) for _, group in listed for row in group]
    title, *table = make_table(titles, cells, width, texts=len(titles) - 2)
    origins = "; delayed by: for whom the late rank had waited itself" if has_origins else ""
    caption = (
        f"Why ranks were late, how often mainly for this, and how long the others waited (adds up to caused{origins}):"
    )
    lines = [*wrap(caption, width), title]
    for reason, group in listed:
        whole, shown = groups[reason], sum(row.ns for row in group)
        lines += [f"{reason}: {format_time(sum(row.ns for row in whole))}", *table[: len(group)]]
        table = table[len(group) :]
        if group:
            ns = sum(row.ns for row in whole) - shown
            lines += count_more(len(whole) - len(group), f": {format_time(ns)}")
    return lines


def _format_late_row(row: LateRow, *, has_origins: bool) -> list[str]:
    return [
        name_task(row.rank, row.task),
        row.range_label,
        row.what_label,
        *([_shorten_origins(row.origins)] if has_origins else []),
        f"{row.times:,}" if row.times else "-",
        format_time(row.ns),
    ]


def _shorten_origins(origins: Sequence[str]) -> str:
    """Return the name that cost most, and a sign for others."""
    return ", ".join([*origins[:1], *(".." for _ in origins[1:2])]) or "-"


def _tabulate_bandwidth(waits: WaitNumbers, width: int) -> list[str]:
    table = tabulate_bandwidth(waits.bandwidth)
    if not table.rows:
        return []
    rows = table.rows[:MOST_ROWS]
    lines = make_table(table.titles, rows, width, texts=table.texts)
    return [*wrap(f"{table.caption}:", width), *lines, *count_more(len(table.rows) - len(rows), f" {table.noun}")]


def describe_limits(waits: WaitNumbers) -> list[str]:
    """Return sentences on the kernels and calls whose waiting is not known, and why."""
    texts = []
    if waits.below_uncertainty:
        count = f"{waits.below_uncertainty:,} of {_count_kernels(waits)}"
        texts.append(f"Wait below the uncertainty of the clocks: {count}, which count as moving")
    if waits.not_split:
        reasons = sorted(waits.not_split.items(), key=lambda item: -item[1])
        parts = ", ".join(f"{count:,} ({reason})" for reason, count in reasons)
        count = f"{sum(waits.not_split.values()):,} of {_count_kernels(waits)}"
        texts.append(f"Not split into waiting and moving: {count}: {parts}")
    return texts


def _count_kernels(waits: WaitNumbers) -> str:
    """Return the number of kernels and calls over ranks."""
    kernels, calls = any(rank.nccl_ns for rank in waits.ranks), any(rank.mpi for rank in waits.ranks)
    nouns = [noun for noun, is_any in (("kernels", kernels or not calls), ("calls", calls)) if is_any]
    return f"{waits.split + waits.below_uncertainty + sum(waits.not_split.values()):,} {' and '.join(nouns)}"
