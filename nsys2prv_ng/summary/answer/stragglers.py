"""Finds the ranks that cost others time inside the steps, and what they do longer, and describes both."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import NamedTuple

from nsys2prv_ng.summary.answer.case import HALF, LEAST, Case, find_rank, is_worth
from nsys2prv_ng.summary.job import PLURALS, JobSummary
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.verdict import Straggler, StragglerReason
from nsys2prv_ng.summary.waits.numbers import Excess, RankWaits, WaitNumbers
from nsys2prv_ng.summary.waits.words import DEPENDENCY, DEVICE, NOT_SELECTED, ON_HOST
from nsys2prv_ng.text.formatting import format_percent, format_time
from nsys2prv_ng.text.names import OUTSIDE_CALLS, name_task, quote_name

_LEAST_SHARE = 0.02
"""Least share of the time of all ranks that a straggler costs, as docs/start/bottleneck.md says of STRAGGLER."""
_MINOR = 0.1
"""Share of the time of all ranks below which a straggler is minor, as docs/start/bottleneck.md says."""
_MOST_REASONS = 2
"""Most causes of a delay in one line."""
_SOME = 0.1
"""Least share of what a straggler costs that is worth a word: what is below it does not explain the delay."""
_LEAST_MORE = 0.1
"""Least excess of a rank's compute over the median of the others that is a reason for waits,
as docs/start/bottleneck.md says. Two captures with longer sequences on one rank set it."""
_LONGER = 1.5
"""Least ratio of a rank's time in a range to that of the others for the range to be a reason for waits.

Three captures with 12 ms planted in the data loading of one rank set it; docs/start/bottleneck.md has it."""
_QUARTER = 0.25
"""Least part of the waits that a longer range explains to be their reason, as docs/start/bottleneck.md says."""


def find_stragglers(case: Case) -> list[Straggler]:
    """Return the ranks that cost more than 2 % of the time of all ranks, the most expensive first."""
    waits = case.summary.waits
    if waits is None or len(waits.ranks) < 2:
        return []
    least = _LEAST_SHARE * _measure_ranks(case)
    ranks = sorted(case.inherited, key=lambda item: -item[0].all_caused_ns)
    return [_make(rank, inherited, waits) for rank, inherited in ranks if rank.all_caused_ns > least]


def _make(rank: RankWaits, inherited: int, waits: WaitNumbers) -> Straggler:
    costs = [cost for cost in waits.costs if cost.task == rank.task and cost.reason in ON_HOST]
    sums = sum_by_key(((cost.range, cost.call), cost.ns) for cost in costs)
    reasons = [StragglerReason(range=range_, call=call, ns=ns) for (range_, call), ns in sums.most_common()]
    return Straggler(
        rank=rank.rank, task=rank.task, caused_wait_ns=rank.all_caused_ns, inherited_ns=inherited, reasons=reasons
    )


def describe_stragglers(case: Case, stragglers: list[Straggler]) -> list[str]:
    """Return a sentence on the worst straggler and how many more there are, and one on an unselected rank."""
    waits = case.summary.waits
    if waits is None:
        return []
    whole = _measure_ranks(case)
    worst = ""
    if stragglers:
        rank = next(rank for rank in waits.ranks if rank.task == stragglers[0].task)
        more = f"; {len(stragglers) - 1:,} more" if len(stragglers) > 1 else ""
        worst = _describe(case, stragglers[0], rank, whole) + more
    return [text for text in (worst, _describe_hidden(case.summary, waits, _LEAST_SHARE * whole)) if text]


def is_minor(case: Case, straggler: Straggler) -> bool:
    """Return whether a straggler costs less than a tenth of the time of all ranks."""
    return straggler.caused_wait_ns < _MINOR * _measure_ranks(case)


def _describe(case: Case, straggler: Straggler, rank: RankWaits, whole: int) -> str:
    """Return how often a rank is last, what it costs the others, why, and what its delay alone would save."""
    cost = straggler.caused_wait_ns
    minor = ", minor" if is_minor(case, straggler) else ""
    counts = [(rank.last, rank.collectives)] + ([(rank.mpi.last, rank.mpi.collectives)] if rank.mpi else [])
    last, collectives = (sum(column) for column in zip(*counts, strict=True))
    often = f"last in {last:,} of {collectives:,} collectives, " if 2 * last >= collectives and last else ""
    alone, gain = _describe_gain(case, straggler)
    user, _ = case.summary.users
    text = f"{name_task(straggler.rank, straggler.task)}{minor}{alone}: {often}cost the other {PLURALS[user]} "
    text += f"{format_time(cost)} in total ({format_percent(cost, whole)} of {user} time{_describe_overlap(case)})"
    parts = _list_causes(case, straggler, rank)
    return text + (f"; {', '.join(parts)}" if parts else "") + gain


def _describe_overlap(case: Case) -> str:
    """Return that most wait time costs nothing, since GPUs compute meanwhile; "" if it does cost."""
    known = [(rank.wait_ns, rank.exposed_wait_ns) for rank in case.ranks if rank.exposed_wait_ns is not None]
    wait, exposed = sum(wait for wait, _ in known), sum(exposed for _, exposed in known)
    return ", mostly overlapped with compute" if exposed < HALF * wait else ""


def _list_causes(case: Case, straggler: Straggler, rank: RankWaits) -> list[str]:
    """Return the largest causes of the delay: what the host was in, a late predecessor, another rank's delay."""
    waits, cost = case.summary.waits, straggler.caused_wait_ns
    assert waits is not None
    longer, more = find_longer_range(case, rank), find_more_compute(case, rank)
    causes = _list_host_causes(straggler) if longer is None else []
    for label in (DEVICE, DEPENDENCY) if more is None else ():
        ns = sum(each.ns for each in waits.costs if each.task == rank.task and each.reason == label)
        causes.append((ns, label))
    causes = sorted((cause for cause in causes if cause[0] >= _SOME * cost), reverse=True)[:_MOST_REASONS]
    texts = [] if longer is None else [describe_longer_range(case, longer)]
    texts += [] if more is None else [describe_more_compute(case, more)]
    texts += [f"{format_time(ns)} {words}" for ns, words in causes]
    if straggler.inherited_ns >= _SOME * cost:
        inherited = [each for each in waits.culprits if each.task == rank.task and each.origin_task]
        origins = sum_by_key(((each.origin_rank, each.origin_task), each.ns) for each in inherited)
        [(origin, ns)] = origins.most_common(1)
        texts.append(f"{format_time(ns)} of it inherited from {name_task(*origin)}")
    return texts


