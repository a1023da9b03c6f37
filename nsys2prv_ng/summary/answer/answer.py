"""Makes the answer of a summary: the line on the job, and those from BOTTLENECK to TRUST, in text and as objects."""

from __future__ import annotations

from dataclasses import replace

from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.steps.numbered_names import OTHER_WORK, number_step
from nsys2prv_ng.summary.answer import slow_steps
from nsys2prv_ng.summary.answer.bottleneck import Bottleneck
from nsys2prv_ng.summary.answer.busy_bottlenecks import COPIES, START_UP, TRANSFER
from nsys2prv_ng.summary.answer.case import HALF, HOST_BOUND, Case
from nsys2prv_ng.summary.answer.gains import describe_gains, list_gains
from nsys2prv_ng.summary.answer.idle_bottlenecks import READBACKS
from nsys2prv_ng.summary.answer.judge import choose_variant, classify, find_close
from nsys2prv_ng.summary.answer.remedies import Tried, list_own, list_remedies
from nsys2prv_ng.summary.answer.rules import copies_communicate
from nsys2prv_ng.summary.answer.sampled import describe_preset, list_options
from nsys2prv_ng.summary.answer.stragglers import describe_stragglers, find_stragglers, is_minor
from nsys2prv_ng.summary.answer.trust import describe_start_up, list_doubts
from nsys2prv_ng.summary.answer.where_on_hosts import describe_idle
from nsys2prv_ng.summary.efficiency.numbers import StepNumbers
from nsys2prv_ng.summary.efficiency.windows import are_steps, choose_window
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.table import describe_slow_modes
from nsys2prv_ng.summary.links.table import describe_pipeline, describe_slow_links
from nsys2prv_ng.summary.memory.table import describe_leaks
from nsys2prv_ng.summary.steps.table import describe_kinds, name_kind
from nsys2prv_ng.summary.verdict import Gain, Place, Statement, TriedRemedy, Verdict
from nsys2prv_ng.text.formatting import count_nouns, format_percent, format_span, format_time, format_window, join_first
from nsys2prv_ng.text.names import clean_name, quote_name

_OTHER = f"{OTHER_WORK} between steps, such as validation, checkpoints or logging"
_MOST_DOUBTS = 2
"""Most TRUST lines: all others are in the JSON. A choice, so that the answer stays short."""
SECTIONS = {
    "analysis/slow_steps": "Pace of the steps",
    "analysis/kernel_classes": "Kernels",
    "basics/graphs": "Kernels",
    "analysis/exposed_communication": "Waits and their causes",
    "analysis/waited_for": "Waits and their causes",
    "basics/mpi": "Waits and their causes",
    "analysis/pipeline_bubble": "Pipeline",
    "basics/memory_operations": "Ranges, copies and calls",
    "basics/unified_memory": "Ranges, copies and calls",
    "basics/gil": "Ranges, copies and calls",
    "analysis/gpu-gaps": "Idle GPUs",
    "analysis/read_backs": "Idle GPUs",
    "analysis/queue_delay": "Idle GPUs",
    "views/cuda_activities": "Kernels",
}
"""The section of the page that shows what a preset shows in Paraver."""
_WAIT_SHARE = 0.1
"""Least share of wait time that is worth a word for a host-bound job: below it a straggler is minor as well."""
_MPI_SHARE = 0.02
"""Least share of MPI calls that is worth a word for a host-bound job: parts of GPU time below it are in *other*."""
_SHIFTING = {"time", "nvtx_range"}
"""Choices after which times count from the start of the chosen time, not from that of the whole trace."""
_MUCH_MORE = 1.5
"""A saving that is this many times the share of GPU time needs a word, since the share alone does not explain it.

A choice: too small, and the word repeats the share."""


def add_verdict(summary: JobSummary) -> JobSummary:
    """Return a summary with its verdict."""
    return replace(summary, verdict=answer(summary))


def find_verdict(summary: JobSummary) -> Verdict:
    """Return the verdict of a summary, or what it would be for one of an older version."""
    return summary.verdict if summary.verdict.statements else answer(summary)


