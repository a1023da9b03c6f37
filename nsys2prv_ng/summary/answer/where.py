"""Finds where bottlenecks are, and describes it: ranges, calls, kernel classes, NCCL functions, ranks.

A class names its function in bottlenecks.py. Each returns the places, the longest time first, and their description;
([], "") if none is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from nsys2prv_ng.paraver.value_tables import communicates
from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import Change
from nsys2prv_ng.sources.cuda.kernel_classes import OTHER
from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.answer import slow_steps, stragglers
from nsys2prv_ng.summary.answer.case import HALF, Case, is_launch
from nsys2prv_ng.summary.answer.rules import FUSIBLE, HOST_MEMORY
from nsys2prv_ng.summary.links.table import describe_pipeline
from nsys2prv_ng.summary.memory.numbers import MemoryOperationNumbers
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.verdict import Place
from nsys2prv_ng.summary.waits.numbers import RankWaits
from nsys2prv_ng.summary.waits.words import MainReason, list_bandwidth, list_stragglers
from nsys2prv_ng.text.calls import describe_call
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_number, format_percent
from nsys2prv_ng.text.names import OUTSIDE_CALLS, clean_name, name_task, quote_name

MOST_PLACES = 3
"""Most places of one kind. A choice, so that the line stays short."""
_MOST_STEPS = 10
"""Most slow steps that are places."""
LEAST_SHARE = 0.1
"""Least share of a place that is worth a word, unless it is the first. A choice: less explains no class."""
_NAMED_SHARE = 0.25
"""Least share of kernel time of one kernel that is named beside its class, a quarter: it is as large as a class."""
_GENERAL = re.compile(
    r"\w*elementwise_kernel\w*|\w*reduce_kernel|[kK]ernel2?|globalKernel|\w*multi_tensor_apply_kernel"
)
"""Short names of templates, which say less than the class does."""
_NEARLY_ALL = 0.995
"""Least share of a single place that is not written as a percentage: it would be 99.5% or more."""
Found = tuple[list[Place], str]


def find_none(case: Case) -> Found:
    """Return no places: for classes whose share of GPU time says it all."""
    return [], ""


# ---- on GPUs ---------------------------------------------------------------------------------------------------------


def find_kernels(case: Case) -> Found:
    """Return the largest kernel classes, and the NVTX ranges that launched most kernel time."""
    return _add_launching(case, *_describe_kernels(case))


def find_fusible_kernels(case: Case) -> Found:
    """Return the largest kernel classes, how much of them can be fused, and the NVTX ranges that launched most."""
    places, text = _describe_kernels(case)
    fusible = format_percent(sum(case.compute_by_class.get(name, 0) for name in FUSIBLE), case.gpu_ns)
    return _add_launching(case, places, f"{text}; {fusible} in classes that can be fused")


def _describe_kernels(case: Case) -> Found:
    """Return the largest classes, and kernels with much of the time; those of no known class under their own names."""
    times = dict(case.compute_by_class)
    kernels = [each for each in case.summary.kernels if each.total_ns]
    whole = sum(each.total_ns for each in kernels)
    unknown = {each.name: each.total_ns for each in kernels if each.kernel_class == OTHER}
    ns = times.pop(OTHER, 0) if unknown else 0
    shares = {name: round(ns * part / sum(unknown.values())) for name, part in unknown.items()}
    places, text = describe_places("class", times | shares, case.gpu_ns, case.whole, dict.fromkeys(shares, "kernel"))
    for each in kernels:
        is_named = each.kernel_class != OTHER and not _GENERAL.fullmatch(each.name)
        if is_named and each.total_ns >= _NAMED_SHARE * whole:
            places.append(Place(kind="kernel", name=each.name, ns=each.total_ns))
            part = round(sum(case.compute_by_class.values()) * each.total_ns / whole)
            text += f"; {quote_name(each.name)} alone {format_percent(part, case.gpu_ns)}"
    return places, text


def _add_launching(case: Case, places: list[Place], text: str) -> Found:
    """Return places and their description with the NVTX ranges that launched most kernel time, if they are many."""
    summary = case.summary
    whole = sum(each.total_ns for each in summary.launched)
    step = slow_steps.name_step_range(summary)
    sums = {each.range: each.total_ns for each in summary.launched if each.range and not is_step(each.range, step)}
    compute = 0 if case.losses is None else case.losses.compute_ns
    ranges, launched = describe_places("range", sums, whole, case.whole, share=compute / max(case.gpu_ns, 1))
    if not ranges or (ranges[0].ns or 0) < LEAST_SHARE * whole:
        return places, text
    return [*places, *ranges], f"{text}; launched in {launched}"


def find_transfers(case: Case) -> Found:
    """Return what communicates most on GPUs, how much overlaps with compute, and the rate of NCCL's largest call."""
    summary = case.summary
    places, text = _find_communication(case)
    if not places:
        return [], ""
    communication = sum(gpu.communication_ns for gpu in summary.gpus)
    overlapped = sum(gpu.overlap_ns for gpu in summary.gpus)
    text += f", {format_percent(overlapped, communication)} overlapped with compute"
    first = next((nccl for nccl in summary.nccl if nccl.function == places[0].name), None)
    if first is None:
        return places, text
    if summary.steps is not None and summary.steps.count:
        user, users = summary.users
        each = first.kernels / summary.steps.count / users
        operations = "operations" if case.has_copy_engines else "kernels"
        text += f"; {format_number(each, 3)} {clean_name(first.function)} {operations} per {user} and step"
    bandwidth = summary.waits.bandwidth if summary.waits else []
    rated = [each for each in bandwidth if each.ns and each.function.removeprefix("nccl") == first.function]
    if rated:
        most = list_bandwidth(rated)[0]
        text += f"; busbw {format_bytes(most.bus_bytes_per_s)}/s at {most.size}"
    return places, text


