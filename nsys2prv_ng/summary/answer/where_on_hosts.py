"""Finds and describes what hosts were in while GPUs were idle: ranges, calls, launches, read-backs, sampled functions.

The functions are as those of where.py.
"""

from __future__ import annotations

from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.answer import host_rules, slow_steps
from nsys2prv_ng.summary.answer.case import HALF, LEAST, Case
from nsys2prv_ng.summary.answer.sampled import find_functions
from nsys2prv_ng.summary.answer.where import LEAST_SHARE, MOST_PLACES, Found, describe_places
from nsys2prv_ng.summary.gpus.host_causes import LOADING
from nsys2prv_ng.summary.readbacks.table import describe_readbacks
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.verdict import Place
from nsys2prv_ng.text.calls import describe_call
from nsys2prv_ng.text.formatting import count_noun, format_bytes, format_percent, format_time
from nsys2prv_ng.text.names import OUTSIDE_CALLS, quote_name


def find_host(case: Case) -> Found:
    """Return what hosts were in while GPUs were idle: ranges, or calls if ranges say little, and sampled functions."""
    functions, sampled = find_functions(case)
    step = slow_steps.name_step_range(case.summary)
    gaps = [("" if is_step(name, step) else name, call, ns) for (name, call), (ns, _) in case.host_gaps.items()]
    by_range = sum_by_key((name, ns) for name, _, ns in gaps)
    of_range = sum_by_key(((name, call), ns) for name, call, ns in gaps)
    whole = sum(by_range.values())
    idle = 0.0 if case.losses is None else case.losses.host_ns / max(case.gpu_ns, 1)
    if not whole:
        return _find_slowest_change(case)
    calls = {call: ns for call, ns in case.host_calls.items() if call}
    ranges = {name: ns for name, ns in by_range.items() if name}
    in_calls, in_ranges = (max(times.values(), default=0) for times in (calls, ranges))
    causes = _describe_causes(case, whole, idle)
    if in_ranges < max(LEAST_SHARE * whole, in_calls) or 2 * by_range[""] > whole:
        if not calls or 2 * case.host_calls[""] > whole:
            calls[""] = case.host_calls[""]
        if sampled and "" in calls:
            return functions, sampled + causes
        places, text = describe_places("call", calls, whole, case.whole, share=idle)
        return [*places, *functions], "; ".join(filter(None, [text, sampled])) + causes
    places, text = describe_places("range", ranges, whole, case.whole, share=idle)
    if sampled:
        return [*places, *functions], f"{text}; {sampled}{causes}"
    main = [(call, ns) for (name, call), ns in of_range.items() if name == places[0].name]
    call, ns = max(main, key=lambda item: item[1])
    inside = describe_call(call) if call else OUTSIDE_CALLS
    return places, (f"{text}; mostly {inside}" if 2 * ns > by_range[places[0].name] else text) + causes


def _describe_causes(case: Case, whole: int, share: float) -> str:
    """Return why hosts launched late, as far as reports show it: the second half of a sentence, or ""."""
    step, texts = slow_steps.name_step_range(case.summary), []
    for cause, time in case.host_causes.items():
        if time.ns >= LEAST_SHARE * whole:
            [(range_, ns)] = sum_by_key((part.range, part.ns) for part in time.parts).most_common(1)
            is_told = range_ and not is_step(range_, step) and ns > HALF * time.ns
            inside = f", in {quote_name(range_)}" if is_told else ""
            often = f" ({time.gaps:,} of them)" if cause == LOADING else ""
            texts.append(f"; {format_percent(round(time.ns * share), whole)} {cause.words}{often}{inside}")
    return "".join(texts)


def find_gil(case: Case) -> Found:
    """Return how many threads wait for Python's lock, and what hosts were in while GPUs were idle."""
    places, text = find_host(case)
    whole = 0 if case.window is None else case.window.numbers.length_ns
    return places, f"{format_time(case.gil_ns)} of waiting for it in {format_time(whole)}; {text}"


def find_readbacks(case: Case) -> Found:
    """Return the calls in which hosts wait for GPUs, after which these are idle; for how long, if no replay knows."""
    readbacks = case.readbacks
    places = [Place(kind="call", name=each.call, ns=each.idle_ns) for each in readbacks[:MOST_PLACES]]
    return places, describe_readbacks(readbacks, *_name_step(case), 0 if case.summary.what_if else case.gpu_ns)


def describe_idle(case: Case, *, is_tried: bool) -> str:
    """Return where hosts wait for GPUs if these are idle much for that, or a remedy of it `is_tried`; "" otherwise."""
    small = host_rules.find_small_reads(case)
    parts, step = _name_step(case)
    if small is not None and case.counted_steps:
        size = format_bytes(small.bytes / small.count)
        return f"another thread reads {small.count / parts:.3g} values{step}, of {size} each"
    is_much = host_rules.measure_idle_by_reads(case) >= LEAST * case.gpu_ns > 0
    if not (is_much or is_tried):
        return ""
    return describe_readbacks(host_rules.list_reads(case), parts, step, 0 if is_tried else case.gpu_ns)


def _name_step(case: Case) -> tuple[int, str]:
    """Return the parts that counts are divided by, and what they are, as the end of a phrase: steps of ranks."""
    user, users = case.summary.users
    parts = case.counted_steps * users
    return max(parts, 1), "" if not parts else " a step" if users == 1 else f" a step and {user}"


def find_queued(case: Case) -> Found:
    """Return what operations waited for that were launched in time, as far as reports show it."""
    named = {name: ns for name, ns in case.queued_waits.items() if name}
    losses = case.losses
    idle = 0.0 if losses is None else (losses.queued_ns + losses.graph_ns) / max(case.gpu_ns, 1)
    return describe_places("wait", named, case.queued_waits.total(), case.whole, share=idle)


def find_launches(case: Case) -> Found:
    """Return what hosts were in, how many operations are launched a step, and how little each computes."""
    places, text = find_host(case)
    if not case.launches or case.losses is None:
        return places, text
    gpus = len(case.summary.gpus)
    mean = format_time(round(case.losses.compute_ns / (case.launches * case.counted_steps * gpus)))
    users = " and GPU" if gpus > 1 else ""
    text += f"; spread over {case.launches:,.0f} launches a step{users}, each for {mean} of compute"
    return places, text + _describe_repeats(case)


def _describe_repeats(case: Case) -> str:
    """Return what steps launch many times in a row, if that is much of what they launch; "" otherwise."""
    numbers = case.summary.what_if
    repeats = [] if numbers is None else numbers.repeats
    if not repeats or repeats[0].kernels * repeats[0].times < LEAST_SHARE * case.launches:
        return ""
    return f", {count_noun(repeats[0].kernels, 'kernel')} {repeats[0].times} times in a row"


def _find_slowest_change(case: Case) -> Found:
    """Return the range or call whose change saves most, if idle times of GPUs are not known."""
    changes = (change for each in case.changes for change in each.changes if change.target in (what.RANGE, what.CALL))
    change = next(changes, None)
    return ([], "") if change is None else ([Place(kind=change.target, name=change.label)], quote_name(change.label))
