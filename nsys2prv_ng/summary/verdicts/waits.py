"""Describes in sentences which tasks others wait for, and why these are late."""

from __future__ import annotations

from collections import Counter

from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.late import LateRow, MainReason, list_stragglers
from nsys2prv_ng.summary.numbers.wait_reasons import CALL, DEPENDENCY, DEVICE, LAUNCH, NOT_SELECTED, ON_HOST, UNKNOWN
from nsys2prv_ng.summary.numbers.waits import RankWaits, WaitNumbers
from nsys2prv_ng.text.formatting import format_time, format_window
from nsys2prv_ng.text.names import describe_place, name_largest, name_task, quote_name

_MOST_VERDICTS = 3
_LEAST_SHARE = 0.01
"""Least waiting for a task that is worth a verdict, as a share of the time of all tasks."""
_ALL = 0.95
"""Least share of the waiting for a task at which something stands for all of it."""
_MOST = 0.5
"""Least share at which one reason, or one wait, is most of it."""
_SOME = 0.1
"""Least share of the waiting for a task, due to its own waiting for another task, that is worth a word."""
_CLAUSES = {
    LAUNCH: "as it was launched late by the host",
    CALL: "as it was called late by the host",
    DEVICE: "as the operation before it on the stream ended late",
    DEPENDENCY: "as it waited for an event or another operation",
    NOT_SELECTED: "for what is not selected",
}


def describe_waits(summary: JobSummary) -> list[tuple[str, list[str]]]:
    """Return a sentence and more lines for each task that limits the job because others wait for it."""
    waits = summary.waits
    if waits is None or len(waits.ranks) < 2:
        return []
    window = sum(high - low for low, high in summary.windows_ns) or summary.duration_ns
    least = _LEAST_SHARE * window * len(waits.ranks)
    limiting = [(rank, main) for rank, main in list_stragglers(waits) if rank.all_caused_ns > least]
    verdicts = []
    for rank, main in limiting[:_MOST_VERDICTS]:
        details = [text for text in (_describe_origin(rank, waits), _describe_longest(rank)) if text]
        verdicts.append((_describe_rank(rank, waits) + _describe_reason(rank, main), details))
    return verdicts + (_describe_hidden(waits, least) if "ranks" in summary.chosen else [])


def _describe_hidden(waits: WaitNumbers, least: float) -> list[tuple[str, list[str]]]:
    """Return a verdict on the unselected task that others wait for most, if that is worth a verdict."""
    shown = {rank.task for rank in waits.ranks}
    sums: Counter[tuple[int | None, str]] = Counter()
    for cost in waits.costs:
        if cost.task not in shown:
            sums[cost.rank, cost.task] += cost.ns
    return [
        (f"the others wait {format_time(ns)} for {name_task(*task)}, which is {NOT_SELECTED}", [])
        for task, ns in sums.most_common(1)
        if ns > least
    ]


def _describe_rank(rank: RankWaits, waits: WaitNumbers) -> str:
    """Return how often a task is the last, and how long the others wait for it."""
    mpi = rank.mpi
    lasts = [(rank.last, rank.collectives, "NCCL "), (mpi.last, mpi.collectives, "MPI ") if mpi else (0, 0, "")]
    has_both = waits.nccl_collectives > 0 and waits.mpi_collectives > 0
    where = [
        f"{last:,} of its {whole:,} {library if has_both else ''}collectives" for last, whole, library in lasts if last
    ]
    name = name_task(rank.rank, rank.task)
    begin = f"{name} is last in {' and '.join(where)}" if where else name
    caused, in_messages = rank.all_caused_ns, rank.all_caused_in_messages_ns
    time = format_time(caused)
    rest = (("collectives", in_messages), ("messages", caused - in_messages))
    kinds = [kind for kind, others in rest if format_time(others) != time]
    place = "" if kinds == ["collectives"] else f" in {' and '.join(kinds)}"
    together = " together" if len(waits.ranks) > 2 else ""
    return f"{begin}: the others wait {time}{together} for it{place}"


def _describe_reason(rank: RankWaits, main: MainReason | None) -> str:
    """Return the main reason as the end of a sentence; "" if it is not known."""
    if main is None or main.reason == UNKNOWN:
        return ""
    row, caused = main.row, rank.all_caused_ns
    if main.reason in ON_HOST and row.ns >= _MOST * main.ns:
        doing = name_largest([(quote_name(what) if what else "its own code", ns) for what, ns in row.whats], row.ns)
        return f", {_describe_part(row.ns, caused)}while it was {describe_place(row.range)} ({doing})"
    places = [(place, each.ns) for each in main.rows if (place := _name_row(each))]
    detail = f" ({name_largest(places, main.ns)})" if places else ""
    return f", {_describe_part(main.ns, caused)}{_CLAUSES[main.reason]}{detail}"


def _name_row(row: LateRow) -> str:
    """Return what cost most in a row, and in which range; "" if neither is known."""
    what = [quote_name(row.what)] if row.what else []
    return " ".join([*what, *([f"in {quote_name(row.range)}"] if row.range else [])])


def _describe_part(ns: int, caused: int) -> str:
    return "" if ns >= _ALL * caused else f"{format_time(ns)} of that "


def _describe_origin(rank: RankWaits, waits: WaitNumbers) -> str:
    """Return the task that a task had waited for before others waited for it; "" if that caused little."""
    sums: Counter[tuple[int | None, str]] = Counter()
    for culprit in waits.culprits:
        if culprit.task == rank.task and culprit.origin_task:
            sums[culprit.origin_rank, culprit.origin_task] += culprit.ns
    if not sums:
        return ""
    [(origin, ns)] = sums.most_common(1)
    if ns < _SOME * rank.all_caused_ns:
        return ""
    part = _name_share(ns, rank.all_caused_ns)
    return f"{part} because {name_task(rank.rank, rank.task)} itself had waited for {name_task(*origin)}"


def _describe_longest(rank: RankWaits) -> str:
    """Return when the longest wait was, and what is left without it; "" if it is at most half of all waiting."""
    longest, caused = rank.longest_wait, rank.all_caused_ns
    if longest is None or longest.ns <= _MOST * caused:
        return ""
    rest = f"; {format_time(caused - longest.ns)} without it" if longest.ns < caused else ""
    return f"{_name_share(longest.ns, caused)} in one wait (time {format_window(longest.from_ns, longest.to_ns)}){rest}"


def _name_share(ns: int, caused: int) -> str:
    part, whole = format_time(ns), format_time(caused)
    if part == whole:
        return "all of it" if ns == caused else "nearly all of it"
    return f"{part} of the {whole}"


# ---- limits ----------------------------------------------------------------------------------------------------------


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
    """Return the number of kernels and calls over ranks, with their nouns."""
    kernels, calls = any(rank.nccl_ns for rank in waits.ranks), any(rank.mpi for rank in waits.ranks)
    nouns = [noun for noun, is_any in (("kernels", kernels or not calls), ("calls", calls)) if is_any]
    return f"{waits.split + waits.below_uncertainty + sum(waits.not_split.values()):,} {' and '.join(nouns)}"