def sum_by_range(straggler: Straggler) -> Counter[str]:
    """Return how long (ns) others waited while its host was late, by range."""
    return sum_by_key((reason.range, reason.ns) for reason in straggler.reasons)


def _list_host_causes(straggler: Straggler) -> list[tuple[int, str]]:
    """Return the time (ns) and the words for each range that the host was late in, or for all if none is most of it."""
    by_range = sum_by_range(straggler)
    causes: list[tuple[int, str]] = []
    for range_, ns in by_range.most_common():
        calls = Counter({each.call: each.ns for each in straggler.reasons if each.range == range_})
        [(call, most)] = calls.most_common(1)
        inside = f" ({quote_name(call) if call else OUTSIDE_CALLS})" if 2 * most > ns else ""
        causes.append((ns, f"in {quote_name(range_)}{inside}" if range_ else f"outside NVTX ranges{inside}"))
    whole = by_range.total()
    if len(causes) <= _MOST_REASONS or 2 * sum(ns for ns, _ in causes[:_MOST_REASONS]) > whole:
        return causes
    ns, words = causes[0]
    ranges = sum(1 for range_ in by_range if range_)
    return [(whole, f"on the host, spread over {ranges:,} ranges (the largest: {format_time(ns)} {words})")]


def _describe_gain(case: Case, straggler: Straggler) -> tuple[str, str]:
    """Return what this rank as fast as the others would save: the first words if nothing, else the last; "" if unknown.

    That it saves nothing comes first, since the rest of the line reads as if it did.
    """
    change = case.rank_change
    if change is None or find_rank(change) != straggler.rank:
        return "", ""
    if not is_worth(change):
        nothing = change.connected and change.share < LEAST
        return " (if it alone were as fast as the others, no step would be shorter)" if nothing else "", ""
    saves = f"about {format_time(change.saving_ns)} a step"
    return "", f"; if it alone were as fast as the others, that would save {saves}"


