"""Makes the records of an overview: a trace of at most 100 MB of a job of any size, to find a window worth opening.

An overview has the objects, times and labels of the full trace of the same reports. It contains states, steps, the
longest waits, GPU activity and GPU metrics. Events of the full trace that it lacks or shows in steps of time count as
dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import list_runs
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.job.open_job import Job, store_derived
from nsys2prv_ng.paraver.labels import Labels, Numbering
from nsys2prv_ng.records.runs import Run, load_records
from nsys2prv_ng.sources.shared import reasons as reasons_of_loss
from nsys2prv_ng.sources.shared.source import JoinResult, Result, StateIntervals
from nsys2prv_ng.translation import derived_records as derived
from nsys2prv_ng.translation import overview_rows as budget
from nsys2prv_ng.translation.overview_rows import LineSizes, make_coarse_states, make_metrics, make_shares
from nsys2prv_ng.translation.result import OverviewFacts, SourceAccount
from nsys2prv_ng.value_class import ValueClass

NAME = "overview"
"""Name in the account of the counters and of GPU activity."""
_STEP_DIGITS = 10
"""Maximum number of digits in the value of a step."""


class Overview(ValueClass):
    """The records of an overview, and an account of what it omits."""

    runs: list[Run]
    """They have the rows, type numbers and times of the trace."""
    types: frozenset[int]
    """Numbers of its event types."""
    facts: OverviewFacts
    written: Mapping[str, int]
    """Number of written events by account name; events of other accounts are dropped."""
    reasons: Mapping[str, reasons_of_loss.Reason]
    """Reason why the rest of an account is dropped, by account name."""

    def change_accounts(self, accounts: Sequence[SourceAccount]) -> list[SourceAccount]:
        """Turn the accounts of the full trace into the accounts of the overview."""
        changed = []
        for account in accounts:
            written, reason = (
                self.written.get(account.name, 0),
                self.reasons.get(account.name, reasons_of_loss.NOT_IN_OVERVIEW),
            )
            dropped = dict(account.dropped)
            if account.written != written:
                dropped[reason] = dropped.get(reason, 0) + account.written - written
            changed.append(replace(account, written=written, dropped=dropped, closed_at_end=0, cut_at_end=0))
        made = self.written[NAME]
        return [*changed, SourceAccount(NAME, "What GPUs do in steps of time", made, made)]


def make_overview(
    job: Job, waits: Waits, late: LateReasons, states: Sequence[Run], numbering: Numbering, header_bytes: int
) -> Overview:
    """Store the records of the overview of a job.

    `states`: the runs with the states of all rows. `header_bytes`: size of the .prv header. Raises TranslationError if
    there is nothing to show.
    """
    sizes = budget.measure_line_sizes(job)
    percent = budget.MOST_BYTES // 100
    steps, step_rows, rows_with_steps = _choose_steps(job, sizes, budget.STEPS_PERCENT * percent)
    long_waits, shortest = _make_long_waits(job, waits, late, sizes, budget.WAITS_PERCENT * percent)
    shares = make_shares(job, sizes, budget.SHARES_PERCENT * percent)
    metrics = make_metrics(job, sizes, budget.METRICS_PERCENT * percent, numbering)
    events = [*steps.runs, *long_waits.runs, *shares.runs, *metrics.runs]
    left = budget.MOST_BYTES - header_bytes - budget.measure_bytes(job, events)
    coarse = make_coarse_states(job, states, sizes, left)
    runs = [*events, *coarse.runs]
    if not runs:
        raise TranslationError(
            "an overview of these reports is empty: they have no states, steps, waits, activity or metrics of GPUs"
        )
    in_steps = sum(run.facts.events for run in (*shares.runs, *metrics.runs, *coarse.runs))
    return Overview(
        runs=runs,
        types=frozenset(int(number) for run in runs for number in run.facts.handles),
        facts=OverviewFacts(
            state_rows=coarse.rows,
            state_step_ns=coarse.step,
            counter_rows=shares.rows,
            counter_step_ns=shares.step,
            metric_rows=metrics.rows,
            metric_step_ns=metrics.step,
            shortest_wait_ns=shortest,
            step_rows=step_rows,
            rows_with_steps=rows_with_steps,
        ),
        written={derived.STEPS: steps.written, derived.WAITS: long_waits.written, NAME: in_steps},
        reasons={
            derived.STEPS: reasons_of_loss.STEP_TOO_MANY,
            derived.WAITS: reasons_of_loss.name_no_long_wait(shortest) if shortest else reasons_of_loss.NO_WAIT,
            **dict.fromkeys(
                (source_names.DEVICE_ACTIVITY, derived.GPUS, source_names.GPU_METRICS), reasons_of_loss.IN_STEPS
            ),
        },
    )


def _make_long_waits(job: Job, waits: Waits, late: LateReasons, sizes: LineSizes, budget: int) -> tuple[Result, int]:
    """Store the longest waits of kernels and calls that take at most `budget` bytes.

    Return their account and the length (ns) below which waits are dropped, 0 if no wait is dropped.
    """
    shown = derived.select_shown(job, waits, Result())
    waiting = shown[waits.has_parts[shown] & (waits.until[shown] > waits.begin[shown])]
    length = waits.until[waiting] - waits.begin[waiting]
    task = len(str(len(job.whole.model.tasks)))
    most = budget // (sizes.count_event(1, task, 1) + sizes.count_event(1, 1, 1))
    shortest = int(np.partition(length, -most - 1)[-most - 1]) + 1 if length.size > most else 0
    result = Result(records=derived.make_waiting(job, waits, late, waiting[length >= shortest], Labels()))
    store_derived(JoinResult(accounts={derived.WAITS: result}), job)
    return result, shortest


def _choose_steps(job: Job, sizes: LineSizes, budget: int) -> tuple[Result, int, int]:
    """Return the steps of all rows, or of as many first rows as fit into `budget` bytes.

    Return their account, the number of rows whose steps are kept, and the number of all rows with steps.
    """
    lines = np.zeros(job.tree.model.row_count, np.int64)
    for run in list_runs(job, derived.STEPS):
        lines += np.bincount(load_records(run, job.store).place, minlength=lines.size)
    with_steps = np.flatnonzero(lines)
    fits = np.cumsum(lines[with_steps]) * sizes.count_event(_STEP_DIGITS) <= budget
    kept = with_steps[fits]
    result = next((part.accounts[derived.STEPS] for part in job.joined if derived.STEPS in part.accounts), Result())
    if job.steps is not None and kept.size < with_steps.size:
        # Made again, because windows may cut a step into pieces that no longer show their step.
        steps = {
            kind: StateIntervals(*(column[np.isin(intervals.place, kept)] for column in intervals))
            for kind, intervals in derived.list_steps(job, job.steps).items()
        }
        result = derived.store_steps(job, steps)
    return result, kept.size, with_steps.size
