"""Finds where a bottleneck is, and describes it: ranges, calls, kernel classes, NCCL functions, ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.verdict import Place
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck
from nsys2prv_ng.summary.verdicts.case import HALF, Case, list_inherited, list_mpi_calls, sum_nccl_kernels
from nsys2prv_ng.summary.verdicts.excess import (
    describe_longer_range,
    describe_more_compute,
    find_longer_range,
    find_more_compute,
)
from nsys2prv_ng.summary.verdicts.pipeline import describe_pipeline
from nsys2prv_ng.summary.verdicts.slow_step_reasons import describe_reason
from nsys2prv_ng.summary.verdicts.slow_steps import SlowSteps, are_host_bound, describe_extra, name_step_range
from nsys2prv_ng.summary.verdicts.stragglers import find_stragglers, sum_by_range
from nsys2prv_ng.summary.verdicts.variants import FUSIBLE, LAUNCH_CALLS, list_selected_classes
from nsys2prv_ng.summary.waits.numbers import RankWaits
from nsys2prv_ng.summary.waits.words import MainReason, list_bandwidth, list_stragglers
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_percent, format_time
from nsys2prv_ng.text.names import USER_CODE, clean_name, name_task, quote_name

_MOST_PLACES = 3
_MOST_STEPS = 10
"""Most slow steps that are places."""
_LEAST_SHARE = 0.1
"""Least share of a place that is worth a word, unless it is the first."""
_NEARLY_ALL = 0.995
_Late = tuple[RankWaits, MainReason | None]


def find_places(case: Case, bottleneck: Bottleneck) -> tuple[list[Place], str]:
    """Return the places of a bottleneck, the longest time first, and their description; ([], "") if none is known."""
    key = bottleneck.key
    if key == bottlenecks.COMPUTE.key:
        return _find_kernels(case, bottleneck)
    if key == bottlenecks.TRANSFER.key:
        return _find_transfers(case)
    if key in (bottlenecks.STRAGGLER.key, bottlenecks.IMBALANCE.key, bottlenecks.PIPELINE.key):
        places, text = _find_waits(case, bottleneck)
        stages = describe_pipeline(case.summary) if key == bottlenecks.PIPELINE.key else ""
        return places, stages or text
    if key == bottlenecks.COPIES.key:
        return _find_copies(case)
    if key in (bottlenecks.HOST.key, bottlenecks.LAUNCH.key):
        places, text = _find_host(case)
        return places, text + (_describe_launches(case) if key == bottlenecks.LAUNCH.key else "")
    if key in bottlenecks.SLOW:
        return _find_slow_steps(case)
    if key == bottlenecks.UNCLASSIFIED.key:
        return _find_mpi(case) if bottleneck == bottlenecks.UNCLASSIFIED_MPI else _find_unclassified(case.summary)
    return [], ""


# ---- on GPUs ---------------------------------------------------------------------------------------------------------


def _find_kernels(case: Case, bottleneck: Bottleneck) -> tuple[list[Place], str]:
    """Return the largest kernel classes, and the NVTX ranges that launched most kernel time."""
    losses, summary = case.losses, case.summary
    classes = {} if losses is None else list_selected_classes(losses)
    places, text = _describe("class", classes, case.gpu_ns, "GPU time")
    if bottleneck == bottlenecks.COMPUTE_FUSIBLE:
        fusible = sum(classes.get(name, 0) for name in FUSIBLE)
        text += f", in all {format_percent(fusible, case.gpu_ns)} in classes that can be fused"
    whole = sum(each.total_ns for each in summary.launched)
    skipped = ("", name_step_range(summary))
    sums = {each.range: each.total_ns for each in summary.launched if each.range not in skipped}
    ranges, launched = _describe("range", sums, whole, "kernel time")
    if not ranges or (ranges[0].ns or 0) < _LEAST_SHARE * whole:
        return places, text
    return [*places, *ranges], f"{text}; launched in {launched}"


def _find_transfers(case: Case) -> tuple[list[Place], str]:
    """Return the NCCL functions with most kernel time, how much overlaps with compute, and the rate of the largest."""
    summary = case.summary
    functions = sum_nccl_kernels(summary)
    if not functions:
        return _find_mpi(case)
    places, text = _describe("function", functions, sum(functions.values()), "NCCL time")
    communication = sum(gpu.communication_ns for gpu in summary.gpus)
    overlapped = sum(gpu.overlap_ns for gpu in summary.gpus)
    text += f", {format_percent(overlapped, communication)} overlapped with compute"
    first = next(nccl for nccl in summary.nccl if nccl.function == places[0].name)
    steps, ranks = _count_steps(summary), max(summary.ranks, 1)
    if steps:
        text += f"; {first.kernels / steps / ranks:,.3g} {clean_name(first.function)} kernels per rank and step"
    bandwidth = summary.waits.bandwidth if summary.waits else []
    rated = [each for each in bandwidth if each.ns and each.function.removeprefix("nccl") == first.function]
    if rated:
        most = list_bandwidth(rated)[0]
        text += f"; busbw {format_bytes(most.bus_bytes_per_s)}/s at {most.size}"
    return places, text


def _find_copies(case: Case) -> tuple[list[Place], str]:
    """Return the kinds of copies with most time, and how much the first of them copies at which rate."""
    copies = {copy.operation: copy for copy in case.summary.memory_operations}
    times = {operation: copy.total_ns for operation, copy in copies.items()}
    places, text = _describe("copies", times, sum(times.values()), "copy and memset time")
    first = copies.get(places[0].name) if places else None
    if first is not None and first.rated_ns:
        rate = f"{format_bytes(first.bytes / first.rated_ns * 1e9)}/s"
        gpus = len(case.summary.gpus)
        text += f"; {format_bytes(first.bytes)} " + (f"over {gpus} GPUs, {rate} a copy" if gpus > 1 else f"at {rate}")
    return places, text


def _find_mpi(case: Case) -> tuple[list[Place], str]:
    """Return the MPI calls with most time, and the ranges that GPUs were idle in meanwhile."""
    calls = list_mpi_calls(case.summary)
    places, text = _describe("call", calls, sum(calls.values()), "MPI time")
    ranges = Counter[str]()
    for (range_, call), (ns, _) in case.host_gaps.items():
        if range_ and call.startswith("MPI_"):
            ranges[range_] += ns
    for range_, ns in ranges.most_common(1):
        places.append(Place(kind="range", name=range_, ns=ns))
        text += f"; mostly in {quote_name(range_)}"
    sent = [call for call in case.summary.mpi if call.sent_bytes and call.count]
    if sent:
        most = max(sent, key=lambda call: call.sent_bytes or 0)
        text += f"; {quote_name(most.call)} sends {format_bytes((most.sent_bytes or 0) / most.count)} on average"
    return places, text


def _find_unclassified(summary: JobSummary) -> tuple[list[Place], str]:
    reasons = {} if summary.waits is None else summary.waits.not_split
    functions = sum_nccl_kernels(summary)
    places, text = _describe("function", functions, sum(functions.values()), "NCCL time")
    if reasons:
        reason = max(reasons, key=lambda reason: reasons[reason])
        text += f"; {count_noun(reasons[reason], 'kernel')} unclassified ({clean_name(reason)})"
    return places, text


# ---- on hosts --------------------------------------------------------------------------------------------------------


def _find_host(case: Case) -> tuple[list[Place], str]:
    """Return what hosts were in while GPUs were idle: ranges, or calls if ranges say little."""
    by_range, of_range = Counter[str](), Counter[tuple[str, str]]()
    step = name_step_range(case.summary)
    for (range_, call), (ns, _) in case.host_gaps.items():
        name = "" if range_ == step else range_
        by_range[name] += ns
        of_range[name, call] += ns
    whole = sum(by_range.values())
    if not whole:
        return _find_slowest_change(case.changes)
    calls = {call: ns for call, ns in case.host_calls.items() if call}
    ranges = {name: ns for name, ns in by_range.items() if name}
    in_calls, in_ranges = (max(times.values(), default=0) for times in (calls, ranges))
    if in_ranges < max(_LEAST_SHARE * whole, in_calls) or 2 * by_range[""] > whole:
        if not calls or 2 * case.host_calls[""] > whole:
            calls[""] = case.host_calls[""]
        return _describe("call", calls, whole, "host-bound idle time")
    places, text = _describe("range", ranges, whole, "host-bound idle time")
    main = [(call, ns) for (name, call), ns in of_range.items() if name == places[0].name]
    call, ns = max(main, key=lambda item: item[1])
    inside = quote_name(call) if call else USER_CODE
    return places, f"{text}; mostly {inside}" if 2 * ns > by_range[places[0].name] else text


def _describe_launches(case: Case) -> str:
    """Return how many operations are launched a step, and how little each computes; "" without steps."""
    summary, losses = case.summary, case.losses
    operations = sum(node.operations for node in summary.range_tree if not node.depth)
    parts = case.counted_steps * len(summary.gpus)
    if not operations or not parts or losses is None:
        return ""
    mean = format_time(round(losses.compute_ns / operations))
    return f"; {operations / parts:,.0f} operations a step and GPU, {mean} of compute each"


def _find_slowest_change(changes: Sequence[Scenario]) -> tuple[list[Place], str]:
    """Return the range or call whose change saves most, if idle times of GPUs are not known."""
    for each in changes:
        for change in read_changes(each.change):
            if change.target in (what.RANGE, what.CALL):
                return [Place(kind=change.target, name=change.name)], quote_name(change.name)
    return [], ""


def _find_slow_steps(case: Case) -> tuple[list[Place], str]:
    """Return the slow steps, what they have more of than the usual ones, and what hosts were in."""
    found = case.slow_steps
    assert found is not None
    longest = sorted(found.slow, key=lambda step: -step.window_ns)[:_MOST_STEPS]
    places = [Place(kind="step", name=str(step.number), ns=step.window_ns) for step in longest]
    text = describe_extra(found)
    reason, more = describe_reason(case.summary)
    if not reason:  # a wait for another rank may fall into the step after
        reason, more = _blame_straggler(case, found)
    if reason:
        return [*places, *more], "; ".join(filter(None, [text, reason]))
    if not text or not are_host_bound(found):
        return places, text
    # Calls are those of all steps; most of this time is in the slow ones.
    calls = Counter({call: ns for call, ns in case.host_calls.items() if not call.startswith(LAUNCH_CALLS)})
    for call, ns in calls.most_common(1):
        if 2 * ns > case.host_calls.total():
            text += f"; hosts are mostly {f'in {quote_name(call)}' if call else 'outside traced calls'}"
            places += [Place(kind="call", name=call, ns=ns)] if call else []
    return places, text


def _blame_straggler(case: Case, found: SlowSteps) -> tuple[str, list[Place]]:
    """Return the rank that others waited for during half of what slow steps cost, and its places; ("", []) without."""
    others = 0 if case.summary.waits is None else len(case.summary.waits.ranks) - 1
    usual_ns = others * sum(step.window_ns for step in found.usual)
    for straggler in find_stragglers(case)[:1]:
        cost = straggler.caused_wait_ns
        if cost - straggler.inherited_ns - usual_ns < HALF * found.excess_ns * others:
            break
        name = name_task(straggler.rank, straggler.task)
        places, inside = [Place(kind="rank", name=name, ns=cost)], ""
        for range_, ns in sum_by_range(straggler).most_common(1):
            if range_ and ns > HALF * cost:
                places.append(Place(kind="range", name=range_, ns=ns))
                inside = f", which is in {quote_name(range_)}"
        return f"the others wait for {name}{inside}", places
    return "", []


def _find_waits(case: Case, bottleneck: Bottleneck) -> tuple[list[Place], str]:
    """Return the ranks that others wait for, and what makes the first of them late."""
    waits = case.summary.waits
    if waits is None:
        return [], ""
    caused = sum(rank.all_caused_ns for rank in waits.ranks)
    inherited = {rank.task: ns for rank, ns in list_inherited(waits)}
    ranks = [(rank, main) for rank, main in list_stragglers(waits) if rank.all_caused_ns > _LEAST_SHARE * caused]
    ranks.sort(key=lambda item: inherited[item[0].task] - item[0].all_caused_ns)
    if bottleneck.key == bottlenecks.STRAGGLER.key:
        ranks = _put_first(ranks, case.rank_to_change)[:1]
    places: list[Place] = []
    texts: list[str] = []
    for rank, main in ranks[:_MOST_PLACES]:
        name = name_task(rank.rank, rank.task)
        places.append(Place(kind="rank", name=name, ns=rank.all_caused_ns))
        text = f"{name} causes {format_percent(rank.all_caused_ns, caused)}"
        text += "" if texts else " of the wait time"
        more, longer = find_more_compute(case, rank), find_longer_range(case, rank)
        if longer is not None:
            text += f": {describe_longer_range(case, longer)}"
            places.append(Place(kind="range", name=longer.name, ns=longer.ns - longer.others_ns))
        elif more is not None:
            text += f": {describe_more_compute(case, more)}"
        elif main is not None:
            row = main.row
            inside = [quote_name(part) for part in (row.range, row.what) if part]
            if inside:
                text += f" ({' / '.join(inside)})"
                places += [Place(kind="range", name=row.range, ns=row.ns)] if row.range else []
                places += [Place(kind="call", name=row.what, ns=row.ns)] if row.what else []
        texts.append(text)
    return places, "; ".join(texts)


def _put_first(ranks: list[_Late], number: int | None) -> list[_Late]:
    """Return the ranks, that of a number first."""
    return sorted(ranks, key=lambda item: number is None or item[0].rank != number)


# ---- helpers ---------------------------------------------------------------------------------------------------------


def _describe(kind: str, times: Mapping[str, int], whole: int, of: str) -> tuple[list[Place], str]:
    """Return the places with most of a time (ns), and their shares of `whole`, the time that `of` names."""
    largest = sorted(((name, ns) for name, ns in times.items() if ns), key=lambda item: (-item[1], item[0]))
    kept = [item for n, item in enumerate(largest[:_MOST_PLACES]) if not n or item[1] >= _LEAST_SHARE * whole]
    places = [Place(kind=kind, name=name or USER_CODE, ns=ns) for name, ns in kept]
    if len(kept) == 1 and kept[0][1] >= _NEARLY_ALL * whole:
        return places, f"{_quote(kind, kept[0][0])}, nearly all {of}"
    shares = [f"{_quote(kind, name)} {format_percent(ns, whole)}" for name, ns in kept]
    return places, f"{', '.join(shares)} of {of}" if shares else ""


def _quote(kind: str, name: str) -> str:
    if not name:
        return USER_CODE
    return clean_name(name) if kind in ("function", "copies", "class") else quote_name(name)


def _count_steps(summary: JobSummary) -> int:
    return 0 if summary.steps is None else summary.steps.count
