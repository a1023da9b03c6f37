"""Functions on the stack of a thread: at a sample, or at a call for which nsys took a backtrace.

A chain is the rows of a table that share an `id`; their `stackDepth` counts from 0, the innermost function. Chains of
samples start with the function that ran, those of calls with the function that was called. For functions in stripped
modules nsys has addresses instead of names. These differ between processes, so the functions are named by their module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.shared.report_reader import ReportReader


def _declare_chains(name: str) -> Table:
    return Table(name, ("id", "symbol", "stackDepth"), {"module": NULL, "unresolved": 0})


SAMPLE_CHAINS = _declare_chains("SAMPLING_CALLCHAINS")
OS_CALL_CHAINS = _declare_chains("OSRT_CALLCHAINS")
CUDA_CALL_CHAINS = _declare_chains("CUDA_CALLCHAINS")
SYSTEM_CALL_CHAINS = _declare_chains("SYSCALL_CALLCHAINS")

_NO_NAME = re.compile(r"(0x[0-9a-fA-F]*)?")
"""An address, or nothing: some functions are resolved to an empty name."""
# Modules between the program and the device: the runtime of CUDA (a library, or linked into the program), the driver
# and the profiler. A user wants the caller of cudaMalloc, not the inside of it.
_CUDA_MODULE = re.compile(r"(.*/)?(libcuda|libcudart|libcupti|libToolsInjection\w*)(-[0-9a-f]+)?\.so[.\d]*")
_CUDA_INSIDE = re.compile(r"cudart::.*|__cudart\w*")
_BRACKETS = re.compile(r"\[(.*)\]|\((.*)\)")


class Frames(NamedTuple):
    """n frames: id of the chain, level from 0 on, id of the module's name, id of the name to show, and whether that is
    the module's name because the function has none."""

    chain: IntArray
    level: IntArray
    module: IntArray
    name: IntArray
    unnamed: BoolArray

    def select(self, rows: IntArray | BoolArray) -> Frames:
        """Return the frames at these indices, or where this mask is set."""
        return Frames(self.chain[rows], self.level[rows], self.module[rows], self.name[rows], self.unnamed[rows])


class Chains:
    """The frames of all chains in parts, as they were read: the frames of one chain may be in several parts."""

    def __init__(self, parts: Sequence[Frames]) -> None:
        self._parts = parts

    def find(self, level: int, chain: IntArray) -> tuple[Frames, BoolArray]:
        """Return (frames at a level, mask of the n chains that have one there), the first of several."""
        frames = _concatenate([part.select(part.level == level) for part in self._parts])
        if (np.diff(frames.chain) < 0).any():
            frames = frames.select(np.argsort(frames.chain, kind="stable"))
        if not frames.chain.size:
            return frames, np.zeros(chain.size, np.bool_)
        at = np.minimum(np.searchsorted(frames.chain, chain), frames.chain.size - 1)
        present = frames.chain[at] == chain
        return frames.select(at[present]), present


# ---- frames of the tables --------------------------------------------------------------------------------------------


def read_sample_chains(reader: ReportReader) -> Chains:
    """Read the chains of samples: at level 0 the function that ran, above it its callers."""
    return _read_depths(reader, SAMPLE_CHAINS, 0)


def read_os_chains(reader: ReportReader) -> Chains:
    """Read the chains of OS runtime calls: at level 0 the caller. The innermost frame, the call itself, is skipped."""
    return _read_depths(reader, OS_CALL_CHAINS, 1)


def read_system_chains(reader: ReportReader) -> Chains:
    """Read the chains of system calls: at level 0 the caller. The call itself is in the kernel and has no frame."""
    return _read_depths(reader, SYSTEM_CALL_CHAINS, 0)


def read_cuda_chains(reader: ReportReader, names: Iterable[str]) -> Chains:
    """Read the chains of CUDA calls: at level 0 the caller. The innermost frames, those within CUDA, are skipped.

    `names` are those of the calls: a program that CUDA is linked into contains functions with these names.
    """
    count = reader.options.stack_depth
    calls = re.compile("|".join(rf"{re.escape(name)}(@.*)?" for name in names) or "(?!)")
    symbols, libraries = (
        [i for pattern in patterns for i in _find_ids(reader, CUDA_CALL_CHAINS, pattern)]
        for patterns in ((_CUDA_INSIDE, calls), (_CUDA_MODULE,))
    )

    def find_outside_cuda(block: Columns) -> IntArray:
        rows = np.flatnonzero((block["id"] != NULL) & (block["stackDepth"] >= 0))
        rows = rows[np.lexsort((block["stackDepth"][rows], block["id"][rows]))]
        inside = np.isin(block["symbol"][rows], symbols) | np.isin(block["module"][rows], libraries)
        rows = rows[_mark_after_first_run(block["id"][rows], inside)]
        return rows[_take_innermost(block["id"][rows], block["stackDepth"][rows], count)[0]]

    frames = _concatenate(_read(reader, CUDA_CALL_CHAINS, find_outside_cuda))
    rows, level = _take_innermost(frames.chain, frames.level, count)  # again, for chains that are in two blocks
    return Chains([frames.select(rows)._replace(level=level)])


