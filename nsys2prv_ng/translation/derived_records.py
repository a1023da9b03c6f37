"""Makes the records that are derived from all ranks: the critical path, the steps of the program, waits, read-backs.

The path has its kind on the row where it runs, and a line where it changes rows. Steps of the job are on main threads
and GPUs, those of each host on its main thread. `summary` measures each step in the same windows, so Paraver's
histograms by step show the same numbers. Without GPU operations, a step is the range of each task, on its main thread
and on the GPUs of which the task has other records. Waits are parts of kernels and calls, with the rank waited for and
why, lines, and GPU activity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import Gaps, list_activity_runs, list_devices, load_gaps
from nsys2prv_ng.analysis.gpus.readbacks import KEYS, Readbacks, load_readbacks
from nsys2prv_ng.analysis.gpus.times import find_launches, knows_causes
from nsys2prv_ng.analysis.gpus.waiting import sweep_gpu_waits
from nsys2prv_ng.analysis.path.critical_path import CriticalPath
from nsys2prv_ng.analysis.waits.late_reasons import LateReasons
from nsys2prv_ng.analysis.waits.rules import REASONS
from nsys2prv_ng.analysis.waits.waits import Waits
from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.intervals.states import FlatStates, flatten
from nsys2prv_ng.job.open_job import Job, store_derived, store_joined
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import MAX_TYPE, Labels
from nsys2prv_ng.reading.opened_events import load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords, spill_records
from nsys2prv_ng.records.columns import Pair, Records, make_communications, make_events, make_intervals
from nsys2prv_ng.sources.shared.reasons import NO_LINE, NOT_SELECTED, OTHER_OPERATION, OUTSIDE_CHOSEN_TIME
from nsys2prv_ng.sources.shared.source import JoinResult, Result, StateIntervals
from nsys2prv_ng.steps.numbered_names import number_step
from nsys2prv_ng.steps.steps import Steps

PATH, PATH_LINES = "critical_path", "path_lines"
"""Account names of the records that are derived from the critical path."""


def derive_path(job: Job, path: CriticalPath | None, labels: Labels) -> JoinResult:
    """Make and store the records of the critical path, if there is one, and declare their type in `labels`.

    An interval covers consecutive segments of the path on one row and of one kind, even if their operations or
    ranges differ.
    """
    joined = JoinResult()
    if path is None or not path.row.size:
        return joined
    follows = path.begin[1:] == path.end[:-1]  # otherwise another window starts
    same_row = path.row[1:] == path.row[:-1]
    first = np.append(0, 1 + np.flatnonzero(~(follows & same_row & (path.kind[1:] == path.kind[:-1]))))
    last = np.append(first[1:], path.row.size) - 1
    joined.accounts[PATH] = Result(read=first.size)
    number = types.CRITICAL_PATH.number
    pair = Pair(number, path.kind[first])
    joined.accounts[PATH].records = [
        make_intervals(path.row[first], path.begin[first], path.end[last], [pair], [number])
    ]
    after = 1 + np.flatnonzero(follows & ~same_row)
    if after.size:
        time = path.begin[after]
        lines = make_communications(path.row[after - 1], time, path.row[after], time, 0, types.TAG_PATH)
        joined.accounts[PATH_LINES] = Result(read=after.size, records=[lines])
    # The path ends with its window, which may end after the trace. A thread without events has row -1.
    store_joined(joined, np.append(job.new_row, -1), [(job.scope.first, job.scope.last)], job.store, job.engine)
    if joined.accounts[PATH].written:
        labels.declare(types.CRITICAL_PATH)
    return joined


# ---- steps -----------------------------------------------------------------------------------------------------------


STEPS = "steps"
"""Account name of the records that are derived from steps."""


def derive_steps(job: Job, labels: Labels) -> JoinResult:
    """Make and store the records of the steps of a job, if there are any, and declare their types in `labels`."""
    steps = job.steps
    if steps is None or not job.finds_waits:
        return JoinResult()
    listed = list_steps(job, steps)
    result = store_steps(job, listed)
    if result.written:
        # Where ranges tell the kinds apart, a step is called by its own: `eval 6` among those of `train`.
        names = steps.kinds if steps.name in steps.kinds else (steps.name,) * len(steps.kinds)
        texts = zip(_number_values(steps).tolist(), steps.number.tolist(), steps.kind.tolist(), strict=True)
        values = {value: number_step(names[kind], str(number)) for value, number, kind in texts}
        kinds = dict(enumerate(steps.kinds, 1))
        for event_type in listed:
            labels.declare(replace(event_type, values=kinds if event_type == types.STEP_KIND else values))
    return JoinResult(accounts={STEPS: result})


def list_steps(job: Job, steps: Steps) -> dict[EventType, StateIntervals]:
    """Return the steps of a job by their type, and their kinds: on rows of the trace, not cut to the chosen time.

    The state of an interval is the value of its step, or of its kind.
    """
    listed = _place_steps(job, steps, _number_values(steps))
    if len(steps.kinds) > 1:
        listed[types.STEP_KIND] = _place_steps(job, steps, steps.kind + 1)[types.STEP]
    return listed


def _place_steps(job: Job, steps: Steps, values: IntArray) -> dict[EventType, StateIntervals]:
    """Return the steps of a job by their type, with the value of each step (m)."""
    rows = pick(job.new_row, steps.row, -1)
    span = np.flatnonzero(rows >= 0)
    hosts = StateIntervals(rows[span], steps.host_begin[span], steps.host_end[span], values[steps.step[span]])
    if not steps.on_gpu:
        return {types.STEP: _join([hosts, *_list_on_gpus(job, steps, values)])}
    on_rows = np.unique(np.concatenate([hosts.place, np.array(list(list_devices(job).rows), np.int64)]))
    columns = (np.tile(column, on_rows.size) for column in (steps.start, steps.stop, values))
    return {types.STEP: StateIntervals(np.repeat(on_rows, values.size), *columns), types.HOST_STEP: hosts}


def _join(parts: Sequence[StateIntervals | FlatStates]) -> StateIntervals:
    return StateIntervals(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def store_steps(job: Job, steps: Mapping[EventType, StateIntervals]) -> Result:
    """Store the records of steps, cut to the chosen time."""
    result = Result()
    for kind, (place, begin, end, value) in steps.items():
        result.read += place.size
        result.records.append(make_intervals(place, begin, end, [Pair(kind.number, value)], [kind.number]))
    store_derived(JoinResult(accounts={STEPS: result}), job)
    return result


def _number_values(steps: Steps) -> IntArray:
    """Return the value of each step: its number plus 1; its position, counted from 1, if a number cannot be a value."""
    if steps.number[0] >= 0 and steps.number[-1] < MAX_TYPE:
        return steps.number + 1
    return np.arange(1, steps.number.size + 1)


def _list_on_gpus(job: Job, steps: Steps, values: IntArray) -> list[FlatStates]:
    """Return the steps of hosts on each GPU.

    If tasks share a GPU, the earlier of two overlapping steps is shown until it ends.
    """
    task = job.new_task[steps.task]
    parts = []
    for row, device in list_devices(job).rows.items():
        spans = np.flatnonzero(np.isin(task, list(device.tasks)))
        parts.append(flatten(np.full(spans.size, row), steps.begin[spans], steps.end[spans], values[steps.step[spans]]))
    return parts


# ---- waits -----------------------------------------------------------------------------------------------------------


WAITS, WAIT_LINES, GPUS = "waits", "wait_lines", "gpu_waits"
"""Account names of the records that are derived from waits."""
_SHOWN_BY = {False: source_names.KERNELS, True: source_names.MPI}
"""The source of the kernels or calls in which ranks wait, by whether they are MPI's."""