def answer(summary: JobSummary) -> Verdict:
    """Return what limits a job, where, what that costs, what to try, and how far the numbers can be trusted."""
    case = Case(summary)
    bottleneck, stragglers = classify(case), find_stragglers(case)
    startup, doubts = describe_start_up(summary), list_doubts(case)
    places: list[Place] = []
    gains: list[Scenario] = []
    tried: list[Tried] = []
    share, where, hint, see = None, "", "", ""
    statements = [_state("BOTTLENECK", _describe_no_class(case), "efficiency")]
    if bottleneck is not None:
        places, where = bottleneck.places(case)
        gains, share = list_gains(case, bottleneck), _measure_share(case, bottleneck)
        tried = [] if bottleneck.unknown or bottleneck == START_UP else list_remedies(case, bottleneck)
        is_tried = any(each.remedy.is_of_reads for each in tried)
        idle = "" if bottleneck == READBACKS else describe_idle(case, is_tried=is_tried)
        hint, see = bottleneck.hint, _describe_preset(case, bottleneck)
        gain, evidence = describe_gains(case, bottleneck, gains, share, tried)
        statements = [
            _state("BOTTLENECK", _describe_bottleneck(case, bottleneck, share, gains), *bottleneck.evidence),
            _state("WHERE", _join_places(where, idle, _name_other_kind(case)), *bottleneck.evidence),
            _state("GAIN", gain, *evidence),
            *_list_hints(case, bottleneck, gains, share, tried),
            _state("TRY", list_options(case) if bottleneck.bound == HOST_BOUND and not bottleneck.unknown else ""),
            replace(_state("SEE", see + describe_preset(case, places)), section=SECTIONS[bottleneck.preset]),
        ]
        if bottleneck.doubt:  # the first line has this doubt
            doubts = [doubt for doubt in doubts if doubt.evidence != list(bottleneck.doubt)]
    pipeline = describe_pipeline(summary.pipeline)
    # The stages of a pipeline wait for each other in turn: a minor straggler among them is a part of the bubble.
    texts = describe_stragglers(case, [each for each in stragglers if not (pipeline and is_minor(case, each))])
    are_named = bottleneck is not None and bottleneck.of_steps
    statements += [
        *(_state("STRAGGLER", text, "waits") for text in texts),
        *(_state("LINK", text, "waits.links") for text in describe_slow_links(summary.links)[:1]),
        _state("SLOW", describe_slow_modes(summary.slow_modes, has_several=summary.tasks > 1), "slow_modes"),
        _state("MEMORY", describe_leaks(summary.memory), "memory"),
        _state("PIPELINE", pipeline if pipeline != where else "", "waits.pipeline"),
        _state("KINDS", describe_kinds(summary.steps), "steps"),
        _state("STEPS", _contrast_steps(case, are_named=are_named), "slow_steps", "efficiency"),
        _state("STARTUP", startup, "start_up"),
    ]
    keys = [doubt.evidence for doubt in doubts]
    firsts = [doubt for n, doubt in enumerate(doubts) if doubt.evidence not in keys[:n]]
    statements += (firsts + [doubt for doubt in doubts if doubt not in firsts])[:_MOST_DOUBTS]
    return Verdict(
        bottleneck="" if bottleneck is None else bottleneck.key,
        share=share,
        where=places,
        gain_ns=gains[0].saving_ns if gains else None,
        gains=[Gain(change=each.change, saving_ns=each.saving_ns) for each in gains],
        hint=hint,
        remedies=[TriedRemedy(key=each.remedy.key, saving_ns=each.saving_ns) for each in tried],
        see=see,
        stragglers=stragglers,
        startup=startup,
        trust=[doubt.text for doubt in doubts],
        statements=[statement for statement in statements if statement.text],
    )


def _state(label: str, text: str, *evidence: str) -> Statement:
    return Statement(label=label, text=text, evidence=list(evidence))


def _contrast_steps(case: Case, *, are_named: bool) -> str:
    """Return what the usual steps do, and which steps are slow and why unless they are the bottleneck; "" without."""
    if case.slow_steps is None:
        return ""
    name, reason = slow_steps.name_step(case.summary), slow_steps.describe_reason(case.summary)[0]
    before = [] if are_named else [slow_steps.describe_slow(case.slow_steps, name), reason]
    return "; ".join(filter(None, [*before, slow_steps.describe_usual(case.slow_steps)]))


# ---- BOTTLENECK ------------------------------------------------------------------------------------------------------


