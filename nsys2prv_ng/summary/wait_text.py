"""The text on waits: verdicts in words, a table of the tasks, one of culprits, and one of bandwidth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from nsys2prv_ng.summary.layout import MOST_ROWS, NO_CALL, NO_RANGE, clean_name, count_more, make_table, wrap
from nsys2prv_ng.summary.model import Bandwidth, Culprit, JobSummary, MpiWaits, RankWaits, WaitNumbers
from nsys2prv_ng.summary.wait_reasons import CALL, DEPENDENCY, DEVICE, LAUNCH, UNKNOWN
from nsys2prv_ng.text.formatting import format_bytes, format_time

_MOST_VERDICTS = 3
_LEAST_SHARE = 0.01
"""Part of the time of all tasks that others must wait for one before it is worth a verdict."""
_MOST_OF_ALL = 0.95
"""Part of the waiting for a task from which a reason stands for all of it."""

_Row = TypeVar("_Row")

_ON_HOST = (LAUNCH, CALL)
_REASONS = {
    DEVICE: "(GPU was busy)",
    DEPENDENCY: "(another stream)",
    UNKNOWN: "(unknown)",
}
_VERDICTS = {
    DEVICE: "as the operation before it on the stream ended late",
    DEPENDENCY: "as it waited itself for an operation on another stream",
}


# ---- verdicts --------------------------------------------------------------------------------------------------------


def format_verdicts(summary: JobSummary, width: int) -> list[str]:
    """Return what limits the job by waiting, in a sentence for each task that does; nothing if no task does."""
    waits = summary.waits
    if waits is None or len(waits.ranks) < 2:
        return []
    window = sum(high - low for low, high in summary.windows_ns) or summary.duration_ns
    least = _LEAST_SHARE * window * len(waits.ranks)
    limiting = sorted(
        (rank for rank in waits.ranks if rank.all_caused_ns > least), key=lambda rank: -rank.all_caused_ns
    )
    return [line for rank in limiting[:_MOST_VERDICTS] for line in wrap(_describe_rank(rank, waits), width)]


def _describe_rank(rank: RankWaits, waits: WaitNumbers) -> str:
    has_both = waits.nccl_collectives > 0 and waits.mpi_collectives > 0
    counts = [
        (rank.last, waits.nccl_collectives, "NCCL "),
        (rank.mpi.last if rank.mpi else 0, waits.mpi_collectives, "MPI "),
    ]
    lasts = [
        f"{last:,} of {whole:,} {library if has_both else ''}collectives" for last, whole, library in counts if last
    ]
    where = f" is last in {' and '.join(lasts)}" if lasts else ""
    what = "it" if lasts else "its sends and receives"
    text = f"{_name(rank)}{where}: the others wait {format_time(rank.all_caused_ns)} for {what}"
    first = next((culprit for culprit in waits.culprits if culprit.task == rank.task), None)
    return text + (_describe_reason(first, rank.all_caused_ns) if first is not None else "")


def _describe_reason(culprit: Culprit, caused: int) -> str:
    part = "" if culprit.ns >= _MOST_OF_ALL * caused else f"{format_time(culprit.ns)} of that "
    if culprit.reason in _ON_HOST:
        part += "while it was " if part else ""
        place = f"in `{clean_name(culprit.range)}`" if culprit.range else "outside NVTX ranges"
        return f", {part}{place} ({f'`{clean_name(culprit.call)}`' if culprit.call else 'its own code'})"
    if culprit.reason in _VERDICTS:
        return f", {part}{_VERDICTS[culprit.reason]}" + (
            f" (`{clean_name(culprit.operation)}`)" if culprit.operation else ""
        )
    return ""


def _name(rank: RankWaits | Culprit) -> str:
    return rank.task if rank.rank is None else f"rank {rank.rank}"


# ---- tables ----------------------------------------------------------------------------------------------------------


def describe_waits(summary: JobSummary, width: int) -> list[list[str]]:
    """Return the sections on waits, each as its lines."""
    waits = summary.waits
    if waits is None:
        return []
    ranks = [_tabulate_ranks(waits, width), _tabulate_mpi(waits, width)] if waits.split else []
    return [
        *ranks,
        _tabulate_culprits(waits.culprits, width),
        _tabulate_bandwidth(waits, width),
        _explain(waits, width),
    ]


def _tabulate_ranks(waits: WaitNumbers, width: int) -> list[str]:
    ranks = [rank for rank in waits.ranks if rank.nccl_ns or rank.caused_wait_ns]
    if not ranks:
        return []
    listed = _select_worst(ranks, lambda rank: (rank.caused_wait_ns, rank.wait_ns))
    reasons = {culprit.task: _shorten_reason(culprit) for culprit in reversed(waits.culprits)}
    rows = [
        [
            _name(rank),
            reasons.get(rank.task, "-"),
            format_time(rank.nccl_ns),
            format_time(rank.wait_ns),
            "-" if rank.exposed_wait_ns is None else format_time(rank.exposed_wait_ns),
            format_time(rank.transfer_ns),
            format_time(rank.unsplit_ns),
            f"{rank.last:,}",
            format_time(rank.caused_wait_ns),
        ]
        for rank in listed
    ]
    titles = ["", "late because of", "in NCCL", "waiting", "exposed", "moving", "not split", "last", "caused"]
    caption = (
        "Time of each rank in NCCL kernels (exposed: waiting while its GPU computes nothing; last: collectives in "
        "which the others waited for it; caused: how long all others waited for it):"
    )
    table = make_table(titles, rows, width, texts=2, gap=" ")
    return [*wrap(caption, width), *table, *_describe_more(len(ranks) - len(listed))]


def _tabulate_mpi(waits: WaitNumbers, width: int) -> list[str]:
    ranks = [(rank, rank.mpi) for rank in waits.ranks if rank.mpi is not None]
    if not ranks:
        return []
    listed = _select_worst(ranks, lambda pair: (pair[1].caused_wait_ns, pair[1].wait_ns))
    rows = [[_name(rank), *_format_mpi(mpi)] for rank, mpi in listed]
    titles = ["", "in MPI", "waiting", "moving", "not split", "last", "caused"]
    caption = "Time of each rank in MPI calls that carry out collectives and messages (columns as for NCCL):"
    return [*wrap(caption, width), *make_table(titles, rows, width), *_describe_more(len(ranks) - len(listed))]


def _format_mpi(mpi: MpiWaits) -> list[str]:
    times = [format_time(ns) for ns in (mpi.mpi_ns, mpi.wait_ns, mpi.transfer_ns, mpi.unsplit_ns)]
    return [*times, f"{mpi.last:,}", format_time(mpi.caused_wait_ns)]


def _select_worst(ranks: Sequence[_Row], key: Callable[[_Row], tuple[int, int]]) -> list[_Row]:
    """Return the MOST_ROWS rows for which others wait most, in their own order."""
    worst = sorted(range(len(ranks)), key=lambda i: key(ranks[i]), reverse=True)[:MOST_ROWS]
    return [ranks[i] for i in sorted(worst)]


def _describe_more(count: int) -> list[str]:
    return count_more(count, " for which others wait less")


def _name_reason(culprit: Culprit) -> tuple[str, str]:
    if culprit.reason in _ON_HOST:
        return culprit.range or NO_RANGE, culprit.call or NO_CALL
    return _REASONS.get(culprit.reason, culprit.reason), culprit.operation


def _shorten_reason(culprit: Culprit) -> str:
    """Return a reason in a column: the range of what the thread itself did, else the call; in brackets otherwise."""
    if culprit.reason in _ON_HOST:
        return culprit.call or culprit.range or NO_CALL
    return _name_reason(culprit)[0]


def _tabulate_culprits(culprits: Sequence[Culprit], width: int) -> list[str]:
    if not culprits:
        return []
    rows = [
        [*_name_reason(culprit), _name(culprit), f"{culprit.times:,}", format_time(culprit.ns)]
        for culprit in culprits[:MOST_ROWS]
    ]
    caption = "What late ranks did before, and how long the others waited:"
    table = make_table(["NVTX range", "call", "of", "times", "waiting"], rows, width, texts=3)
    return [*wrap(caption, width), *table, *count_more(len(culprits) - len(rows), "")]


def _tabulate_bandwidth(waits: WaitNumbers, width: int) -> list[str]:
    """Return the bandwidth by function, number of ranks and size, over all communicators."""
    groups: dict[tuple[str, int, str], list[Bandwidth]] = {}
    for bandwidth in waits.bandwidth:
        groups.setdefault((bandwidth.function, bandwidth.ranks, format_bytes(bandwidth.bytes)), []).append(bandwidth)
    if not groups:
        return []
    rows = []
    largest = sorted(groups.items(), key=lambda item: -sum(part.bytes * part.count for part in item[1]))
    for (function, ranks, size), parts in largest[:MOST_ROWS]:
        count, ns = sum(part.count for part in parts), sum(part.ns for part in parts)
        algorithm = sum(part.algorithm_bytes_per_s * part.ns for part in parts) / ns
        bus = sum(part.bus_bytes_per_s * part.ns for part in parts) / ns
        rows.append(
            [
                function,
                f"{ranks:,}",
                size,
                f"{count:,}",
                format_time(ns / count),
                f"{format_bytes(algorithm)}/s",
                f"{format_bytes(bus)}/s",
            ]
        )
    titles = ["NCCL", "ranks", "size", "count", "mean", "algorithm", "bus"]
    measured = sum(bandwidth.count for bandwidth in waits.bandwidth)
    caption = (
        f"Bandwidth of the {measured:,} collectives in which every rank's waiting is known, from the begin of the last "
        "rank on:"
    )
    return [*wrap(caption, width), *make_table(titles, rows, width), *count_more(len(groups) - len(rows), " sizes")]


def _explain(waits: WaitNumbers, width: int) -> list[str]:
    """Return a line on what was not split, and why."""
    if not waits.not_split:
        return []
    whole = waits.split + sum(waits.not_split.values())
    (first, most), *others = sorted(waits.not_split.items(), key=lambda item: -item[1])
    parts = [f"{most:,} ({first})", *(f"{count:,} ({reason})" for reason, count in others)]
    count = f"{sum(waits.not_split.values()):,} of {whole:,}"
    return wrap(f"Not split into waiting and moving: {count} kernels and calls: {', '.join(parts)}", width)