def derive_waits(
    job: Job, waits: Waits, late: LateReasons, shortest_line: int, labels: Labels
) -> tuple[JoinResult, StateIntervals]:
    """Make and store the records of waits, and declare their types in `labels`.

    Waits of `shortest_line` (ns) or more get a line. Each kernel or call counts as read once; it counts as written if
    it was split. Also return the states of waiting streams, on rows of the trace and on the common clock.
    """
    joined = JoinResult()
    shown = select_shown(job, waits, joined.accounts.setdefault(WAITS, Result(read=waits.row.size)))
    split = shown[waits.is_split[shown]]
    account = joined.accounts[WAITS]
    account.records = _make_parts(job, waits, late, shown[waits.has_parts[shown]], labels)
    dropped = dict(account.dropped)
    joined.accounts[WAIT_LINES] = _make_lines(job, waits, split, shortest_line)
    store_derived(joined, job)
    # Windows drop parts of kernels and calls, and lateness on others, but each kernel or call counts once.
    account.dropped, account.pieces = dropped, account.written + account.pieces - split.size
    if (~waits.is_mpi[shown]).any():
        joined.accounts[GPUS] = _store_gpu_waits(job, waits, labels)
    joined.accounts = {name: result for name, result in joined.accounts.items() if result.read}
    waiting = split[~waits.is_mpi[split] & (waits.wait[split] > 0)]
    state = np.full(waiting.size, types.SYNCHRONIZATION, np.int64)
    rows = job.new_row[waits.row[waiting]]
    return joined, StateIntervals(rows, waits.begin[waiting], waits.until[waiting], state)