def _describe_hidden(summary: JobSummary, waits: WaitNumbers, least: float) -> str:
    """Return the unselected rank that others wait for most; "" if that costs little."""
    if "ranks" not in summary.chosen:
        return ""
    shown = {rank.task for rank in waits.ranks}
    sums = sum_by_key(((cost.rank, cost.task), cost.ns) for cost in waits.costs if cost.task not in shown)
    task, ns = max(sums.items(), key=lambda item: item[1], default=((None, ""), 0))
    if ns <= least:
        return ""
    return f"{name_task(*task)} is {NOT_SELECTED}, and cost the selected ranks {format_time(ns)} in total"


def _measure_ranks(case: Case) -> int:
    """Return the time of all ranks (ns) in the time that numbers cover."""
    window = sum(high - low for low, high in case.summary.windows_ns) or case.summary.duration_ns
    return window * len(case.ranks)


# ---- what a rank does longer -----------------------------------------------------------------------------------------


class MoreCompute(NamedTuple):
    """Compute time of the GPUs of a rank, and the median of the other ranks (ns, in the time that is judged).

    `others`: the other ranks in words.
    """

    own_ns: int
    others_ns: float
    others: str


def find_more_compute(case: Case, rank: RankWaits) -> MoreCompute | None:
    """Return how much longer the GPUs of a rank compute; None if that does not explain half of the exposed waits.

    It explains none if the host was late for most of them. Where ranks share a GPU, nothing is known of each.
    """
    waits = case.summary.waits
    costs = [] if waits is None else [each for each in waits.costs if each.task == rank.task]
    on_host = sum(each.ns for each in costs if each.reason in ON_HOST)
    if on_host > HALF * rank.all_caused_ns:
        return None
    times = sum_by_key((task, gpu.compute_ns) for gpu in case.summary.gpus for task in gpu.tasks)
    own = times.pop(rank.task, 0)
    if not times or any(len(gpu.tasks) > 1 for gpu in case.summary.gpus):
        return None
    others = float(median(times.values()))
    exposed = sum(each.exposed_wait_ns or 0 for each in case.ranks) or rank.all_caused_ns
    if own <= (1 + _LEAST_MORE) * others or (own - others) * len(times) < HALF * exposed:
        return None
    return MoreCompute(own, others, "the others" if len(times) > 1 else next(iter(times)))


def find_longer_range(case: Case, rank: RankWaits) -> Excess | None:
    """Return the range in which a rank is much longer than the others, and for a quarter of the waits; None without.

    It is known for the rank that others waited for longest. Where a host was when it was late says less: it may have
    been late for long.
    """
    waits = case.summary.waits
    if waits is None or rank.all_caused_ns < max(each.all_caused_ns for each in waits.ranks):
        return None
    least = _QUARTER * rank.all_caused_ns / max(len(waits.ranks) - 1, 1)
    ranges = [each for each in waits.excess if each.kind == "range" and each.ns > _LONGER * each.others_ns]
    most = max(ranges, key=lambda each: each.ns - each.others_ns, default=None)
    return most if most is not None and most.ns - most.others_ns >= least else None


def describe_longer_range(case: Case, found: Excess) -> str:
    """Return the excess as a clause: it is 12.3 ms a step in `data loading`, the others 220 us."""
    waits = case.summary.waits
    others = "the others" if waits is None or len(waits.ranks) > 2 else "the other"
    own, mean, often = _format_per_step(case, found.ns, found.others_ns)
    return f"it is {own}{often} in {quote_name(found.name)}, {others} {mean}"


def describe_more_compute(case: Case, found: MoreCompute) -> str:
    """Return the excess as a clause: its GPU computes 36.7 ms a step, the others 24.3 ms."""
    own, mean, often = _format_per_step(case, found.own_ns, found.others_ns)
    return f"its GPU computes {own}{often}, {found.others} {mean}"


def _format_per_step(case: Case, own_ns: float, others_ns: float) -> tuple[str, str, str]:
    """Return two times for each step that they cover, and how often in words; the times as they are without steps."""
    steps = case.counted_steps
    own, others = (format_time(round(ns / (steps or 1))) for ns in (own_ns, others_ns))
    return own, others, " a step" if steps else ""