def _read_depths(reader: ReportReader, table: Table, first: int) -> Chains:
    """Read the frames of a table from the depth `first` on, which is level 0."""
    end = first + reader.options.stack_depth

    def find_within(block: Columns) -> IntArray:
        depth = block["stackDepth"]
        return np.flatnonzero((depth >= first) & (depth < end) & (block["id"] != NULL))

    return Chains([part._replace(level=part.level - first) for part in _read(reader, table, find_within)])


def _read(reader: ReportReader, table: Table, choose: Callable[[Columns], IntArray]) -> list[Frames]:
    """Read the frames in the rows that `choose` returns for each block, with their depth as level."""
    no_names = _find_ids(reader, table, _NO_NAME)

    def make_frames(block: Columns) -> Frames:
        rows = choose(block)
        symbol, module = block["symbol"][rows], block["module"][rows]
        unnamed = (block["unresolved"][rows] == 1) | (symbol == NULL) | np.isin(symbol, no_names)
        name = np.where(unnamed, module, symbol)
        chain, level, module, name = map(_shrink, (block["id"][rows], block["stackDepth"][rows], module, name))
        return Frames(chain, level, module, name, unnamed)

    return reader.read_by_block(table.name, make_frames)


def _shrink(column: IntArray) -> IntArray:
    """Return a column in half the memory, if its values allow it: a report has ten million frames."""
    limits = np.iinfo(np.int32)
    fits = not column.size or (column.min() >= limits.min and column.max() <= limits.max)
    return column.astype(np.int32) if fits else column


def _find_ids(reader: ReportReader, table: Table, pattern: re.Pattern[str]) -> list[int]:
    """Return the ids of the names that a pattern matches; none if the report does not have the table."""
    return reader.strings.find_matching_ids(pattern) if reader.has(table.name) else []


def _concatenate(parts: Sequence[Frames]) -> Frames:
    none = np.zeros(0, np.int64)
    columns = zip(Frames(none, none, none, none, np.zeros(0, np.bool_)), *parts, strict=True)
    chain, level, module, name, unnamed = map(np.concatenate, columns)
    return Frames(chain, level, module, name, unnamed)


def _take_innermost(chain: IntArray, depth: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """Return (rows, levels) of the innermost `count` frames of each chain, whatever their depths are."""
    order = np.lexsort((depth, chain))
    starts, differs = (_mark_changes(column[order]) for column in (chain, depth))
    order, starts = order[starts | differs], starts[starts | differs]  # the first frame of each depth
    number = np.arange(order.size)
    level = number - np.maximum.accumulate(np.where(starts, number, 0))
    return order[level < count], level[level < count]


def _mark_after_first_run(group: IntArray, within: BoolArray) -> BoolArray:
    """Return a mask of the rows that come after the leading run of `within` rows of their group.

    The rows of a group are side by side.
    """
    number = np.arange(group.size)
    start = np.maximum.accumulate(np.where(_mark_changes(group), number, 0))
    outside = np.cumsum(~within)
    before: IntArray = outside[start] - ~within[start]
    return np.asarray(outside > before)


def _mark_changes(values: IntArray) -> BoolArray:
    """Return a mask of the values that differ from the one before, and of the first value."""
    return np.append([True] * (values.size > 0), values[1:] != values[:-1]).astype(np.bool_)


# ---- names that events show ------------------------------------------------------------------------------------------


def find_functions(reader: ReportReader, chains: Chains, chain: IntArray, by_level: Sequence[EventType]) -> list[Pair]:
    """Return the functions of n events, given the ids of their chains: a pair for each level that some chain has."""
    pairs = []
    for level, event_type in enumerate(by_level[: reader.options.stack_depth]):
        frames, present = chains.find(level, chain)
        if present.any():
            ids = np.zeros(chain.size, np.int64)
            ids[present] = _name_ids(reader, frames, event_type.names)
            pairs.append(Pair(reader.labels.handle(event_type), ids, present))
    return pairs


def _name_ids(reader: ReportReader, frames: Frames, space: str) -> IntArray:
    """Return ids of the functions' names; a function without a name has that of its module, in parentheses."""
    ids = np.empty(frames.name.size, np.int64)
    for mask, label in ((~frames.unnamed, label_function), (frames.unnamed, lambda path: f"({label_module(path)})")):
        index, names = reader.names(frames.name[mask])
        ids[mask] = reader.labels.name_ids(space, map(label, names))[index]
    return ids


def find_modules(reader: ReportReader, chains: Chains, chain: IntArray, event_type: EventType) -> list[Pair]:
    """Return the modules of the functions at level 0 of n events."""
    frames, present = chains.find(0, chain)
    if not present.any():
        return []
    index, names = reader.names(frames.module)
    ids = np.zeros(chain.size, np.int64)
    ids[present] = reader.labels.name_ids(event_type.names, map(label_module, names))[index]
    return [Pair(reader.labels.handle(event_type), ids, present)]


# Histograms of Paraver do not show a label that is in brackets, unless a user asks for long labels.


def label_function(name: str) -> str:
    """Return the label of a name: [Broken backtraces] and the like, which are no names, in parentheses."""
    return f"({name[1:-1]})" if name.startswith("[") and name.endswith("]") else name


def label_module(path: str) -> str:
    """Return the name of a module without its folders; [vdso] and the like, which are no files, without brackets."""
    name = path.rpartition("/")[2]
    match = _BRACKETS.fullmatch(name)
    return (match[1] or match[2] if match else name) or "Unknown"
