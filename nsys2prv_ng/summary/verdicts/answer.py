"""Makes the answer of a summary: the labelled lines from BOTTLENECK to TRUST, and the same as objects."""

from __future__ import annotations

from dataclasses import replace

from nsys2prv_ng.replay import changes as what
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.replay.numbers import Scenario
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.numbers.verdict import Gain, Statement, Verdict
from nsys2prv_ng.summary.verdicts import bottlenecks
from nsys2prv_ng.summary.verdicts.bottlenecks import Bottleneck
from nsys2prv_ng.summary.verdicts.judge import (
    COPY_BOUND,
    HOST_BOUND,
    LEAST,
    NETWORK_BOUND,
    WAIT_BOUND,
    Case,
    classify,
    find_rank,
    is_worth,
)
from nsys2prv_ng.summary.verdicts.path import bound_gain
from nsys2prv_ng.summary.verdicts.stragglers import describe_stragglers, find_stragglers
from nsys2prv_ng.summary.verdicts.trust import describe_start_up, list_doubts
from nsys2prv_ng.summary.verdicts.where import find_places
from nsys2prv_ng.text.formatting import format_percent, format_time, format_window
from nsys2prv_ng.text.names import clean_name, quote_name

_MOST_GAINS = 3
_MOST_DOUBTS = 2
_LEAST_OTHER = 0.5
"""Least part of the best saving that a change of another kind needs to be listed."""
_WAIT_SHARE = 0.1
"""Least share of wait time that is worth a word for a host-bound job."""
_BOUNDS = {
    bottlenecks.TRANSFER.key: NETWORK_BOUND,
    bottlenecks.HOST.key: HOST_BOUND,
    bottlenecks.LAUNCH.key: HOST_BOUND,
    bottlenecks.COPIES.key: COPY_BOUND,
    bottlenecks.IMBALANCE.key: WAIT_BOUND,
    bottlenecks.PIPELINE.key: WAIT_BOUND,
}
"""The bound that a class removes."""
_KINDS = {
    bottlenecks.COMPUTE.key: ("class ", "kernel ", "range "),
    bottlenecks.HOST.key: ("range ", "call "),
    bottlenecks.LAUNCH.key: ("range ", "call "),
    bottlenecks.START_UP.key: ("call ", "range "),
    bottlenecks.STRAGGLER.key: ("range ", "call "),
}
"""Kinds of changes that address a class; other classes list none but their bound."""
_HOW = {0.0: "no time", 0.5: "half as long"}
"""What a factor makes of a time."""
_IF_BOUND = {
    HOST_BOUND: "if the host never delayed the GPUs",
    NETWORK_BOUND: "if transfer were free",
    WAIT_BOUND: "if no rank waited for another",
    COPY_BOUND: "if copies were free",
}


def add_verdict(summary: JobSummary) -> JobSummary:
    """Return a summary with its verdict."""
    return replace(summary, verdict=answer(summary))


def answer(summary: JobSummary) -> Verdict:
    """Return what limits a job, where, what that costs, what to try, and how far the numbers can be trusted."""
    case = Case(summary)
    bottleneck = classify(case)
    stragglers = find_stragglers(case)
    places, where = ([], "") if bottleneck is None else find_places(case, bottleneck)
    gains = [] if bottleneck is None else _list_gains(case, bottleneck)
    share = None if bottleneck is None else _measure_share(case, bottleneck)
    startup, doubts = describe_start_up(summary), list_doubts(summary)
    hint = see = ""
    statements = [Statement(label="BOTTLENECK", text=_describe_no_class(case), evidence=["efficiency"])]
    if bottleneck is not None:
        hint, see = bottleneck.hint, _describe_preset(case, bottleneck)
        gain, evidence = _describe_gains(case, bottleneck, gains)
        title = _describe_bottleneck(case, bottleneck, share)
        statements = [
            Statement(label="BOTTLENECK", text=title, evidence=list(bottleneck.evidence)),
            Statement(label="WHERE", text=where, evidence=list(bottleneck.evidence)),
            Statement(label="GAIN", text=gain, evidence=evidence),
            Statement(label="TRY", text=hint),
            Statement(label="SEE", text=see),
        ]
    texts = describe_stragglers(case, stragglers)
    statements += [Statement(label="STRAGGLER", text=text, evidence=["waits"]) for text in texts]
    statements += [Statement(label="STARTUP", text=startup, evidence=["start_up"])]
    statements += doubts[:_MOST_DOUBTS]
    return Verdict(
        bottleneck="" if bottleneck is None else bottleneck.key,
        share=share,
        where=places,
        gain_ns=gains[0].saving_ns if gains else None,
        gains=[Gain(change=each.change, saving_ns=each.saving_ns) for each in gains],
        hint=hint,
        see=see,
        stragglers=stragglers,
        startup=startup,
        trust=[doubt.text for doubt in doubts],
        statements=[statement for statement in statements if statement.text],
    )


