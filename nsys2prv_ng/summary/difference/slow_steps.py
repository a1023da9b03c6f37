"""Compares the slow steps of a job with its usual ones, as two runs are compared: what the slow ones have more of.

Both kinds of steps are summed up like jobs of their own. The parts of the difference are those of two runs (budget.py),
as means over the steps; so are the changes by name (changes.py). Host-bound time is divided further, by the range and
call that the launching thread was in.

A call or range that every slow step has and no usual one counts only if chance is unlikely: a call that occurs once
falls into any step with equal probability. So there are at least _FEWEST slow steps, or it takes NOISE of the
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.gpus.times import measure_gpu_times
from nsys2prv_ng.analysis.host_activity import load_outermost_calls, map_main_threads
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons, find_reasons
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.groups import Table, group_rows, join_tables, make_objects, sum_table
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.opened_events import is_program_domain, load_nvtx_ranges
from nsys2prv_ng.summary import totals
from nsys2prv_ng.summary.answer.case import Case
from nsys2prv_ng.summary.answer.slow_steps import SlowSteps
from nsys2prv_ng.summary.by_name import NameSums, collect_names, sum_names
from nsys2prv_ng.summary.difference.budget import LEAST, list_windows, make_budget
from nsys2prv_ng.summary.difference.changes import Change, Kind, find_kernels, list_changes
from nsys2prv_ng.summary.difference.statistics import NOISE
from nsys2prv_ng.summary.gpus.measure import list_gpus
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.ranges.waiting import WaitingInRanges
from nsys2prv_ng.summary.steps.numbers import IdlePart, LateInSlow, OnlySlow, SlowStepNumbers, StepChange, StepPart
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.summary.waits.measure import list_costs
from nsys2prv_ng.summary.waits.numbers import LateCost
from nsys2prv_ng.summary.waits.words import find_main_reasons, group_costs
from nsys2prv_ng.text.formatting import shorten_range_name

_KINDS: tuple[Kind, ...] = ("kernel", "transfer", "range", "call")
_MOST_CHANGES = 10
"""Most changes of each kind."""
_FEWEST = 3
"""Fewest slow steps of which all can have a call by no chance, however short it is."""
_MOST_NAMES = 20


def add_slow_steps(
    summary: JobSummary, found: SlowSteps, job: Job, waits: Waits, late: LateReasons | None = None
) -> JobSummary:
    """Return the summary of a job with the slow steps that were found compared with the usual ones.

    `late`: why the culprits of `waits` were late, if the caller already knows. This takes another pass over the
    reports.
    """
    if job.scope.counted is None:
        return summary
    numbers = [[step.number for step in steps] for steps in (found.usual, found.slow)]
    jobs = [take_steps(job, chosen) for chosen in numbers]
    waiting = WaitingInRanges(job, waits)
    usual, slow = (sum_up_steps(side, waits, waiting, summary) for side in jobs)
    explained = compare_steps(usual, slow)
    if explained is None:
        return summary
    late = find_reasons(job, waits) if late is None else late
    costs = [list_costs(side, waits, late) for side in jobs] if job.finds_waits else [[], []]
    explained = replace(
        explained,
        only_slow=_find_only_slow(list_names_by_step(job), explained, jobs, summary),
        late=_find_late(summary.tasks, explained, *costs),
    )
    return replace(summary, slow_steps=explained)


def compare_steps(usual: JobSummary, slow: JobSummary) -> SlowStepNumbers | None:
    """Return what the steps of one summary have more of than those of another; None if their time has no parts."""
    a, b = (list_windows(side, by_step=True) for side in (usual, slow))
    parts = [_make_part(row.name, row.a_ns, row.b_ns) for row in make_budget(a, b)[:-1]]
    if not parts or usual.efficiency is None or slow.efficiency is None:
        return None
    usual_ns, slow_ns = sum(part.usual_ns for part in parts), sum(part.slow_ns for part in parts)
    return SlowStepNumbers(
        slow=[step.number for step in slow.efficiency.steps],
        usual=[step.number for step in usual.efficiency.steps],
        usual_ns=usual_ns,
        slow_ns=slow_ns,
        difference_ns=slow_ns - usual_ns,
        unit=a.unit,
        units=a.units,
        parts=parts,
        idle=_compare_idle(usual, slow, a.units),
        causes=_compare_causes(usual, slow, a.units),
        changes=_list_changes(usual, slow, LEAST * usual_ns),
    )


def _make_part(name: str, usual_ns: float, slow_ns: float) -> StepPart:
    usual_ns, slow_ns = round(usual_ns), round(slow_ns)
    return StepPart(name=name, usual_ns=usual_ns, slow_ns=slow_ns, difference_ns=slow_ns - usual_ns)


# ---- by name ---------------------------------------------------------------------------------------------------------


def _compare_idle(usual: JobSummary, slow: JobSummary, gpus: int) -> list[IdlePart]:
    """Return the host-bound time of a mean GPU by range and call."""
    before, after = _sum_idle(usual, gpus), _sum_idle(slow, gpus)
    parts = [
        IdlePart(**vars(_make_part(key[1], before.get(key, 0), after.get(key, 0))), range=key[0])
        for key in dict.fromkeys([*before, *after])
    ]
    return sorted(parts, key=lambda part: (-abs(part.difference_ns), part.range, part.name))


def _compare_causes(usual: JobSummary, slow: JobSummary, gpus: int) -> list[StepPart]:
    """Return the host-bound time of a mean GPU by its cause, the largest difference first."""
    before, after = (
        {cause.words: time.ns / (gpus * side.steps.count) for cause, time in Case(side).host_causes.items()}
        for side in (usual, slow)
        if side.steps is not None
    )
    parts = [_make_part(name, before.get(name, 0), after.get(name, 0)) for name in dict.fromkeys([*before, *after])]
    return sorted(parts, key=lambda part: (-abs(part.difference_ns), part.name))


def _sum_idle(summary: JobSummary, gpus: int) -> dict[tuple[str, str], float]:
    """Return the host-bound time (ns) of a mean GPU and step by range and call."""
    assert summary.steps is not None
    parts = gpus * summary.steps.count
    return {key: ns / parts for key, (ns, _) in Case(summary).host_gaps.items()}


def _list_changes(usual: JobSummary, slow: JobSummary, least: float) -> list[StepChange]:
    """Return the largest changes of each kind, of `least` (ns) or more, and the kernel with nearly all of its class."""
    found: list[StepChange] = []
    for kind in _KINDS:
        changes = [change for change in list_changes(usual, slow, kind) if abs(change.difference_ns) >= least]
        found += [_make_change(change, "class" if kind == "kernel" else kind) for change in changes[:_MOST_CHANGES]]
    classes = {change.name for change in found if change.kind == "class"}
    kernels = [change for change in find_kernels(usual, slow) if change.name not in classes]
    found += [_make_change(change, "kernel") for change in kernels if abs(change.difference_ns) >= least]
    return sorted(found, key=lambda change: (-abs(change.difference_ns), change.kind, change.name))


def _make_change(change: Change, kind: str) -> StepChange:
    part = _make_part(change.name, change.a_ns, change.b_ns)
    return StepChange(**vars(part), kind=kind, per=change.per, rank=change.rank)


def _find_only_slow(
    names: Table, explained: SlowStepNumbers, jobs: Sequence[Job], summary: JobSummary
) -> list[OnlySlow]:
    """Return the calls and ranges of every slow step and of no usual step. `jobs`: of the usual and the slow steps."""
    usual, slow = (set() if side.scope.counted is None else set(side.scope.counted.tolist()) for side in jobs)
    found = []
    user, users = summary.users
    for rows in group_rows(names, "kind", "name"):
        steps = set(rows["step"].tolist())
        ns = round(int(rows["ns"].sum()) / (len(slow) * users))
        if steps == slow and not steps & usual and (len(slow) >= _FEWEST or ns >= NOISE * explained.difference_ns):
            kind, name = rows["kind"][0], rows["name"][0]
            found.append(OnlySlow(kind=kind, name=name, count=int(rows["count"].sum()), ns=ns, per=user))
    return sorted(found, key=lambda only: (-only.ns, only.kind, only.name))[:_MOST_NAMES]


# ---- waits -----------------------------------------------------------------------------------------------------------


def _find_late(
    tasks: int, explained: SlowStepNumbers, usual: Sequence[LateCost], slow: Sequence[LateCost]
) -> LateInSlow | None:
    """Return the task that the others wait for, if each waits for half of the difference at least."""
    before, after = (sum_by_key((cost.task, cost.ns) for cost in costs) for costs in (usual, slow))
    extra = {task: ns / len(explained.slow) - before[task] / len(explained.usual) for task, ns in after.items()}
    main = find_main_reasons(group_costs(slow, []))
    task = max(extra, key=lambda task: extra[task], default="")
    if tasks < 2 or task not in main or 2 * extra[task] < explained.difference_ns * (tasks - 1):
        return None
    row, ns = main[task].row, round(extra[task])
    return LateInSlow(rank=row.rank, task=task, ns=ns, others=tasks - 1, range=row.range, what=row.what)


def take_steps(job: Job, numbers: Sequence[int]) -> Job:
    """Return the job with numbers of the steps with these numbers only, among those that numbers cover."""
    assert job.steps is not None and job.scope.counted is not None
    chosen = job.scope.counted[np.isin(job.steps.number[job.scope.counted], numbers)]
    return replace(job, scope=job.scope.cover_steps(job.steps, chosen))


def sum_up_steps(side: Job, waits: Waits, waiting: WaitingInRanges, summary: JobSummary) -> JobSummary:
    """Return the summary with the steps of `side`, and with what has a name and what GPUs did in these steps only.

    `side`: the job that `take_steps` returns. All other numbers are those of `summary`, of the whole job.
    """
    assert summary.efficiency is not None and summary.steps is not None
    assert side.steps is not None and side.scope.counted is not None

    def sum_report(index: int) -> NameSums:
        return sum_names(side, index, CountedEvents(side, index), waiting, waits)

    named, _ = collect_names(side, list(side.engine.sum_up(sum_report, range(len(side.reports)))), {})
    devices = list_devices(side)
    numbers = set(side.steps.number[side.scope.counted].tolist())
    steps = [step for step in summary.efficiency.steps if step.number in numbers]
    return replace(
        summary,
        steps=replace(summary.steps, count=len(steps)),
        efficiency=replace(summary.efficiency, steps=steps),
        gpus=list_gpus(side, devices, measure_gpu_times(side, devices)),
        **named._asdict(),
    )


def list_names_by_step(job: Job) -> Table:
    """Return the outermost calls and the NVTX ranges of the steps that count, by `kind`, `name` and `step` (index).

    `count` and `ns` are over all ranks. OS runtime calls count on main threads: threads of libraries wait in them.
    """
    parts = job.engine.sum_up(lambda index: _list_names(job, index), range(len(job.reports)))
    return totals.add_up(list(parts), ["kind", "name", "step"])


def _list_names(job: Job, index: int) -> Table:
    report, counted = job.reports[index], CountedEvents(job, index)
    calls = load_outermost_calls(report, job.store)
    is_system = calls.source == calls.sources.index(source_names.OS_RUNTIME)
    calls = calls.take(np.flatnonzero(~is_system | np.isin(calls.place, list(map_main_threads(report).values()))))
    ranges = load_nvtx_ranges(report, job.store, is_program_domain, with_start_end=True)
    names = [shorten_range_name(domain, name) for domain, name in ranges.keys]
    step, step_of_range = (counted.find_step(events.place, events.begin) for events in (calls, ranges))
    of_calls = _sum_by_step("call", calls.names, calls.name, step, calls.end - calls.begin)
    return join_tables([of_calls, _sum_by_step("range", names, ranges.key, step_of_range, ranges.end - ranges.begin)])


def _sum_by_step(kind: str, names: Sequence[str], name: IntArray, step: IntArray, ns: IntArray) -> Table:
    """Return count and time of events (n) by name and step, without those in no step. `name`: an index into `names`."""
    inside = step >= 0
    one = np.ones(np.count_nonzero(inside), np.int64)
    table = sum_table({"name": name[inside], "step": step[inside], "count": one, "ns": ns[inside]}, ["name", "step"])
    table["name"] = make_objects(names[number] for number in table["name"].tolist())
    return {**table, "kind": make_objects([kind] * table["name"].size)}