def _find_communication(case: Case) -> Found:
    """Return what has most time of the communication on GPUs: functions of NCCL, kernels, and kinds of copies."""
    times, others = case.communication, case.summary.other_communication
    kinds = {name: "copies" if communicates(name) else "kernel" for name in others}
    return describe_places("function", times, sum(times.values()), f"{case.summary.communication} time", kinds)


def find_copies(case: Case) -> Found:
    """Return the kinds of copies with most time, and what the first of them copies at which rate."""
    return _find_copies(case, case.copies)


def find_copies_between(case: Case) -> Found:
    """Return the kinds of copies between GPUs, and what the first of them copies at which rate."""
    return _find_copies(case, case.copies_between)


def _find_copies(case: Case, chosen: Sequence[MemoryOperationNumbers]) -> Found:
    copies = {copy.operation: copy for copy in chosen}
    times = {operation: copy.total_ns for operation, copy in copies.items()}
    places, text = describe_places("copies", times, case.gpu_ns, case.whole)
    first = copies.get(places[0].name) if places else None
    if first is None or not first.rated_ns:
        return places, text
    memory = max(first.by_memory, key=lambda part: part.total_ns, default=None)
    kinds = [] if memory is None else [kind for kind in (memory.source, memory.destination) if kind in HOST_MEMORY]
    size, rate = format_bytes(first.bytes / first.count), f"{format_bytes(first.bytes / first.rated_ns * 1e9)}/s"
    each = first.count / max(case.counted_steps * len(case.summary.gpus), 1)
    often = f"{format_number(round(each, 1), 3)} a step" if case.counted_steps else f"{first.count:,}"
    return places, f"{text}; {often} of {size} each{''.join(f', {kind.lower()} memory' for kind in kinds)}, at {rate}"