# ---- BOTTLENECK ------------------------------------------------------------------------------------------------------


def _measure_share(case: Case, bottleneck: Bottleneck) -> float | None:
    """Return the part of GPU time that is in the class, from 0 to 1; None if it is none of GPU time."""
    losses = case.losses
    if losses is None or not case.gpu_ns:
        return None
    parts = {
        bottlenecks.COMPUTE.key: losses.compute_ns,
        bottlenecks.OPAQUE.key: losses.whole_graph_ns,
        bottlenecks.UNCLASSIFIED.key: losses.not_split_ns,
        bottlenecks.STRAGGLER.key: losses.waiting_ns,
        bottlenecks.PIPELINE.key: losses.waiting_ns,
        bottlenecks.IMBALANCE.key: losses.waiting_ns,
        bottlenecks.TRANSFER.key: losses.moving_ns,
        bottlenecks.COPIES.key: losses.memory_ns,
        bottlenecks.HOST.key: losses.host_ns,
        bottlenecks.LAUNCH.key: losses.host_ns,
        bottlenecks.QUEUED.key: losses.queued_ns + losses.graph_ns,
        bottlenecks.UNEXPLAINED.key: losses.unknown_ns,
    }
    ns = parts.get(bottleneck.key)
    return ns / case.gpu_ns if ns else None


def _describe_bottleneck(case: Case, bottleneck: Bottleneck, share: float | None) -> str:
    """Return the class, and its share of GPU time in words."""
    percent = "" if share is None else format_percent(share, 1)
    words = {
        bottlenecks.COMPUTE.key: f"GPUs compute {percent} of the time",
        bottlenecks.OPAQUE.key: f"{percent} of GPU time",
        bottlenecks.UNCLASSIFIED.key: f"{percent} of GPU time",
        bottlenecks.TRANSFER.key: f"{percent} of GPU time is data transfer",
        bottlenecks.COPIES.key: f"{percent} of GPU time is copies alone",
        bottlenecks.QUEUED.key: f"{percent} of GPU time",
        bottlenecks.UNEXPLAINED.key: f"{percent} of GPU time",
        bottlenecks.HOST.key: f"GPUs idle {percent} of the time because the host launches late",
        bottlenecks.LAUNCH.key: f"GPUs idle {percent} of the time in short gaps between launches",
    }
    waits = f"{percent} of GPU time is wait"
    text = words.get(bottleneck.key, waits) if percent else ""
    if bottleneck.key == bottlenecks.START_UP.key and case.summary.steps is not None:
        times = map(format_time, (case.summary.steps.max_ns, case.summary.steps.median_ns))
        text = f"step {case.summary.steps.slowest} takes {next(times)}, the median step {next(times)}"
    if not text:
        text = _describe_rank_time(case, bottleneck)
    wait_ns = 0 if case.losses is None else case.losses.waiting_ns
    if bottleneck.key in (bottlenecks.HOST.key, bottlenecks.LAUNCH.key) and wait_ns > _WAIT_SHARE * case.gpu_ns:
        text += f", and wait {format_percent(wait_ns, case.gpu_ns)} for other ranks"
    return f"{bottleneck.title}: {text}" if text else bottleneck.title


def _describe_no_class(case: Case) -> str:
    """Return why no class applies: there are no GPUs, and main threads hardly wait in MPI."""
    host = None if case.window is None else case.window.numbers.nccl_as_communication.host
    text = "none found: no GPU operations in this time" if case.losses is None else "none found"
    if host is None or host.mpi_parallel == 1:
        return text
    first = next((f", mostly {quote_name(call.call)}" for call in case.summary.mpi), "")
    return f"{text}; main threads spend {format_percent(1 - host.mpi_parallel, 1)} of it in MPI{first}"


def _describe_rank_time(case: Case, bottleneck: Bottleneck) -> str:
    """Return the share of the ranks' time in MPI, if GPU time does not show the class: GPUs idle meanwhile."""
    calls = case.mpi
    if not calls or case.window is None:
        return ""
    whole = case.window.numbers.window_ns * len(calls)
    if bottleneck.key == bottlenecks.TRANSFER.key:
        return f"{format_percent(sum(mpi.transfer_ns for mpi in calls), whole)} of rank time is MPI transfer"
    if bottleneck.key == bottlenecks.UNCLASSIFIED.key:
        return f"{format_percent(sum(mpi.unsplit_ns for mpi in calls), whole)} of rank time, in MPI"
    if bottleneck.key in (bottlenecks.STRAGGLER.key, bottlenecks.IMBALANCE.key, bottlenecks.PIPELINE.key):
        return f"{format_percent(sum(mpi.wait_ns for mpi in calls), whole)} of rank time is wait in MPI"
    return ""


