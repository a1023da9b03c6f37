"""Reads calls on host threads, and the functions on the stack of a thread at a call or sample with a backtrace.

Each call is an interval on the row of its thread, nested as the calls were.

The rows of a chain of functions share an `id`; their `stackDepth` counts from 0, the innermost function. The chain of a
sample starts with the function that ran, the chain of a call with the function that was called. For functions in
stripped modules, nsys records addresses instead of names. Addresses differ between processes, so the module names these
functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.nesting import mark_crossing
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair, make_intervals
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, OVERLAPS_CALL, find_unsound_times, name_short_call
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair, make_partial_pair
from nsys2prv_ng.sources.shared.source import Result


class NumberedCalls(NamedTuple):
    """Calls with a separate event type, and a function that returns the fixed value of a name, or 0 for other calls."""

    event_type: EventType
    find_value: Callable[[str], int]


def read_calls(
    reader: ReportReader,
    tables: Mapping[str, EventType],
    *,
    find_rows: Callable[[Columns], IntArray] = lambda columns: np.arange(columns.rows),
    clean_name: Callable[[str], str] = str,
    numbered: NumberedCalls | None = None,
    system: bool = False,
    read_chains: Callable[[ReportReader, Iterable[str]], list[Frames]] | None = None,
    choose_state: Callable[[str], int] | None = None,
) -> Result:
    """Return an interval for each row of some tables, nested as the calls of the table were. `tables`: types by name.

    The tables have the columns start, end, globalTid and nameId, and callchainId if `read_chains` is given.
    `find_rows` returns the rows of a table that are calls. `clean_name` returns the label for the name of a call. Calls
    that are `numbered` have the type and values of it. Calls of the `system` do not make their process part of the
    application, and short calls are dropped (--osrt-min). `read_chains` returns the call chains, given the labels: each
    call shows its callers at its start. `choose_state` returns the state of the thread within a call, given its label,
    or -1 for none.
    """
    result = Result()
    for table, event_type in tables.items():
        columns = reader.columns(table)
        rows = find_rows(columns)
        result.read += rows.size
        begin, end, thread = (columns[name][rows] for name in ("start", "end", "globalTid"))
        sound = select_sound_calls(result, begin, end, thread)
        if system:
            shortest = reader.options.osrt_min
            is_short = end[sound] - begin[sound] < shortest
            sound = sound[result.drop_rows({name_short_call(shortest): is_short})]  # the rest of nested calls nests too
        rows, begin, end = rows[sound], begin[sound], end[sound]
        place = reader.places.threads(thread[sound], application=not system, system_calls=system)
        index, names = reader.names(columns["nameId"][rows])
        names = [clean_name(name) for name in names]
        opening = [_make_call_pair(reader.labels, event_type, numbered, index, names)]
        if read_chains is not None:
            chains = read_chains(reader, names)
            opening += find_functions(reader, chains, columns["callchainId"][rows], types.CALLERS)
        result.records.append(make_intervals(place, begin, end, opening, [opening[0].handle]))
        if choose_state is not None:
            state = np.array([choose_state(name) for name in names], np.int64)
            result.add_states(place, begin, end, state[index])
    return result


def _make_call_pair(
    labels: Labels, event_type: EventType, numbered: NumberedCalls | None, index: IntArray, names: list[str]
) -> Pair:
    """Make the pair of type and value that shows each call, given the index of each into the names."""
    if numbered is None:
        return make_name_pair(labels, event_type, index, names)
    values = np.array([numbered.find_value(name) for name in names], np.int64)
    is_named = values == 0
    values[is_named] = labels.name_ids(event_type.names, np.array(names, object)[is_named])
    handles = np.where(is_named, labels.handle(event_type), labels.handle(numbered.event_type))
    return Pair(handles[index], values[index])


def select_sound_calls(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Return the rows of calls that have a thread and sound times (ns) and nest on their thread; drop the others."""
    rows = select_sound_intervals(result, begin, end, global_tid)
    return rows[result.drop_rows({OVERLAPS_CALL: mark_crossing(global_tid[rows], begin[rows], end[rows])})]


def select_sound_intervals(result: Result, begin: IntArray, end: IntArray, global_tid: IntArray) -> IntArray:
    """Return the rows of intervals that have a thread and sound times (ns); drop the others."""
    return result.drop_rows({NO_THREAD: global_tid == NULL, **find_unsound_times(begin, end)})


# ---- call chains -----------------------------------------------------------------------------------------------------


SAMPLE_CHAINS, OS_CALL_CHAINS, CUDA_CALL_CHAINS, SYSTEM_CALL_CHAINS = (
    Table(f"{prefix}_CALLCHAINS", ("id", "symbol", "stackDepth"), {"module": NULL, "unresolved": 0})
    for prefix in ("SAMPLING", "OSRT", "CUDA", "SYSCALL")
)