def _measure_share(case: Case, bottleneck: Bottleneck) -> float | None:
    """Return the part of GPU time that is in the class, from 0 to 1; None if it is none of GPU time."""
    ns = 0 if case.losses is None or not case.gpu_ns else bottleneck.measure(case.losses)
    return ns / case.gpu_ns if ns else None


def _describe_bottleneck(case: Case, bottleneck: Bottleneck, share: float | None, gains: list[Scenario]) -> str:
    """Return the class, and its share of GPU time in words, or else of the ranks' time in MPI: GPUs idle meanwhile."""
    text = ""
    if bottleneck.of_steps and case.slow_steps is not None:
        text = slow_steps.describe_slow(case.slow_steps, slow_steps.name_step(case.summary))
    elif share is not None:
        more = {"in_mpi": _name_mpi(case), "worth": _explain(bottleneck, share, gains), "waits": _name_waits(case)}
        text = bottleneck.sentence.format(share=format_percent(share, 1), whole=case.whole, **more)
    elif bottleneck.on_hosts is not None:
        field, sentence = bottleneck.on_hosts
        part = case.measure_mpi(field)
        text = "" if part is None else sentence.format(share=format_percent(part, 1))
    close = find_close(case, bottleneck)
    title = bottleneck.title + (f", nearly {close.key}" if close is not None else "")
    return f"{title}: {_add_compute(case, share, text)}" if text else title


def _name_mpi(case: Case) -> str:
    """Return how much of the host-bound time is in MPI calls, which GPU time shows apart; "" if it is little."""
    ns = case.host_in_mpi_ns
    return f" ({format_percent(ns, case.gpu_ns)} in MPI)" if ns >= _MPI_SHARE * case.gpu_ns else ""


def _add_compute(case: Case, share: float | None, text: str) -> str:
    """Return what a job is like, after how long GPUs compute if that is most of the time, and not what limits them."""
    compute = 0 if case.losses is None else case.losses.compute_ns / case.gpu_ns
    if share is None or compute <= max(share, HALF):
        return text
    rest = text.removeprefix("GPUs ").replace(f" of {case.whole}", "", 1)
    return f"GPUs compute {format_percent(compute, 1)} of {case.whole}, but {rest}"


def _name_waits(case: Case) -> str:
    """Return how much of GPU time is wait for other ranks; "" if it is little."""
    ns = 0 if case.losses is None else case.losses.waiting_ns
    many = ns > _WAIT_SHARE * case.gpu_ns
    return f", and wait {format_percent(ns, case.gpu_ns)} for other ranks" if many else ""


def _explain(bottleneck: Bottleneck, share: float, gains: list[Scenario]) -> str:
    """Return what a part of GPU time is worth, if that is much more than its share; "" if it is not."""
    is_more = bool(gains) and gains[0].share >= _MUCH_MORE * share
    return bottleneck.worth.format(gain=format_percent(gains[0].share, 1)) if is_more else ""


def _join_places(*texts: str) -> str:
    """Return what there is of some texts, each once."""
    return "; ".join(text for text in dict.fromkeys(texts) if text)


def _name_other_kind(case: Case) -> str:
    """Return how much of the time is in another kind of steps than the usual one; "" if it is little."""
    kind = case.other_kind
    if kind is None or case.summary.steps is None:
        return ""
    name = _OTHER if kind.name == OTHER_WORK else name_kind(kind.name, "steps")
    whole = sum(each.total_ns for each in case.summary.steps.kinds)
    return f"{format_percent(kind.total_ns, whole)} of the time is {name}"


def _describe_no_class(case: Case) -> str:
    """Return why no class applies: there are no GPUs, and main threads hardly wait in MPI."""
    host = None if case.window is None else case.window.numbers.nccl_as_communication.host
    text = "none found: no GPU operations in this time" if case.losses is None else "none found"
    if host is None or host.mpi_parallel == 1:
        return text
    first = next((f", mostly {quote_name(call.call)}" for call in case.summary.mpi), "")
    return f"{text}; main threads spend {format_percent(1 - host.mpi_parallel, 1)} of it in MPI{first}"


# ---- TRY -------------------------------------------------------------------------------------------------------------