def select_shown(job: Job, waits: Waits, account: Result) -> IntArray:
    """Return the kernels and calls that the trace shows, and count why others are not split or not shown."""
    is_shown = np.zeros(waits.row.size, np.bool_)
    for is_mpi, source in _SHOWN_BY.items():
        if source in job.reports[0].results:
            shortest = job.scope.selection.shortest.get(source, 0)
            is_shown |= (waits.is_mpi == is_mpi) & (waits.end - waits.begin >= shortest)
    reasons = {OTHER_OPERATION: ~is_shown, NOT_SELECTED: is_shown & (job.new_row[waits.row] < 0)}
    rest = is_shown & ~reasons[NOT_SELECTED]
    if job.scope.windows:
        lows, highs = np.array(job.scope.windows, np.int64).T
        window = np.searchsorted(highs, waits.begin, "right")
        inside = (window < lows.size) & (waits.end > pick(lows, window, np.iinfo(np.int64).max))
        reasons[OUTSIDE_CHOSEN_TIME] = rest & ~inside
        rest &= inside
    for reason, mask in reasons.items():
        account.drop(reason, int(mask.sum()))
    for verdict, reason in REASONS.items():
        account.drop(reason, int((rest & (waits.verdict == verdict)).sum()))
    return np.flatnonzero(rest)


def _make_parts(job: Job, waits: Waits, late: LateReasons, parted: IntArray, labels: Labels) -> list[Records]:
    """Return the intervals of waiting and moving on rows of kernels and calls, and of lateness on rows of culprits."""
    if not parted.size:
        return []
    records = make_waiting(job, waits, late, parted, labels)
    row, begin, until, end = (column[parted] for column in (waits.row, waits.begin, waits.until, waits.end))
    row, wait = job.new_row[row], until > begin
    blamed = wait & (waits.culprit[parted] >= 0)
    if blamed.any():
        records += _make_lateness(job, waits, parted[blamed], labels)
    moves = (end > until) | ~wait
    if moves.any():
        part = types.OPERATION_PART.number
        moving = [Pair(part, types.MOVING_PART)]
        records.append(make_intervals(row[moves], until[moves], end[moves], moving, [part]))
    return records


def make_waiting(job: Job, waits: Waits, late: LateReasons, parted: IntArray, labels: Labels) -> list[Records]:
    """Return the intervals of waiting on the rows of kernels and calls, with the rank waited for if it is known."""
    if not parted.size:
        return []
    labels.declare(types.OPERATION_PART)
    part, rank, reason = (t.number for t in (types.OPERATION_PART, types.WAITED_FOR, types.WAIT_REASON))
    waiting = Pair(part, types.WAITING_PART)
    is_blamed = waits.culprit[parted] >= 0
    waits_long = waits.until[parted] > waits.begin[parted]
    records = []
    for is_known in (False, True):
        chosen = parted[waits_long & (is_blamed == is_known)]
        if not chosen.size:
            continue
        pairs, types_closed = [waiting], [part]
        if is_known:
            tasks = {number: task.name for number, task in enumerate(job.whole.model.tasks, 1)}
            labels.declare(replace(types.WAITED_FOR, values=tasks))
            labels.declare(types.WAIT_REASON)
            task = job.whole.task_of_row[waits.culprit[chosen]] + 1
            pairs += [Pair(rank, task), Pair(reason, late.reason[late.instance[chosen]])]
            types_closed += [rank, reason]
        row = job.new_row[waits.row[chosen]]
        records.append(make_intervals(row, waits.begin[chosen], waits.until[chosen], pairs, types_closed))
    return records


def _make_lateness(job: Job, waits: Waits, which: IntArray, labels: Labels) -> list[Records]:
    """Return one interval for each kernel or call that others waited for; its value is the lateness (ns)."""
    row, begin, margin = waits.culprit[which], waits.culprit_begin[which], waits.margin[which]
    latest = np.lexsort((-margin, begin, row))
    first = latest[~mark_duplicates(row[latest], begin[latest])]
    first = first[job.new_row[row[first]] >= 0]
    if not first.size:
        return []
    labels.declare(types.LATENESS)
    row, begin, margin = row[first], begin[first], margin[first]
    found = find_rows([waits.row, waits.begin], [row, begin])
    end = np.where(found >= 0, waits.end[found], begin)
    number = types.LATENESS.number
    return [make_intervals(job.new_row[row], begin, end, [Pair(number, margin)], [number])]