def find_mpi_calls(case: Case) -> Found:
    """Return the MPI calls with most time, and the ranges that GPUs were idle in meanwhile."""
    calls = case.mpi_calls
    places, text = describe_places("call", calls, sum(calls.values()), "MPI time")
    gaps = [(*names, ns) for names, (ns, _) in case.host_gaps.items()]
    ranges = sum_by_key((range_, ns) for range_, call, ns in gaps if range_ and call.startswith("MPI_"))
    if ranges:
        [(range_, ns)] = ranges.most_common(1)
        places.append(Place(kind="range", name=range_, ns=ns))
        text += f"; mostly in {quote_name(range_)}"
    sent = [call for call in case.summary.mpi if call.sent_bytes and call.count]
    if sent:
        most = max(sent, key=lambda call: call.sent_bytes or 0)
        text += f"; {quote_name(most.call)} sends {format_bytes((most.sent_bytes or 0) / most.count)} on average"
    return places, text


def find_unclassified(case: Case) -> Found:
    """Return what communicates most on GPUs, and why most of its kernels are not classified."""
    reasons = {} if case.summary.waits is None else case.summary.waits.not_split
    places, text = _find_communication(case)
    if reasons:
        reason = max(reasons, key=lambda reason: reasons[reason])
        text += f"; {count_noun(reasons[reason], 'kernel')} unclassified ({clean_name(reason)})"
    return places, text


# ---- slow steps and ranks -------------------------------------------------------------------------------------------


def find_slow_steps(case: Case) -> Found:
    """Return the slow steps, what they have more of than the usual ones, and what hosts were in."""
    found = case.slow_steps
    assert found is not None
    longest = sorted(found.slow, key=lambda step: -step.length_ns)[:_MOST_STEPS]
    places = [Place(kind="step", name=str(step.number), ns=step.length_ns) for step in longest]
    text = slow_steps.describe_extra(found)
    reason, more = slow_steps.describe_reason(case.summary)
    if not reason:  # a wait for another rank may fall into the step after
        reason, more = _blame_straggler(case, found)
    if reason:
        return [*places, *more], "; ".join(filter(None, [text, reason]))
    if not text or not slow_steps.are_host_bound(found):
        return places, text
    # Calls are those of all steps; most of this time is in the slow ones.
    calls = [item for item in case.host_calls.items() if not is_launch(Change(what.CALL, item[0]))]
    call, ns = max(calls, key=lambda item: item[1], default=("", 0))
    if ns > HALF * case.host_calls.total():
        text += f"; hosts are mostly {f'in {quote_name(call)}' if call else 'outside traced calls'}"
        places += [Place(kind="call", name=call, ns=ns)] if call else []
    return places, text


def _blame_straggler(case: Case, found: slow_steps.SlowSteps) -> tuple[str, list[Place]]:
    """Return the rank that others waited for during half of what slow steps cost, and its places; ("", []) without."""
    others = len(case.ranks) - 1
    usual_ns = others * sum(step.length_ns for step in found.usual)
    straggler = next(iter(stragglers.find_stragglers(case)), None)
    if straggler is None:
        return "", []
    cost = straggler.caused_wait_ns
    if cost - straggler.inherited_ns - usual_ns < HALF * found.excess_ns * others:
        return "", []
    name = name_task(straggler.rank, straggler.task)
    places, inside = [Place(kind="rank", name=name, ns=cost)], ""
    range_, ns = next(iter(stragglers.sum_by_range(straggler).most_common(1)), ("", 0))
    if range_ and ns > HALF * cost:
        places.append(Place(kind="range", name=range_, ns=ns))
        inside = f", which is in {quote_name(range_)}"
    return f"the others wait for {name}{inside}", places


def find_stages(case: Case) -> Found:
    """Return the ranks that others wait for, and the stages of the pipeline that they are, if it is certain."""
    places, text = find_late_ranks(case)
    return places, describe_pipeline(case.summary.pipeline) or text


