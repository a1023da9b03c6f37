"""Measures the time of GPUs that numbers cover: by activity, in gaps, and why they were idle.

The launch of the operation at the end of a gap divides the gap. If several operations start at once, the one that was
launched first counts. Until its launch call returned, the host kept the GPU waiting: this part is attributed to the
thread of that call, each piece of it to the innermost NVTX push/pop range (or else the main thread's range) and the
outermost call (of CUDA, MPI or the OS runtime) that the thread was in, and to what it did all this for: whether it
loaded kernels in the gap, or else whether the operation is a copy from or to host memory. After that, the operation was
queued: the host did not keep the GPU waiting. `queued.py` names what the operation waited for, if the reports show it.

The pieces of a gap follow each other without a break, so any part of a gap has its causes to the ns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus import activity as gpu_activity
from nsys2prv_ng.analysis.gpus.queued import Waiting, list_ended, name_waits
from nsys2prv_ng.analysis.gpus.readbacks import load_readbacks, name_keys
from nsys2prv_ng.analysis.gpus.samples import NO_SAMPLES, Samples, count_samples, find_samples
from nsys2prv_ng.analysis.host_activity import CUDA_CALL, MPI_CALL, load_calls, load_thread_ranges, map_main_threads
from nsys2prv_ng.arrays.groups import Table, drop_columns, make_objects, sum_table, take_rows
from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import IntArray, pick
from nsys2prv_ng.intervals.states import FlatStates
from nsys2prv_ng.intervals.step_functions import NOTHING, cut_to_windows, find_latest, make_row_steps, split_at_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.reading.opened_events import ABSENT, Names, OpenedEvents, load_opened_events, load_source_records
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.runs import Run
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.text.calls import LOADS


class GpuTime(NamedTuple):
    """Time of a GPU by activity, its gaps, and their causes as `sum_causes` returns them; None if none is known.

    `longest_at`: start of the longest gap (ns, on the common clock). `sampled`: as `count_samples` returns it;
    `readbacks`: as `sum_readbacks` does.
    """

    activity: gpu_activity.Activity = gpu_activity.NO_ACTIVITY
    gaps: int = 0
    longest_ns: int = 0
    longest_at: int | None = None
    causes: Table | None = None
    sampled: Table | None = None
    readbacks: Table | None = None


def measure_gpu_times(job: Job, devices: gpu_activity.Devices) -> dict[int, GpuTime]:
    """Return the time of each GPU with any activity, by row. Each worker has the records of one group of GPUs."""

    def measure(run: Run) -> dict[int, GpuTime]:
        gaps = gpu_activity.load_gaps(job, run)
        if job.scope.measured:
            gaps = gaps.take(np.unique(cut_to_windows(gaps.begin, gaps.end, job.scope.measured)[0]))
        return sum_gpu_times(job, run, gaps, split_gaps(job, devices, devices.find_reports(gaps.row), gaps))

    times: dict[int, GpuTime] = {}
    for found in job.engine.sum_up(measure, gpu_activity.list_activity_runs(job)):
        times |= found
    return times


def sum_gpu_times(job: Job, run: Run, gaps: gpu_activity.Gaps, pieces: IdlePieces) -> dict[int, GpuTime]:
    """Return the time of the GPUs of a run from `list_activity_runs`, by row.

    `gaps`: of these GPUs, with all that have a part in the time that numbers cover; `pieces`: of these gaps.
    """
    tables = {"sampled": count_samples(job, gaps.row, pieces.samples, pieces.names)}
    if knows_causes(job):
        tables |= {"causes": sum_causes(job, gaps, pieces), "readbacks": sum_readbacks(job, gaps, pieces)}
    shown = gaps.cut(job.scope.measured)
    return {
        row: _make_time(activity, shown.take(np.flatnonzero(shown.row == row)), tables, row)
        for row, activity in gpu_activity.measure_activity(job, run).items()
    }


def _make_time(
    activity: gpu_activity.Activity, gaps: gpu_activity.Gaps, tables: Mapping[str, Table], row: int
) -> GpuTime:
    own = {name: take_rows(drop_columns(table, "row"), table["row"] == row) for name, table in tables.items()}
    time = GpuTime(activity, causes=own.get("causes"), sampled=own["sampled"], readbacks=own.get("readbacks"))
    if not gaps.row.size:
        return time
    length = gaps.end - gaps.begin
    longest = int(np.argmax(length))
    return time._replace(gaps=int(length.size), longest_ns=int(length[longest]), longest_at=int(gaps.begin[longest]))


# ---- causes of idleness ----------------------------------------------------------------------------------------------


CAUSES = HOST, QUEUED, GRAPH, UNKNOWN, CUT = "host", "queued", "graph", "unknown", "cut"
"""Causes: the thread that launches next; the operation is queued; between nodes of a CUDA graph; no launch was
recorded; the gap continues after the selected time. An operation launched before the selected time counts as queued."""

FROM_PAGEABLE, FROM_PINNED = "copy from pageable memory", "copy from pinned memory"
TO_PAGEABLE, TO_PINNED = "copy to pageable memory", "copy to pinned memory"
LOADED = "loaded kernels"
NEXT = ("", FROM_PAGEABLE, FROM_PINNED, TO_PAGEABLE, TO_PINNED, LOADED)
"""What a host did that launched late: a main thread launched a copy between host and GPU, or any thread loaded kernels,
whatever it launched then; "" for other operations and causes. (Threads of libraries copy on behalf of others.)"""

KEYS = ["row", "cause", "range", "call", "next"]


class IdlePieces(NamedTuple):
    """n pieces of the gaps of GPUs, in no order: index of the gap, begin and end (ns), cause, range, call and next.

    `cause` and `next` are indices into CAUSES and NEXT. `range` and `call` are indices into `names`; NOTHING without
    one. For HOST, they are what the thread was in; for QUEUED and GRAPH, `call` is what the operation waited for.
    `readback`: index into `readbacks` (readbacks.py) of what the thread waited for when the gap began; NOTHING without
    it, and in MPI.
    """

    gap: IntArray
    begin: IntArray
    end: IntArray
    cause: IntArray
    range: IntArray
    call: IntArray
    next: IntArray
    readback: IntArray
    names: list[str]
    samples: Samples
    readbacks: list[tuple[str, ...]]


_Columns = tuple[IntArray, ...]
"""Columns of IdlePieces."""


def sum_causes(job: Job, gaps: gpu_activity.Gaps, pieces: IdlePieces) -> Table:
    """Sum up time `ns` and number of `gaps` by `row` of the GPU, `cause`, `range`, `call` and `next` ("": none).

    Only the time that numbers cover counts. A gap of several pieces counts in each of their rows.
    """
    pieces = _cut_pieces(job, pieces)
    columns = {"row": gaps.row[pieces.gap], **{key: getattr(pieces, key) for key in KEYS[1:]}}
    in_gap = sum_table({**columns, "gap": pieces.gap, "ns": pieces.end - pieces.begin}, [*KEYS, "gap"])
    sums = sum_table({**drop_columns(in_gap, "gap"), "gaps": np.ones_like(in_gap["gap"])}, KEYS)
    names = [*pieces.names, ""]
    for column, texts in (("cause", CAUSES), ("range", names), ("call", names), ("next", NEXT)):
        sums[column] = make_objects(texts[i] for i in sums[column].tolist())
    return sums


def sum_readbacks(job: Job, gaps: gpu_activity.Gaps, pieces: IdlePieces) -> Table:
    """Sum up idle time `idle_ns` after read-backs by `row` of the GPU and by what they are (`readbacks.KEYS`).

    Only the time that numbers cover counts.
    """
    pieces = _cut_pieces(job, pieces)
    after = np.flatnonzero(pieces.readback >= 0)
    columns = {"row": gaps.row[pieces.gap[after]], "key": pieces.readback[after]}
    return name_keys(
        sum_table({**columns, "idle_ns": (pieces.end - pieces.begin)[after]}, ["row", "key"]), pieces.readbacks
    )


def _cut_pieces(job: Job, pieces: IdlePieces) -> IdlePieces:
    """Return the parts of pieces in the time that numbers cover."""
    if not job.scope.measured:
        return pieces
    index, _, begin, end = cut_to_windows(pieces.begin, pieces.end, job.scope.measured)
    kept = {name: getattr(pieces, name)[index] for name in ("gap", *KEYS[1:], "readback")}
    return pieces._replace(begin=begin, end=end, **kept)


def knows_causes(job: Job) -> bool:
    """Return whether the sources that every cause depends on were read."""
    return all(source in job.reports[0].results for source in (source_names.LAUNCH_LINES, source_names.CUDA_API))


def split_gaps(job: Job, devices: gpu_activity.Devices, group: Sequence[int], gaps: gpu_activity.Gaps) -> IdlePieces:
    """Split the gaps of GPUs by their causes. `group`: the indices of all reports of the GPUs."""
    names = Names()
    samples = [NO_SAMPLES]
    readbacks: list[tuple[str, ...]] = []
    if knows_causes(job):
        parts = list(_list_parts(job, devices, group, gaps, names, samples, readbacks))
    else:
        parts = [_keep_whole(gaps, np.arange(gaps.row.size), UNKNOWN)]
    columns = {
        key: np.concatenate(each) for key, each in zip(IdlePieces._fields, zip(*parts, strict=True), strict=False)
    }
    sampled = Samples(*(np.concatenate(column) for column in zip(*samples, strict=True)))
    return IdlePieces(**columns, names=names.texts, samples=sampled, readbacks=readbacks)


def _list_parts(
    job: Job,
    devices: gpu_activity.Devices,
    group: Sequence[int],
    gaps: gpu_activity.Gaps,
    names: Names,
    samples: list[Samples],
    readbacks: list[tuple[str, ...]],
) -> Iterator[_Columns]:
    """Yield the pieces of gaps by their causes, each gap once. Add the samples of threads, and keys of read-backs."""
    left = np.arange(gaps.row.size)
    if job.scope.windows:
        is_cut = np.isin(gaps.end, [high for _, high in job.scope.windows])
        yield _keep_whole(gaps, left[is_cut], CUT)
        left = left[~is_cut]
    begins = np.array([low for low, _ in job.scope.windows], np.int64)
    ended = list_ended(job, devices, group, gaps)
    for index in group:
        report = job.reports[index]
        calls = load_opened_events(report, source_names.CUDA_API, job.store)
        launches = find_launches(report, calls, devices.rows_of_reports[index], gaps.take(left), begins, job.store)
        gap = left[launches.gap]
        begin, end = gaps.begin[gap], gaps.end[gap]
        returned = np.clip(launches.returned, begin, end)
        late, queued = np.flatnonzero(returned > begin), np.flatnonzero(returned < end)
        followed = find_next(report, calls, launches, begin, returned, end, job.store)
        waits = load_readbacks(report, calls, job.store)
        readback = waits.find(launches.thread, begin, launches.sent)
        readback += np.where(readback >= 0, len(readbacks), 0)
        readbacks += waits.keys
        columns = (gap, begin, returned, launches.thread, followed, readback)
        host = Host(report, calls, *(column[late] for column in columns))
        yield from _split_by_host(host, names, job.store)
        samples += find_samples(host.report, host.gap, host.begin, host.end, host.thread, names, job.store)
        waiting = Waiting(gap[queued], returned[queued], end[queued], launches.place[queued])
        yield _make_columns(name_waits(job, index, waiting, ended, names), QUEUED)
        left = np.setdiff1d(left, gap)
    for index in group:
        gap, place = _find_graph_nodes(job.reports[index], devices.rows_of_reports[index], gaps.take(left), job.store)
        gap = left[gap]
        waiting = Waiting(gap, gaps.begin[gap], gaps.end[gap], place)
        yield _make_columns(name_waits(job, index, waiting, ended, names), GRAPH)
        left = np.setdiff1d(left, gap)
    yield _keep_whole(gaps, left, UNKNOWN)


def _keep_whole(gaps: gpu_activity.Gaps, which: IntArray, cause: str) -> _Columns:
    """Return each of the gaps `which` as one piece."""
    nothing = np.full(which.size, NOTHING, np.int64)
    return _make_columns(FlatStates(which, gaps.begin[which], gaps.end[which], nothing), cause)


def _make_columns(pieces: FlatStates, cause: str) -> _Columns:
    """Return pieces (row: index of the gap, state: number of the call) without a range."""
    gap, begin, end, call = pieces
    nothing = np.full(gap.size, NOTHING)
    zeros = np.zeros(gap.size, np.int64)
    return gap, begin, end, np.full(gap.size, CAUSES.index(cause)), nothing, call, zeros, nothing


class Host(NamedTuple):
    """The host in n parts of gaps: its report and CUDA calls; index of the gap, begin, end (ns), thread (place), next
    (index into NEXT), and what the thread had waited for (`readback`, as in IdlePieces)."""

    report: ReportRecords
    calls: OpenedEvents
    gap: IntArray
    begin: IntArray
    end: IntArray
    thread: IntArray
    next: IntArray
    readback: IntArray


def _split_by_host(host: Host, names: Names, store: Store) -> Iterator[_Columns]:
    """Yield the pieces of the parts of each thread, split by the ranges and the calls that it was in."""
    threads = np.unique(host.thread)
    ranges = load_thread_ranges(host.report, threads, store)
    calls = load_calls(host.report, host.calls, threads, store)
    for thread in threads.tolist():
        part = np.flatnonzero(host.thread == thread)
        by_range = split_at_steps(host.begin[part], host.end[part], ranges.steps[thread])
        pieces = split_at_steps(by_range.begin, by_range.end, make_row_steps(calls.flat, thread))
        of_part, in_range = (column[pieces.interval] for column in (part[by_range.interval], by_range.value))
        readback = np.where(pick(calls.kind, pieces.value, CUDA_CALL) == MPI_CALL, NOTHING, host.readback[of_part])
        in_range, in_call = names.number(ranges.names, in_range), names.number(calls.names, pieces.value)
        cause = np.full(of_part.size, CAUSES.index(HOST))
        yield host.gap[of_part], pieces.begin, pieces.end, cause, in_range, in_call, host.next[of_part], readback


# ---- launches --------------------------------------------------------------------------------------------------------

_NO_CALL = np.iinfo(np.int64).max


class Launches(NamedTuple):
    """n launches of operations that ended gaps: gap (index), places of stream and thread, start and end of the call.

    Times are ns.
    """

    gap: IntArray
    place: IntArray
    thread: IntArray
    sent: IntArray
    returned: IntArray


def find_launches(
    report: ReportRecords,
    calls: OpenedEvents,
    gpu_of_place: IntArray,
    gaps: gpu_activity.Gaps,
    begins: IntArray,
    store: Store,
) -> Launches:
    """Find the first launch of what starts at the end of each gap, if the report contains the launch and its call.

    `begins`: the starts of windows. If a launch was before a window, its line starts with the window, but no call does.
    """
    lines = load_source_records(report, source_names.LAUNCH_LINES, store)
    words = lines.first[:-1]
    gpu, start = gpu_of_place[lines.handle[words]], lines.value[words + 1]
    gap = find_rows([gaps.row, gaps.end], [gpu, start])
    rows = np.flatnonzero(gap >= 0)
    rows = rows[np.lexsort((lines.place[rows], lines.time[rows]))]
    rows = rows[~mark_duplicates(gap[rows])]
    gap, place = gap[rows], lines.handle[words[rows]].astype(np.int64)
    thread, sent = lines.place[rows].astype(np.int64), lines.time[rows]
    longest_first = np.argsort(-calls.length, kind="stable")  # if calls start at once, take the outermost
    call = find_rows([calls.place[longest_first], calls.begin[longest_first]], [thread, sent])
    returned = np.where(np.isin(sent, begins), sent, pick(calls.end[longest_first], call, _NO_CALL))
    known = np.flatnonzero(returned != _NO_CALL)
    return Launches(gap[known], place[known], thread[known], sent[known], returned[known])


_COPIES = {(5, 1): FROM_PAGEABLE, (5, 2): FROM_PINNED, (4, 1): TO_PAGEABLE, (4, 2): TO_PINNED}
"""Copies by operation and by kind of memory on the host, as MEMORY_OPERATIONS and MEMORY_KINDS number them."""


def find_next(
    report: ReportRecords,
    calls: OpenedEvents,
    launches: Launches,
    begin: IntArray,
    returned: IntArray,
    end: IntArray,
    store: Store,
) -> IntArray:
    """Return what each of n hosts did until its launch call returned, as an index into NEXT.

    `begin`, `end`: of the gaps that the launches ended; `returned`: the end of the host's part (ns).
    """
    copies = load_opened_events(report, source_names.MEMORY_OPERATIONS, store)
    found = find_rows([copies.place, copies.begin], [launches.place, end])
    operation, source, destination = (
        pick(copies.get_values(each), found, 0)
        for each in (types.MEMORY_OPERATION, types.MEMORY_SOURCE_KIND, types.MEMORY_DESTINATION_KIND)
    )
    followed = np.zeros(end.size, np.int64)
    for (number, kind), name in _COPIES.items():
        memory = source if name in (FROM_PAGEABLE, FROM_PINNED) else destination
        followed[(operation == number) & (memory == kind)] = NEXT.index(name)
    followed[~np.isin(launches.thread, list(map_main_threads(report).values()))] = 0
    loading = [number for number, name in calls.get_names(types.CUDA_API).items() if LOADS.fullmatch(name)]
    loads = np.flatnonzero(np.isin(calls.get_values(types.CUDA_API), loading))
    latest = find_latest(calls.place[loads], calls.begin[loads], launches.thread, returned - 1)
    followed[pick(calls.end[loads], latest, NOTHING) > begin] = NEXT.index(LOADED)
    return followed


def _find_graph_nodes(
    report: ReportRecords, gpu_of_place: IntArray, gaps: gpu_activity.Gaps, store: Store
) -> tuple[IntArray, IntArray]:
    """Return (gaps that end with a graph node, places of the nodes). (The first node of a graph has a launch line.)"""
    parts = [(np.zeros(0, np.int64),) * 2]
    for source in (source_names.KERNELS, source_names.MEMORY_OPERATIONS):
        operations = load_opened_events(report, source, store)
        nodes = np.flatnonzero(operations.get_values(types.GRAPH_NODE_ID) != ABSENT)
        place = operations.place[nodes]
        gap = find_rows([gaps.row, gaps.end], [gpu_of_place[place], operations.begin[nodes]])
        parts.append((gap[gap >= 0], place[gap >= 0]))
    gap, place = (np.concatenate(column) for column in zip(*parts, strict=True))
    first = ~mark_duplicates(gap)
    return gap[first], place[first]