def _make_lines(job: Job, waits: Waits, split: IntArray, shortest: int) -> Result:
    """Return one communication for each wait, from its culprit to the kernel or call that the culprit released."""
    blamed = split[(waits.culprit[split] >= 0) & (waits.wait[split] > 0)]
    result = Result(read=blamed.size)
    selected = job.new_row[waits.culprit[blamed]] >= 0
    long = waits.wait[blamed] >= shortest
    result.drop(NOT_SELECTED, int((~selected).sum()))
    result.drop(NO_LINE, int((selected & ~long).sum()))
    drawn = blamed[selected & long]
    sent = waits.culprit_begin[drawn]
    released = np.maximum(waits.until[drawn], sent)
    rows = job.new_row[waits.culprit[drawn]], job.new_row[waits.row[drawn]]
    if drawn.size:
        result.records = [make_communications(rows[0], sent, rows[1], released, 0, types.TAG_RELEASE)]
    return result


def _store_gpu_waits(job: Job, waits: Waits, labels: Labels) -> Result:
    """Store an event at each change of each GPU."""
    whole = Result()
    for changes in sweep_gpu_waits(job, waits):
        pair = Pair(types.GPU_ACTIVITY_WITH_WAITS.number, changes.value)
        result = Result(read=changes.row.size, records=[make_events(changes.row, changes.time, [pair])])
        spill_records(result, job.store, on_common_clock=True)
        whole.add(result)
    if whole.read:
        labels.declare(types.GPU_ACTIVITY_WITH_WAITS)
    return whole


# ---- read-backs ------------------------------------------------------------------------------------------------------


READBACKS = "readbacks"
"""Account name of the records that are derived from read-backs."""
_VALUES = {name: value for value, name in (types.READBACK.values or {}).items()}


def derive_readbacks(job: Job, labels: Labels) -> JoinResult:
    """Make and store where hosts wait for GPUs and how long these are idle then, and declare the types in `labels`."""
    joined = JoinResult()
    if not (job.finds_waits and knows_causes(job)):
        return joined
    waits = list(job.engine.map(lambda report: _load_readbacks(job, report), job.reports))
    values = [np.array([_VALUES.get(key[KEYS.index("operation")], 1) for key in part.keys], np.int64) for part in waits]
    hosts = [
        StateIntervals(rows[part.thread], part.begin, part.end, value[part.key])
        for part, value, rows in zip(waits, values, job.tree.rows, strict=True)
    ]
    devices, lows = list_devices(job), np.array([low for low, _ in job.scope.windows], np.int64)

    def find_idle(part: tuple[int, Gaps]) -> StateIntervals:
        index, gaps = part
        report = job.reports[index]
        calls = load_opened_events(report, source_names.CUDA_API, job.store)
        launches = find_launches(report, calls, devices.rows_of_reports[index], gaps, lows, job.store)
        begin, end = gaps.begin[launches.gap], gaps.end[launches.gap]
        key = waits[index].find(launches.thread, begin, launches.sent)
        late = np.flatnonzero((key >= 0) & (launches.returned > begin))
        until = np.minimum(launches.returned, end)[late]
        return StateIntervals(gaps.row[launches.gap[late]], begin[late], until, values[index][key[late]])

    parts_of_reports = [
        (index, gaps.take(np.flatnonzero(np.isin(gaps.row, devices.rows_of_reports[index]))))
        for gaps in (load_gaps(job, run) for run in list_activity_runs(job))
        for index in devices.find_reports(gaps.row)
    ]
    gpus = list(job.engine.map(find_idle, parts_of_reports))
    result = Result()
    for kind, parts in ((types.READBACK, hosts), (types.IDLE_AFTER_READBACK, gpus)):
        place, begin, end, value = _join(parts) if parts else (np.zeros(0, np.int64),) * 4
        kept = np.flatnonzero(place >= 0)
        if kept.size:
            labels.declare(kind)
            result.read += kept.size
            pair = Pair(kind.number, value[kept])
            result.records.append(make_intervals(place[kept], begin[kept], end[kept], [pair], [kind.number]))
    if result.read:
        joined.accounts[READBACKS] = result
        store_derived(joined, job)
    return joined


def _load_readbacks(job: Job, report: ReportRecords) -> Readbacks:
    return load_readbacks(report, load_opened_events(report, source_names.CUDA_API, job.store), job.store)