# ---- GAIN ------------------------------------------------------------------------------------------------------------


def _list_gains(case: Case, bottleneck: Bottleneck) -> list[Scenario]:
    """Return the bound of a class, then the changes that address it, then another bound that saves nearly as much."""
    gains: list[Scenario] = []
    bound = case.bounds.get(_BOUNDS.get(bottleneck.key, ""))
    if bottleneck.key == bottlenecks.STRAGGLER.key:
        rank = case.rank_change
        bound = rank if rank is not None and is_worth(rank) else case.bounds.get(WAIT_BOUND)
    if bound is not None:
        gains.append(bound)
    kinds = _KINDS.get(bottleneck.key, ())
    named = [each for each in case.changes if each.change.startswith(kinds)] if kinds else []
    if bottleneck.key == bottlenecks.COMPUTE.key:
        named = sorted(named, key=lambda each: not each.change.startswith("class "))[:1] + named
    gains += [each for n, each in enumerate(named) if each.share >= LEAST and each not in named[:n]]
    others = sorted(case.bounds.values(), key=lambda each: -each.saving_ns)
    least = _LEAST_OTHER * gains[0].saving_ns if gains else 0
    more = [each for each in others if each not in gains and each.saving_ns >= least and each.share >= LEAST][:1]
    return gains[: _MOST_GAINS - len(more)] + more


def _describe_gains(case: Case, bottleneck: Bottleneck, gains: list[Scenario]) -> tuple[str, list[str]]:
    """Return what changes save a step, or a bound by the critical path, and the keys of the evidence."""
    numbers = case.summary.what_if
    if numbers is None:
        text = "" if case.losses is None else bound_gain(case.summary, bottleneck)
        return text, ["critical_path"]
    if bottleneck.key == bottlenecks.START_UP.key:
        return _describe_one_step(case), ["steps"]
    if bottleneck.key == bottlenecks.UNCLASSIFIED.key:
        return "unknown: no replay can tell what unclassified kernels would do", ["what_if"]
    if not gains:
        return "nothing measurable: no change that was tried saves more than the steps vary by", ["what_if"]
    first, *others = gains
    each = f" of {format_time(numbers.step_ns)} a step" if numbers.steps else " in all"
    text = f"about {format_time(first.saving_ns)}{each} ({format_percent(first.share, 1)}) {describe_change(first)}"
    parts = [f"{format_time(other.saving_ns)} {describe_change(other)}" for other in others]
    if bottleneck.key == bottlenecks.COMPUTE.key:
        hosts = [each for each in numbers.scenarios if each.change == HOST_BOUND and each not in gains]
        parts += [f"at most {format_percent(max(each.share, 0), 1)} from a faster host" for each in hosts]
    return "; ".join([text, *parts]), ["what_if"]


def _describe_one_step(case: Case) -> str:
    """Return what a step costs that takes as long as many others."""
    steps = case.summary.steps
    assert steps is not None
    return f"about {format_time(steps.max_ns - steps.median_ns)}, once, in step {steps.slowest}"


def describe_change(scenario: Scenario) -> str:
    """Return a change as a clause: if `data loading` took no time."""
    change = scenario.change
    if change in _IF_BOUND:
        return _IF_BOUND[change]
    rank = find_rank(scenario)
    if rank is not None:
        return f"if rank {rank} were as fast as the median rank"
    changes = read_changes(change)
    how = _HOW.get(changes[0].factor) if len(changes) == 1 else None
    if how is None or changes[0].target not in what.NAMED or changes[0].ranks is not None:
        return f"with {quote_name(change)}"
    name = changes[0].name
    subjects = {what.CLASS: f"{clean_name(name)} kernels", what.KERNEL: f"kernel {quote_name(name)}"}
    return f"if {subjects.get(changes[0].target, quote_name(name))} took {how}"


# ---- SEE -------------------------------------------------------------------------------------------------------------


def _describe_preset(case: Case, bottleneck: Bottleneck) -> str:
    """Return the preset, and the option for a short trace of the time that it should show."""
    windows = case.summary.windows_ns
    if not windows or case.summary.steps is None:
        return f"{bottleneck.preset}.cfg"
    return f"{bottleneck.preset}.cfg, in a trace with --time {format_window(windows[0][0], windows[-1][1])}"