def find_straggler(case: Case) -> Found:
    """Return the rank that others wait for: that of the change that saves something, if there is one."""
    number = case.rank_to_change
    ranks = sorted(_list_late(case), key=lambda item: number is None or item[0].rank != number)
    return _describe_late(case, *ranks[0]) if ranks else ([], "")


def find_late_ranks(case: Case) -> Found:
    """Return the ranks that others wait for, and what makes them late."""
    late = _list_late(case)[:MOST_PLACES]
    found = [_describe_late(case, *item, "" if n else " of the wait time") for n, item in enumerate(late)]
    return [place for places, _ in found for place in places], "; ".join(text for _, text in found)


def _list_late(case: Case) -> list[tuple[RankWaits, MainReason | None]]:
    """Return the ranks that others wait for, those first that had waited least for another one, and their reasons."""
    waits = case.summary.waits
    if waits is None:
        return []
    least = LEAST_SHARE * sum(rank.all_caused_ns for rank in waits.ranks)
    inherited = {rank.task: ns for rank, ns in case.inherited}
    ranks = [(rank, main) for rank, main in list_stragglers(waits) if rank.all_caused_ns > least]
    return sorted(ranks, key=lambda item: inherited[item[0].task] - item[0].all_caused_ns)


def _describe_late(case: Case, rank: RankWaits, main: MainReason | None, of: str = " of the wait time") -> Found:
    """Return a rank that others wait for, and what makes it late."""
    name = name_task(rank.rank, rank.task)
    share = format_percent(rank.all_caused_ns, sum(each.all_caused_ns for each in case.ranks))
    places, text = [Place(kind="rank", name=name, ns=rank.all_caused_ns)], f"{name} causes {share}{of}"
    more, longer = stragglers.find_more_compute(case, rank), stragglers.find_longer_range(case, rank)
    if longer is not None:
        places.append(Place(kind="range", name=longer.name, ns=longer.ns - longer.others_ns))
        return places, f"{text}: {stragglers.describe_longer_range(case, longer)}"
    if more is not None:
        return places, f"{text}: {stragglers.describe_more_compute(case, more)}"
    row = None if main is None else main.row
    inside = [] if row is None else [(kind, name) for kind, name in (("range", row.range), ("call", row.what)) if name]
    if row is None or not inside:
        return places, text
    places += [Place(kind=kind, name=name, ns=row.ns) for kind, name in inside]
    return places, f"{text} ({' / '.join(quote_name(name) for _, name in inside)})"


# ---- helpers ---------------------------------------------------------------------------------------------------------


def describe_places(
    kind: str,
    times: Mapping[str, int],
    whole: int,
    of: str,
    kinds: Mapping[str, str] = MappingProxyType({}),
    share: float = 1.0,
) -> Found:
    """Return the places with most of a time (ns), and their shares of what `of` names.

    `whole`: the sum of such times (ns), which is this `share` of what `of` names. `kinds`: the kinds of places that are
    not of `kind`, by their names.
    """
    largest = sorted(((name, ns) for name, ns in times.items() if ns), key=lambda item: (-item[1], item[0]))
    kept = [item for n, item in enumerate(largest[:MOST_PLACES]) if not n or item[1] >= LEAST_SHARE * whole]
    places = [Place(kind=kinds.get(name, kind), name=name or OUTSIDE_CALLS, ns=ns) for name, ns in kept]
    names = [_quote(place.kind, name) for place, (name, _) in zip(places, kept, strict=True)]
    if len(kept) == 1 and kept[0][1] >= _NEARLY_ALL * whole and share == 1:
        return places, f"{names[0]}, nearly all {of}"
    shares = [f"{name} {format_percent(round(ns * share), whole)}" for name, (_, ns) in zip(names, kept, strict=True)]
    return places, f"{', '.join(shares)} of {of}" if shares else ""


def _quote(kind: str, name: str) -> str:
    if not name:
        return OUTSIDE_CALLS
    if kind == "call":
        return describe_call(name)
    return clean_name(name) if kind in ("function", "copies", "class") else quote_name(name)
