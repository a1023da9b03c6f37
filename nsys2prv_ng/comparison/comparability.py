"""Finds what makes runs incomparable: different machines, sizes or programs, and different ways of tracing them.

A finding names the values, and the sides with each value. It prevents the tables whose rows or sums have another
meaning on some sides; everything else can be compared. Tables are named by their keys in a comparison (`kernels`,
`copies`, ...). Further keys are `steps` (times of steps), `gpus` and `ranks` (rows by GPU or by rank), `scaling`, and
`gate` (a slower run is no slower program). Facts that a summary of an older version lacks are not checked; this is a
finding as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nsys2prv_ng.comparison.model import Comparability, Finding, Side
from nsys2prv_ng.comparison.work import match_steps
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.report.diagnostics import REMEDY
from nsys2prv_ng.summary.efficiency.windows import find_most_compute
from nsys2prv_ng.summary.job import JobFacts, JobSummary
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.text.formatting import count_noun, cut_middle
from nsys2prv_ng.text.names import clean_name

WARNING, NOTE = "warning", "note"
"""Severities: a warning may be the only reason why numbers differ; a note is worth knowing."""

GATE = "gate"
"""Key of findings with which a slower run is no slower program."""
_BY_PLACE = frozenset(("gpus", "ranks"))
"""Tables with a row for each GPU or rank."""
_IN_GRAPHS = frozenset(("activity", "kernels", "nccl", "collectives", "waits"))
"""Tables that lack the kernels of graphs that were traced as a whole."""
_SCALING, _OF_STEPS, _GATE = frozenset(("scaling",)), frozenset(("steps",)), frozenset((GATE,))
_WHOLE_GRAPHS = (
    "NCCL may be in CUDA graphs of {} that were traced as a whole: efficiencies count them as communication where NCCL "
    "is"
)
_OLDER = (
    "an older version made the summary of {}, so these are not checked: traced sources, programs, missing ranks, CUDA "
    "graphs, lost data and versions of nsys"
)
_LONGEST = 60
"""Most characters of a name in a finding."""
_MOST_NAMES = 4


def check_comparability(sides: Sequence[Side]) -> Comparability:
    """Return what differs between sides, and what prevents comparisons with a single side."""
    known = [(side, side.summary.facts) for side in sides if side.summary.facts is not None]
    gpus = [(side, count_gpus(side.summary)) for side in sides]
    processes = [(side, count_processes(side.summary)) for side in sides]
    programs = [(side, tuple(facts.programs)) for side, facts in known if facts.programs]
    waits = [(side, side.summary.waits) for side in sides if side.summary.waits is not None]
    payload = [(side, "no" if numbers.reports_without_payload else "yes") for side, numbers in waits]
    graphs = [(side, tuple(facts.graphs)) for side, facts in known if facts.graphs]
    versions = [(side, tuple(facts.nsys_versions)) for side, facts in known]
    schemas = [(side, tuple(facts.schema_versions)) for side, facts in known]
    lacking = [side for side, facts in known if facts.lacks_ranks]
    rated = [(side, side.summary.efficiency) for side in sides if side.summary.efficiency is not None]
    hidden = [side for side, numbers in rated if find_most_compute(numbers) is not None]
    older = [side for side in sides if side.summary.facts is None]
    checks = (
        _find_same_captures(sides),
        _find_unlike_captures(sides),
        _find_other_machines(sides),
        _compare("number of GPUs", gpus, WARNING, _BY_PLACE | _GATE),
        _compare("number of processes", processes, WARNING, _BY_PLACE | _GATE),
        _compare("number of nodes", [(side, side.summary.nodes) for side in sides], NOTE),
        _find_any(lacking, "some ranks of {} have no report: sums are of a part of the job", WARNING, _SCALING),
        _find_other_choices(sides),
        _compare("program", programs, WARNING, _GATE),
        _find_other_steps(sides),
        _find_other_sources(known),
        _compare("payload of every call of NCCL", payload, WARNING, frozenset(("collectives", "waits"))),
        _find_mixed_graphs(known),
        _find_any(hidden, _WHOLE_GRAPHS, NOTE),
        _compare("CUDA graphs traced", graphs, WARNING, _IN_GRAPHS),
        _find_lost_data(known),
        _compare("version of nsys", versions, NOTE),
        _compare("version of the export's schema", schemas, NOTE),
        _find_any(older, _OLDER, NOTE),
    )
    findings = [finding for check in checks for finding in check]
    return Comparability(sorted(findings, key=lambda finding: finding.severity != WARNING))


# ---- what was captured -----------------------------------------------------------------------------------------------


def _find_same_captures(sides: Sequence[Side]) -> Iterator[Finding]:
    """Yield a finding for each set of captures, of one side or several, that have reports in common."""
    runs = [
        (f"{side.label}, capture {number}" if side.captures else side.label, capture)
        for side in sides
        for number, capture in enumerate(side.every, 1)
    ]
    holders: dict[object, list[int]] = {}
    reports: dict[object, int] = {}
    for number, (_, summary) in enumerate(runs):
        for capture, count in _list_captures(summary).items():
            holders.setdefault(capture, []).append(number)
            reports[capture] = count
    common = sum_by_key((tuple(numbers), reports[capture]) for capture, numbers in holders.items() if len(numbers) > 1)
    for group, count in common.items():
        labels = _list_labels(runs[number][0] for number in group)
        is_all = all(count == runs[number][1].reports for number in group)
        what = "are of the same reports" if is_all else f"have {count_noun(count, 'report')} in common"
        yield Finding(WARNING, f"{labels} {what}: only what was chosen of them can differ", _SCALING)


def _find_unlike_captures(sides: Sequence[Side]) -> Iterator[Finding]:
    """Yield a finding for each side whose captures are not of the same program, size and steps."""
    for side in sides:
        facts = [describe_capture(capture) for capture in side.every]
        unlike = [name for name in facts[0] if len({each[name] for each in facts}) > 1]
        steps = [match_steps(side.summary, capture).sizes for capture in side.every if capture.steps is not None]
        unlike += ["steps"] if "steps" not in unlike and set(steps) > {(1, 1)} else []
        if unlike:
            prevents = _OF_STEPS if "steps" in unlike else frozenset()
            text = f"the captures of {_shorten(side.label)} differ in {', '.join(unlike)}: they do not repeat one run"
            yield Finding(WARNING, text, prevents)


def describe_capture(summary: JobSummary) -> dict[str, Any]:
    """Return what all captures of a side, or of a history, have in common."""
    facts, steps = summary.facts, summary.steps
    return {
        "number of GPUs": count_gpus(summary),
        "number of processes": count_processes(summary),
        "GPU model": tuple(sorted({gpu.name for gpu in summary.gpus})),
        "CPU model": None if facts is None else tuple(facts.cpus),
        "program": None if facts is None else tuple(facts.programs),
        "chosen part": tuple(summary.chosen),
        "steps": None if steps is None else steps.name,
    }


def _list_captures(summary: JobSummary) -> dict[object, int]:
    """Return the number of reports by what identifies their capture.

    Without facts, numbers of the whole job identify it: equal numbers mean the same reports.
    """
    if summary.facts is not None:
        return dict.fromkeys(summary.facts.captures, 1)
    return {(summary.start_utc_ns, summary.duration_ns, summary.reports, summary.tasks): summary.reports}


def _find_other_machines(sides: Sequence[Side]) -> Iterator[Finding]:
    models = [(side, tuple(sorted({gpu.name for gpu in side.summary.gpus if gpu.name}))) for side in sides]
    yield from _compare("GPU model", [pair for pair in models if pair[1]], WARNING, _SCALING | _GATE)
    cpus = [(side, tuple(side.summary.facts.cpus)) for side in sides if side.summary.facts is not None]
    yield from _compare("CPU model", [pair for pair in cpus if pair[1]], WARNING, _GATE)
    unknown = [side for side in sides if any(not gpu.name for gpu in side.summary.gpus)]
    if len(sides) > 1:
        yield from _find_any(unknown, "the reports do not name every GPU of {}: GPU models are not checked there", NOTE)


def count_gpus(summary: JobSummary) -> int:
    """Return the number of GPUs that ran an operation; without efficiencies, the number of all GPUs."""
    if summary.efficiency is None or summary.efficiency.losses is None:
        return len(summary.gpus)
    return summary.efficiency.losses.devices


def count_processes(summary: JobSummary) -> int:
    """Return the number of ranks; if no process has a rank, the number of main threads."""
    threads = 0 if summary.efficiency is None else summary.efficiency.threads
    return summary.ranks or threads or summary.tasks


def _find_other_choices(sides: Sequence[Side]) -> Iterator[Finding]:
    parts = [side for side in sides if {"ranks", "GPUs"} & set(side.summary.chosen)]
    prevents = _SCALING if parts else frozenset()
    chosen = [(side, tuple(side.summary.chosen)) for side in sides]
    findings = list(_compare("chosen part", chosen, WARNING, prevents, nothing="everything"))
    yield from findings or _find_any(parts, "{} are a part of the ranks or GPUs of a job", NOTE, prevents)


def _find_other_steps(sides: Sequence[Side]) -> Iterator[Finding]:
    """Yield a finding if some side has no steps, or steps that are not known to be the work of those of the first."""
    steps = [side.summary.steps for side in sides]
    unlike = [side for side in sides[1:] if not all(match_steps(sides[0].summary, side.summary).sizes)]
    if unlike and any(steps):
        names = ["none" if numbers is None else clean_name(numbers.name) for numbers in steps]
        findings = list(_compare("steps", list(zip(sides, names, strict=True)), WARNING, _OF_STEPS))
        yield from findings or _find_any(unlike, f"steps: {names[0]} of {{}} may be other work", WARNING, _OF_STEPS)


# ---- how it was traced -----------------------------------------------------------------------------------------------


def _find_other_sources(known: Sequence[tuple[Side, JobFacts]]) -> Iterator[Finding]:
    """Yield a finding for each source that users choose when they trace, and that has events on some sides only."""
    if all(facts.sources.keys() == known[0][1].sources.keys() for _, facts in known):
        return
    from nsys2prv_ng.sources.registry import SOURCES  # takes a third of a second, which saved summaries rarely need

    for source in SOURCES:
        having = [side.label for side, facts in known if source.name in facts.sources]
        lacking = [side.label for side, facts in known if source.name not in facts.sources]
        if source.needed_by is not None and having and lacking:
            sides = f"in {_list_labels(having)}, not in {_list_labels(lacking)}"
            yield Finding(WARNING, f"{source.title}: {sides} (not traced or not used)", frozenset(source.needed_by))


def _find_mixed_graphs(known: Sequence[tuple[Side, JobFacts]]) -> Iterator[Finding]:
    """Yield a finding for each side with some CUDA graphs traced by node and others traced as a whole."""
    for side, facts in known:
        if len(facts.graphs) > 1:
            how = " and ".join(facts.graphs)
            yield Finding(WARNING, f"CUDA graphs of {_shorten(side.label)} are traced {how}: {REMEDY}")


def _find_lost_data(known: Sequence[tuple[Side, JobFacts]]) -> Iterator[Finding]:
    for side, facts in known:
        if facts.lost_data_messages:
            count = count_noun(facts.lost_data_messages, "message")
            label = _shorten(side.label)
            yield Finding(WARNING, f"nsys reports in {count} that data of {label} is missing: counts may be too low")


# ---- text ------------------------------------------------------------------------------------------------------------


def _compare(
    what: str,
    values: Sequence[tuple[Side, Any]],
    severity: str,
    prevents: frozenset[str] = frozenset(),
    nothing: str = "",
) -> Iterator[Finding]:
    """Yield a finding if sides have different values. `nothing`: shown for an empty value."""
    labels_of_value = group_by_key((value, side.label) for side, value in values)
    if len(labels_of_value) > 1:
        listed = (f"{_show(value) or nothing} ({_list_labels(labels)})" for value, labels in labels_of_value.items())
        yield Finding(severity, f"{what}: {' vs '.join(listed)}", prevents)


def _find_any(
    sides: Sequence[Side], text: str, severity: str, prevents: frozenset[str] = frozenset()
) -> Iterator[Finding]:
    """Yield a finding if there are any sides. `text`: has {} in place of their labels."""
    if sides:
        yield Finding(severity, text.format(_list_labels(side.label for side in sides)), prevents)


def _show(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return _list_labels(value) if isinstance(value, tuple) else _shorten(value) if value else ""


def _list_labels(labels: Iterable[str]) -> str:
    """Return the first labels in one line, each shortened."""
    every = list(labels)
    more = [f"{len(every) - _MOST_NAMES:,} more"] if len(every) > _MOST_NAMES else []
    return ", ".join([*map(_shorten, every[:_MOST_NAMES]), *more])


def _shorten(name: str) -> str:
    return cut_middle(clean_name(name), _LONGEST)
