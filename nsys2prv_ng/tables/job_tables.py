"""Declares the tables of what only all ranks together show: operations over ranks, waits, steps, gaps and the path.

What lies partly in a chosen time is whole in these tables, but for gaps and the critical path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.activity import list_activity_runs, load_gaps
from nsys2prv_ng.analysis.gpus.times import CAUSES, NEXT, split_gaps
from nsys2prv_ng.analysis.path.critical_path import find_critical_path, load_path_lanes
from nsys2prv_ng.analysis.waits import rules
from nsys2prv_ng.analysis.waits.clocks import mark_mpi, place_parts
from nsys2prv_ng.analysis.waits.late_reasons import find_reasons
from nsys2prv_ng.arrays.row_keys import find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick, put
from nsys2prv_ng.operations.parts import ANY_SIZE, COPIED, LOOSE
from nsys2prv_ng.paraver.event_types import LATE_REASONS, PATH_KINDS
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.mpi.mpi import COMMUNICATOR_NAMES
from nsys2prv_ng.sources.shared.reasons import COUNTERPART_MISSING, NOT_SELECTED, OUTSIDE_CHOSEN_TIME
from nsys2prv_ng.tables.columns import (
    BYTES,
    END,
    GPU,
    NO_ACCOUNT,
    NODE,
    NS,
    ON_STREAM,
    PROCESS,
    RANK,
    START,
    THREAD,
    Account,
    Column,
    Part,
    Table,
    Values,
    lack_below,
    make_names,
    make_partial,
)
from nsys2prv_ng.tables.context import JobTables
from nsys2prv_ng.tables.events import STEP_OF_TIME

_ON_ANY = (*ON_STREAM[:-2], THREAD, START, END, STEP_OF_TIME)
_LIBRARIES = ("NCCL", "MPI")


def _time(name: str, meaning: str, *, may_lack: bool = True) -> Column:
    return Column(name, meaning, NS, may_lack=may_lack)


def _name(name: str, meaning: str) -> Column:
    return Column(name, meaning, kind="name")


def _make_whole_table(
    name: str, meaning: str, columns: Sequence[Column], read: Callable[[JobTables], tuple[Part, Account] | None]
) -> Table:
    """Return a table that is read at once; None is read where there is nothing of the kind."""

    def read_piece(tables: JobTables, _: int) -> tuple[list[Part], Account]:
        found = read(tables)
        return ([], NO_ACCOUNT) if found is None else ([found[0]], found[1])

    return Table(name, meaning, tuple(columns), lambda _: (0,), read_piece, is_whole=True)


def _select(
    tables: JobTables, row: IntArray, begin: IntArray, end: IntArray, dropped: Mapping[str, BoolArray]
) -> tuple[IntArray, Account]:
    """Return what of n rows of the whole tree is shown, and the account; `dropped` marks what is not, by reason."""
    job, rest, counts = tables.job, np.ones(row.size, np.bool_), dict[str, int]()
    lows, highs = np.array(job.scope.shown, np.int64).T
    window = np.searchsorted(highs, begin, "right" if job.scope.windows else "left")
    outside = end < pick(lows, window, np.iinfo(np.int64).max)
    reasons = {**dropped, NOT_SELECTED: pick(job.new_row, row, -1) < 0, OUTSIDE_CHOSEN_TIME: outside}
    for reason, marks in reasons.items():
        if count := int((rest & marks).sum()):
            counts[reason] = count
        rest &= ~marks
    return np.flatnonzero(rest), Account(row.size, counts)


def _place(tables: JobTables, row: IntArray, begin: IntArray, end: IntArray, given: Mapping[str, Values]) -> Part:
    """Return a part by rows of the whole tree."""
    return Part(tables, pick(tables.job.new_row, row, -1), begin, end, given)


def _shift(tables: JobTables, time: IntArray) -> IntArray:
    """Return times (ns) from time 0 of the trace."""
    return time - tables.job.scope.origin


def _rank_of(tables: JobTables, row: IntArray) -> Values:
    """Return the rank of each row of the whole tree, whether it was chosen or not."""
    tree = tables.job.whole
    return lack_below(pick(tree.belongs_to, pick(tree.task_of_row, row, -1), -1))


# ---- operations over ranks -------------------------------------------------------------------------------------------


def _read_collectives(tables: JobTables) -> tuple[Part, Account]:
    job, waits = tables.job, tables.waits
    operations, table = job.operations, job.operations.table
    part = np.flatnonzero(~np.isin(table.kind, (LOOSE, COPIED)))
    number = put(np.repeat(np.arange(len(operations)), np.diff(operations.first)), operations.part, table.begin.size)
    place = place_parts(job, part)
    kept, account = _select(tables, place.row, place.begin, place.end, {COUNTERPART_MISSING: number[part] < 0})
    part, (row, begin, end) = part[kept], (column[kept] for column in place[:3])
    wait = find_rows([waits.row, waits.begin, waits.end], [row, begin, end])
    until = pick(waits.until, wait, 0)
    unknown = ~pick(waits.has_parts, wait, False)
    blamed = np.flatnonzero((waits.operation >= 0) & (waits.culprit >= 0))
    last = put(waits.culprit[blamed], waits.operation[blamed], len(operations))
    named = {each.id: each for joined in job.joined for each in joined.nccl_communicators}
    known = [named.get(name.removeprefix("nccl ")) for name in table.communicators]
    assigned = [joined.assigned.get(COMMUNICATOR_NAMES, {}) for joined in job.joined]
    of_mpi = {f"mpi {key}": value.label for values in assigned for key, value in values.items()}
    labels = [of_mpi.get(n, n) if k is None else k.label for n, k in zip(table.communicators, known, strict=True)]
    axes = ["" if each is None else each.axis for each in known]
    has_axis = np.array([bool(axis) for axis in axes], np.bool_)
    communicator = table.communicator[part].astype(np.int64)
    size = table.bytes[part]
    given = {
        "collective": Values(number[part]),
        "name": make_names(table.name[part], table.names),
        "class": make_names(mark_mpi(table, part).astype(np.int64), _LIBRARIES),
        "communicator": make_names(communicator, labels),
        "axis": make_names(np.where(pick(has_axis, communicator, False), communicator, -1), axes),
        "bytes": make_partial(size, (size == ANY_SIZE) | (size == NULL)),
        "transfer_start_ns": make_partial(_shift(tables, until), unknown),
        "wait_ns": make_partial(until - begin, unknown),
        "transfer_ns": make_partial(end - until, unknown),
        "last_rank": _rank_of(tables, last[number[part]]),
    }
    return _place(tables, row, begin, end, given), account


COLLECTIVES = _make_whole_table(
    "collectives",
    "The part of a rank in a collective of NCCL or MPI; start_ns is when it arrived: its kernel or call started",
    (
        *_ON_ANY,
        Column("collective", "Number of the collective: its parts on all ranks share it"),
        _name("name", "Operation"),
        _name("class", "NCCL or MPI"),
        _name("communicator", "Communicator; the stream if no call records it"),
        _name("axis", "What the communicator is for: data, sharded data, tensor, pipeline or expert parallelism"),
        Column("bytes", "Size, if it is the same on all ranks", BYTES, may_lack=True),
        _time("transfer_start_ns", "When its kernel or call stopped waiting and began to move data"),
        _time("wait_ns", "Time in which its kernel or call waited for other ranks"),
        _time("transfer_ns", "Time in which it moved data"),
        Column("last_rank", "The rank that arrived last, if that is certain", may_lack=True),
    ),
    _read_collectives,
)


def _read_messages(tables: JobTables) -> tuple[Part, Account]:
    job, parts, account = tables.job, [], NO_ACCOUNT
    for joined in job.joined:
        for source, pairs in joined.messages.items():
            end = np.where(pairs.receive_end == NULL, pairs.receive_arrived, pairs.receive_end)
            start = np.minimum(pairs.send_arrived, end)
            unselected = pick(job.new_row, pairs.receiver, -1) < 0
            kept, shown = _select(tables, pairs.sender, start, end, {NOT_SELECTED: unselected})
            lost = joined.accounts[f"{source}_messages"]
            dropped = {why: n for why, n in lost.dropped.items() if why not in (NOT_SELECTED, OUTSIDE_CHOSEN_TIME)}
            account = account.add(shown).add(Account(sum(dropped.values()), dropped))
            library = np.full(start.size, _LIBRARIES.index("MPI" if source == source_names.MPI else "NCCL"))
            columns = pairs.sender, start, end, pairs.receiver, pairs.receive_arrived, pairs.bytes, library
            parts.append([column[kept] for column in columns])
    nothing = [np.zeros(0, np.int64)] * 7
    row, start, end, receiver, posted, size, library = map(np.concatenate, zip(nothing, *parts, strict=True))
    given = {
        "class": make_names(library, _LIBRARIES),
        "peer": _rank_of(tables, receiver),
        "receive_start_ns": Values(_shift(tables, posted)),
        "bytes": make_partial(size, size == NULL),
    }
    return _place(tables, row, start, end, given), account


MESSAGES = _make_whole_table(
    "messages",
    "A message between two ranks, on the row that sends it: from when the send was posted until it was received",
    (
        *_ON_ANY,
        _name("class", "NCCL or MPI"),
        Column("peer", "Rank that receives it", may_lack=True),
        Column("receive_start_ns", "When the receive was posted", NS),
        Column("bytes", "Size", BYTES, may_lack=True),
    ),
    _read_messages,
)

_VERDICTS = {rules.SPLIT: "split", **{verdict: str(reason) for verdict, reason in rules.REASONS.items()}}


def _read_waits(tables: JobTables) -> tuple[Part, Account]:
    job, every = tables.job, tables.waits
    late = find_reasons(job, every)
    kept, account = _select(tables, every.row, every.begin, every.end, {})
    waits, instance = every.take(kept), late.instance[kept]
    unknown = ~waits.has_parts
    blames = (waits.culprit >= 0) & (waits.until > waits.begin)
    instance = np.where(blames, instance, -1)
    reasons = sorted(LATE_REASONS)
    reason = pick(np.searchsorted(reasons, late.reason), instance, -1)
    given = {
        "class": make_names(waits.is_mpi.astype(np.int64), _LIBRARIES),
        "collective": lack_below(waits.operation),
        "verdict": make_names(waits.verdict, [_VERDICTS[n] for n in range(len(_VERDICTS))]),
        "wait_ns": make_partial(waits.wait, unknown),
        "transfer_ns": make_partial(waits.end - waits.until, unknown),
        "last_rank": _rank_of(tables, np.where(blames, waits.culprit, -1)),
        "late_ns": make_partial(waits.margin, ~blames),
        "late_reason": make_names(reason, [LATE_REASONS[n] for n in reasons]),
        **{
            f"late_{key}": make_names(pick(getattr(late, key), instance, -1), late.names)
            for key in ("range", "call", "operation")
        },
    }
    return _place(tables, waits.row, waits.begin, waits.end, given), account


WAITS = _make_whole_table(
    "waits",
    "A kernel or call that carries out operations over ranks, and whether it waited in them",
    (
        *_ON_ANY,
        _name("class", "NCCL or MPI"),
        Column("collective", "Number of the collective that decided", may_lack=True),
        _name(
            "verdict", "split, or why it is not known how long it waited; a wait within the clock error counts as none"
        ),
        _time("wait_ns", "Time in which it waited for other ranks"),
        _time("transfer_ns", "Time in which it moved data"),
        Column("last_rank", "The rank that it waited for", may_lack=True),
        _time("late_ns", "How much later that rank started than the last of the others"),
        _name("late_reason", "Why that rank was late"),
        _name("late_range", "NVTX range in which that rank was then"),
        _name("late_call", "Call in which that rank was then"),
        _name("late_operation", "Operation on the GPU that delayed that rank"),
    ),
    _read_waits,
)

# ---- steps -----------------------------------------------------------------------------------------------------------


def _read_steps(tables: JobTables) -> tuple[Part, Account] | None:
    steps = tables.job.steps
    if steps is None:
        return None
    middle = (steps.begin + steps.end) // 2  # the ends of chosen steps lie in those beside them
    kept, account = _select(tables, steps.row, middle, middle, {})
    step = steps.step[kept]
    names = [name or steps.name or steps.delimiter for name in steps.kinds]
    given = {
        "step": Values(steps.number[step]),
        "name": make_names(steps.kind[step], names),
        "is_warmup": Values(step < steps.warmup),
        "host_start_ns": Values(_shift(tables, steps.host_begin[kept])),
        "host_end_ns": Values(_shift(tables, steps.host_end[kept])),
    }
    return _place(tables, steps.row[kept], steps.begin[kept], steps.end[kept], given), account


STEPS = _make_whole_table(
    "steps",
    "A step of the program on a rank, until its GPU operations end",
    (
        *(RANK, NODE, PROCESS, THREAD, START, END),
        Column("step", "Number of the step of the program"),
        _name("name", "Kind of the step, or what marks steps"),
        Column("is_warmup", "Whether the step is warm-up", kind="flag"),
        Column("host_start_ns", "Start of the range on the host that marks it", NS),
        Column("host_end_ns", "End of this range", NS),
    ),
    _read_steps,
)

# ---- gaps of GPUs ----------------------------------------------------------------------------------------------------


def _read_gaps(tables: JobTables, index: int) -> tuple[list[Part], Account]:
    job = tables.job
    run = list_activity_runs(job)[index]
    gaps = load_gaps(job, run)
    pieces = split_gaps(job, tables.devices, tables.devices.find_reports(gaps.row), gaps)
    given = {
        "gap_start_ns": Values(_shift(tables, gaps.begin[pieces.gap])),
        "gap_end_ns": Values(_shift(tables, gaps.end[pieces.gap])),
        "cause": make_names(pieces.cause, CAUSES),
        "range": make_names(pieces.range, pieces.names),
        "call": make_names(pieces.call, pieces.names),
        "next": make_names(np.where(pieces.next > 0, pieces.next, -1), NEXT),
    }
    rows = gaps.row[pieces.gap]
    return [Part(tables, rows, pieces.begin, pieces.end, given)], Account(gaps.row.size, {}, rows.size - gaps.row.size)


GAPS = Table(
    "gaps",
    "A piece of an idle gap of a GPU, with one cause: the pieces of a gap follow each other without a break",
    (
        *(RANK, NODE, GPU, START, END, STEP_OF_TIME),
        Column("gap_start_ns", "Start of the whole gap", NS),
        Column("gap_end_ns", "End of the whole gap, when the next operation starts", NS),
        _name(
            "cause",
            "host: the thread that launches next was busy; queued: the next operation was launched, but waited; graph:"
            " between nodes of a CUDA graph; cut: at the limit of the chosen time; unknown: no launch is recorded",
        ),
        _name("range", "Innermost NVTX range of that thread, or of the main thread"),
        _name("call", "Outermost call of that thread; what a queued operation waited for"),
        _name("next", "What the thread did all this for: it loaded kernels, or launched a copy from or to the host"),
    ),
    lambda tables: range(len(list_activity_runs(tables.job))),
    _read_gaps,
)

# ---- the critical path -----------------------------------------------------------------------------------------------


def _read_path(tables: JobTables) -> tuple[Part, Account] | None:
    job = tables.job
    path = find_critical_path(job, load_path_lanes(job, tables.waits)) if job.finds_waits else None
    if path is None:
        return None
    kinds = sorted(PATH_KINDS)
    given = {
        "class": make_names(np.searchsorted(kinds, path.kind), [PATH_KINDS[kind] for kind in kinds]),
        "name": make_names(path.name, path.names),
        "range": make_names(path.range, path.ranges),
    }
    return _place(tables, path.row, path.begin, path.end, given), Account(path.begin.size, {})


CRITICAL_PATH = _make_whole_table(
    "critical_path",
    "A segment of the critical path over all ranks; without a chosen time, of that of the steps after the warm-up",
    (
        *_ON_ANY,
        _name("class", "Kind of segment"),
        _name("name", "Operation or call"),
        _name("range", "Innermost NVTX range of the thread, or of the thread that launched the operation"),
    ),
    _read_path,
)