_NO_NAME = re.compile(r"(0x[0-9a-fA-F]*)?")
"""An address or an empty text, because some functions are resolved to an empty name."""
# Modules between the program and the device: the CUDA runtime (a library, or linked into the program), the driver and
# the profiler. A user wants the caller of cudaMalloc, not its internals.
_CUDA_MODULE = re.compile(r"(.*/)?(libcuda|libcudart|libcupti|libToolsInjection\w*)(-[0-9a-f]+)?\.so[.\d]*")
_CUDA_INSIDE = re.compile(r"cudart::.*|__cudart\w*")
_CUDA_LINKED = re.compile(rf"{_CUDA_INSIDE.pattern}|cu(da)?[A-Z].*")
_PROGRAM = re.compile(r"(.*/)?(?!python|.*\.so\b|.*\.ko\b)[^/\[\]()]+")
_BRACKETS = re.compile(r"\[(.*)\]|\((.*)\)")


class Frames(NamedTuple):
    """n frames: id of the chain, level (from 0), id of the module's name, and id of the name to show.

    `unnamed`: whether the function has no name, so that the name to show is the name of its module.
    """

    chain: IntArray
    level: IntArray
    module: IntArray
    name: IntArray
    unnamed: BoolArray

    def select(self, rows: IntArray | BoolArray) -> Frames:
        """Return the frames at these indices, or those that a mask selects."""
        return Frames._make(column[rows] for column in self)


def find_frames(chains: Sequence[Frames], level: int, chain: IntArray) -> tuple[Frames, BoolArray]:
    """Return (frames at a level, mask of the n chains with a frame there). The first frame of a chain counts.

    `chains`: the frames of all chains, in the parts in which they were read. One chain may be in several.
    """
    frames = _concatenate([part.select(part.level == level) for part in chains])
    if (np.diff(frames.chain) < 0).any():
        frames = frames.select(np.argsort(frames.chain, kind="stable"))
    if not frames.chain.size:
        return frames, np.zeros(chain.size, np.bool_)
    at = np.minimum(np.searchsorted(frames.chain, chain), frames.chain.size - 1)
    present = frames.chain[at] == chain
    return frames.select(at[present]), present


# ---- frames of the tables --------------------------------------------------------------------------------------------


_FIRST_DEPTH = {SAMPLE_CHAINS.name: 0, OS_CALL_CHAINS.name: 1, SYSTEM_CALL_CHAINS.name: 0}
"""Depth of the frame at level 0: the function that ran in a sample, the caller of a call. The innermost frame of an OS
runtime call is the call itself; a system call is in the kernel and has no frame."""


def read_chains(reader: ReportReader, table: Table) -> list[Frames]:
    """Read the chains of samples, OS runtime calls or system calls."""
    first = _FIRST_DEPTH[table.name]
    end = first + reader.options.stack_depth

    def find_within(block: Columns) -> IntArray:
        depth = block["stackDepth"]
        return np.flatnonzero((depth >= first) & (depth < end) & (block["id"] != NULL))

    return [part._replace(level=part.level - first) for part in _read(reader, table, find_within)]


def read_program_frames(reader: ReportReader) -> list[Frames]:
    """Read the innermost named frame of each chain of samples that is of a program: no library, and not Python's.

    CUDA's runtime may be linked into the program.
    """
    modules = _find_ids(reader, SAMPLE_CHAINS, _PROGRAM.fullmatch)
    linked = _find_ids(reader, SAMPLE_CHAINS, _CUDA_LINKED.fullmatch)

    def find_of_program(block: Columns) -> IntArray:
        is_program = np.isin(block["module"], modules) & ~np.isin(block["symbol"], linked)
        return np.flatnonzero((block["id"] != NULL) & (block["stackDepth"] >= 0) & is_program)

    frames = _concatenate(_read(reader, SAMPLE_CHAINS, find_of_program))
    frames = frames.select(~frames.unnamed)
    rows, level = _take_innermost(frames.chain, frames.level, 1)
    return [frames.select(rows)._replace(level=level)]


def read_cuda_chains(reader: ReportReader, names: Iterable[str]) -> list[Frames]:
    """Read the chains of CUDA calls: the caller is at level 0. The innermost frames, within CUDA, are skipped.

    `names`: the names of the calls. If CUDA is linked into a program, the program contains functions with these names.
    """
    count = reader.options.stack_depth
    calls = frozenset(names)

    def is_inside(symbol: str) -> bool:
        # A linker may append a version: cudaMalloc@@libcudart.so.12.
        return symbol.partition("@")[0] in calls or _CUDA_INSIDE.fullmatch(symbol) is not None

    symbols = _find_ids(reader, CUDA_CALL_CHAINS, is_inside)
    libraries = _find_ids(reader, CUDA_CALL_CHAINS, _CUDA_MODULE.fullmatch)

    def find_outside_cuda(block: Columns) -> IntArray:
        rows = np.flatnonzero((block["id"] != NULL) & (block["stackDepth"] >= 0))
        rows = rows[np.lexsort((block["stackDepth"][rows], block["id"][rows]))]
        inside = np.isin(block["symbol"][rows], symbols) | np.isin(block["module"][rows], libraries)
        rows = rows[_mark_after_first_run(block["id"][rows], inside)]
        return rows[_take_innermost(block["id"][rows], block["stackDepth"][rows], count)[0]]

    frames = _concatenate(_read(reader, CUDA_CALL_CHAINS, find_outside_cuda))
    rows, level = _take_innermost(frames.chain, frames.level, count)  # again, for chains in two blocks
    return [frames.select(rows)._replace(level=level)]