def _list_hints(
    case: Case, bottleneck: Bottleneck, gains: list[Scenario], share: float | None, tried: list[Tried]
) -> list[Statement]:
    """Return the lines of remedies and of the class, in the order of GAIN: first what addresses the class.

    The hint of the class has nothing to add if a remedy says it, or saves most of its share. Of compute, nothing saves
    most. Nor is it one for a host that back traces slow.
    """
    remedies = [_state("TRY", each.remedy.hint, "remedies") for each in tried]
    own = list_own(tried, bottleneck)
    least = 0.0 if bottleneck.needs_host else HALF * (share or 0)
    if case.is_slowed_by_back_traces or any(each.remedy.hint == bottleneck.hint or each.share > least for each in own):
        return remedies
    of_class = [_state("TRY", bottleneck.hint + _hint_at_other(case, bottleneck, gains))]
    return remedies + of_class if own else of_class + remedies


def _hint_at_other(case: Case, bottleneck: Bottleneck, gains: list[Scenario]) -> str:
    """Return the beginning of the hint for copies or transfer, if GAIN has them for a job of another class; else ""."""
    changes = [gain.only for gain in gains if gain.only != COPIES.bound or not copies_communicate(case)]
    for noun, other in (("copies", COPIES), ("transfer", TRANSFER)):
        if other.bound in changes and bottleneck.key != other.key:
            return f"; against {noun}: {choose_variant(case, other).hint.partition(';')[0]}"
    return ""


# ---- SEE -------------------------------------------------------------------------------------------------------------


def _describe_preset(case: Case, bottleneck: Bottleneck) -> str:
    """Return the preset, and the option for a short trace of the time that it should show."""
    summary, efficiency = case.summary, case.summary.efficiency
    windows = [] if _SHIFTING.intersection(summary.chosen) else summary.windows_ns
    if summary.steps is None and not summary.chosen:
        windows = [] if efficiency is None or efficiency.work_ns is None else [efficiency.work_ns]
    if windows and bottleneck.of_steps and case.slow_steps is not None:
        slowest = slow_steps.locate_slowest(summary, case.slow_steps)
        windows = windows if slowest is None else [slowest]
    if not windows:
        return f"{bottleneck.preset}.cfg"
    return f"{bottleneck.preset}.cfg with --time {format_window(windows[0][0], windows[-1][1])}"


# ---- the job ---------------------------------------------------------------------------------------------------------


def describe_job(summary: JobSummary) -> str:
    """Return the size of a job, the time that numbers cover, and how long steps take."""
    users = {"rank": summary.ranks} if summary.ranks or summary.gpus else {"task": summary.tasks}
    sizes = {"GPU": len(summary.gpus), **users, "node": summary.nodes}
    parts = [count_nouns({noun: number for noun, number in sizes.items() if number})]
    steps, efficiency = summary.steps, summary.efficiency
    if steps is not None and efficiency is not None:
        covers = are_steps(summary.windows_ns, efficiency.steps_ns) or efficiency.in_steps is not None
        parts += _describe_steps(steps, summary) if covers else []
    if len(parts) == 1:
        parts.append(_describe_time(summary))
    return " | ".join(parts)


def _describe_steps(steps: StepNumbers, summary: JobSummary) -> list[str]:
    numbers = f"{steps.first}" + (f"-{steps.last}" if steps.last != steps.first else "")
    excluded = ", warm-up excluded" if steps.warmup and summary.start_up is not None else ""
    whole = format_time(steps.window_ns[1] - steps.window_ns[0])
    parts = [f"{clean_name(number_step(steps.name, numbers))} ({whole}{excluded})"]
    if len(steps.kinds) > 1:
        medians = (f"{name_kind(kind.name, 'step')} {format_time(kind.median_ns)}" for kind in steps.kinds)
        return [*parts, f"median {join_first(list(medians), _MOST_MEDIANS)}"]
    if steps.count > 1:
        return [*parts, f"median step {format_time(steps.median_ns)} ({format_span(steps.min_ns, steps.max_ns)})"]
    return parts


_MOST_MEDIANS = 2
"""Most kinds of steps whose medians the first line has: those with most time."""


def _describe_time(summary: JobSummary) -> str:
    """Return the time that numbers cover, without steps."""
    if summary.efficiency is None:
        return f"capture of {format_time(summary.duration_ns)}"
    window = choose_window(summary.efficiency, None)
    return f"{window.name} ({format_time(window.numbers.length_ns)})"