def _read(reader: ReportReader, table: Table, choose: Callable[[Columns], IntArray]) -> list[Frames]:
    """Read the frames in the rows that `choose` returns for each block; their level is their depth."""
    no_names = _find_ids(reader, table, _NO_NAME.fullmatch)

    def make_frames(block: Columns) -> Frames:
        rows = choose(block)
        symbol, module = block["symbol"][rows], block["module"][rows]
        unnamed = (block["unresolved"][rows] == 1) | (symbol == NULL) | np.isin(symbol, no_names)
        name = np.where(unnamed, module, symbol)
        chain, level, module, name = map(_shrink, (block["id"][rows], block["stackDepth"][rows], module, name))
        return Frames(chain, level, module, name, unnamed)

    return reader.read_by_block(table.name, make_frames)


def _shrink(column: IntArray) -> IntArray:
    """Return a column in half the memory if its values allow it, because a report may have ten million frames."""
    limits = np.iinfo(np.int32)
    fits = not column.size or (column.min() >= limits.min and column.max() <= limits.max)
    return column.astype(np.int32) if fits else column


def _find_ids(reader: ReportReader, table: Table, matches: Callable[[str], object]) -> list[int]:
    """Return the ids of the names for which `matches` is true; none if the report does not have the table."""
    return reader.strings.find_matching_ids(matches) if reader.has(table.name) else []


def _concatenate(parts: Sequence[Frames]) -> Frames:
    none = np.zeros(0, np.int64)
    columns = zip(Frames(none, none, none, none, np.zeros(0, np.bool_)), *parts, strict=True)
    return Frames(*map(np.concatenate, columns))


def _take_innermost(chain: IntArray, depth: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return (rows, levels) of the innermost `count` frames of each chain, at any depth."""
    order = np.lexsort((depth, chain))
    order = order[find_starts(chain[order], depth[order])]  # the first frame of each depth
    level = np.arange(order.size) - _find_group_starts(chain[order])
    return order[level < count], level[level < count]


def _mark_after_first_run(group: IntArray, within: BoolArray) -> BoolArray:
    """Return a mask of the rows that come after the leading run of `within` rows of their group.

    The rows of a group are side by side.
    """
    start = _find_group_starts(group)
    outside = np.cumsum(~within)
    before: IntArray = outside[start] - ~within[start]
    return np.asarray(outside > before)


def _find_group_starts(group: IntArray) -> IntArray:
    """Return the index of the first row of each row's group. The rows of a group are side by side."""
    starts = find_starts(group)
    return np.repeat(starts, np.diff(starts, append=group.size))


# ---- names that events show ------------------------------------------------------------------------------------------


def find_functions(
    reader: ReportReader, chains: Sequence[Frames], chain: IntArray, by_level: Sequence[EventType]
) -> list[Pair]:
    """Return the functions of n events, given the ids of their chains: one pair for each level of the chains."""
    pairs = []
    for level, event_type in enumerate(by_level[: reader.options.stack_depth]):
        frames, present = find_frames(chains, level, chain)
        if present.any():
            ids = _name_ids(reader, frames, event_type.names)
            pairs.append(make_partial_pair(reader.labels, event_type, ids, present))
    return pairs


def _name_ids(reader: ReportReader, frames: Frames, space: str) -> IntArray:
    """Return ids of the functions' names; a function without a name shows its module in parentheses."""
    ids = np.empty(frames.name.size, np.int64)
    for mask, label in ((~frames.unnamed, label_function), (frames.unnamed, lambda path: f"({label_module(path)})")):
        index, names = reader.names(frames.name[mask])
        ids[mask] = reader.labels.name_ids(space, map(label, names))[index]
    return ids


def find_modules(reader: ReportReader, chains: Sequence[Frames], chain: IntArray, event_type: EventType) -> list[Pair]:
    """Return the modules of the functions at level 0 of n events."""
    frames, present = find_frames(chains, 0, chain)
    if not present.any():
        return []
    index, names = reader.names(frames.module)
    ids = reader.labels.name_ids(event_type.names, map(label_module, names))[index]
    return [make_partial_pair(reader.labels, event_type, ids, present)]


# Paraver's histograms do not show labels in brackets, unless a user asks for long labels.


def label_function(name: str) -> str:
    """Return the label of a function; texts in brackets such as [Broken backtraces], which are not names, get
    parentheses."""
    return f"({name[1:-1]})" if name.startswith("[") and name.endswith("]") else name


def label_module(path: str) -> str:
    """Return the name of a module without folders. Names that are not files, such as [vdso], lose their brackets."""
    name = path.rpartition("/")[2]
    match = _BRACKETS.fullmatch(name)
    return (match[1] or match[2] if match else name) or "Unknown"
