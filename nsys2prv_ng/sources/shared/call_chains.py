"""Functions on the stack of a thread: of a sample, or of a call of which nsys took a backtrace.

A chain is the rows of a table that share an `id`; their `stackDepth` counts from 0, the innermost function. Chains of
samples begin with the function that ran, those of calls with the function that was called. nsys has no names of
functions in stripped modules but their addresses, which differ between processes: they are named by their module.
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


def _chains(name: str) -> Table:
    return Table(name, ("id", "symbol", "stackDepth"), {"module": NULL, "unresolved": 0})


OF_SAMPLES = _chains("SAMPLING_CALLCHAINS")
OF_OS_CALLS = _chains("OSRT_CALLCHAINS")
OF_CUDA_CALLS = _chains("CUDA_CALLCHAINS")
OF_SYSTEM_CALLS = _chains("SYSCALL_CALLCHAINS")

_NO_NAME = re.compile(r"(0x[0-9a-fA-F]*)?")
"""An address, or nothing: some functions are resolved to an empty name."""
# What is between the program and the device: the runtime of CUDA (a library, or linked into the program), the driver
# and the profiler. A user wants the caller of cudaMalloc, not the inside of it.
_CUDA_MODULE = re.compile(r"(.*/)?(libcuda|libcudart|libcupti|libToolsInjection\w*)(-[0-9a-f]+)?\.so[.\d]*")
_CUDA_INSIDE = re.compile(r"cudart::.*|__cudart\w*")
_BRACKETS = re.compile(r"\[(.*)\]|\((.*)\)")


class Frames(NamedTuple):
    """Frames of n: id of the chain, level from 0 on, id of the module's name, id of the name to show, and whether that
    is the module's because the function has none."""

    chain: IntArray
    level: IntArray
    module: IntArray
    name: IntArray
    unnamed: BoolArray

    def only(self, rows: IntArray | BoolArray) -> Frames:
        return Frames(self.chain[rows], self.level[rows], self.module[rows], self.name[rows], self.unnamed[rows])


class Chains:
    """The frames of all chains, as they were read: some of a chain may be in another part than the others."""

    def __init__(self, parts: Sequence[Frames]) -> None:
        self._parts = parts

    def find(self, level: int, chain: IntArray) -> tuple[Frames, BoolArray]:
        """(frames at a level of those of n chains that have one, whether each has). Of several the first counts."""
        frames = _joined([part.only(part.level == level) for part in self._parts])
        if (np.diff(frames.chain) < 0).any():
            frames = frames.only(np.argsort(frames.chain, kind="stable"))
        if not frames.chain.size:
            return frames, np.zeros(chain.size, np.bool_)
        at = np.minimum(np.searchsorted(frames.chain, chain), frames.chain.size - 1)
        present = frames.chain[at] == chain
        return frames.only(at[present]), present


# ---- frames of the tables --------------------------------------------------------------------------------------------


def read_sample_chains(reader: ReportReader) -> Chains:
    """Of each sample the function that ran at level 0, and its callers."""
    return _at_depths(reader, OF_SAMPLES, 0)


def read_os_chains(reader: ReportReader) -> Chains:
    """Of each call its caller at level 0, and the callers of that: the innermost frame is the call itself."""
    return _at_depths(reader, OF_OS_CALLS, 1)


def read_system_chains(reader: ReportReader) -> Chains:
    """Of each call the function that made it at level 0, and its callers: the call itself is in the kernel."""
    return _at_depths(reader, OF_SYSTEM_CALLS, 0)


def read_cuda_chains(reader: ReportReader, names: Iterable[str]) -> Chains:
    """Of each call its caller at level 0, and the callers of that; the innermost frames, within CUDA, are left out.

    `names` are those of the calls, by which a program that CUDA is linked into has them as well.
    """
    count = reader.options.stack_depth
    calls = re.compile("|".join(rf"{re.escape(name)}(@.*)?" for name in names) or "(?!)")
    symbols, libraries = (
        [i for pattern in patterns for i in _ids(reader, OF_CUDA_CALLS, pattern)]
        for patterns in ((_CUDA_INSIDE, calls), (_CUDA_MODULE,))
    )

    def innermost_outside(block: Columns) -> IntArray:
        rows = np.flatnonzero((block["id"] != NULL) & (block["stackDepth"] >= 0))
        rows = rows[np.lexsort((block["stackDepth"][rows], block["id"][rows]))]
        inside = np.isin(block["symbol"][rows], symbols) | np.isin(block["module"][rows], libraries)
        rows = rows[_after_first_run(block["id"][rows], inside)]
        return rows[_first_of_each(block["id"][rows], block["stackDepth"][rows], count)[0]]

    frames = _joined(_read(reader, OF_CUDA_CALLS, innermost_outside))
    rows, level = _first_of_each(frames.chain, frames.level, count)  # again, of chains that are in two blocks
    return Chains([frames.only(rows)._replace(level=level)])


def _at_depths(reader: ReportReader, table: Table, first: int) -> Chains:
    end = first + reader.options.stack_depth

    def within(block: Columns) -> IntArray:
        depth = block["stackDepth"]
        return np.flatnonzero((depth >= first) & (depth < end) & (block["id"] != NULL))

    return Chains([part._replace(level=part.level - first) for part in _read(reader, table, within)])


def _read(reader: ReportReader, table: Table, choose: Callable[[Columns], IntArray]) -> list[Frames]:
    """The frames that `choose` wants of each block of rows, with their depth as level."""
    no_names = _ids(reader, table, _NO_NAME)

    def frames_of(block: Columns) -> Frames:
        rows = choose(block)
        symbol, module = block["symbol"][rows], block["module"][rows]
        unnamed = (block["unresolved"][rows] == 1) | (symbol == NULL) | np.isin(symbol, no_names)
        name = np.where(unnamed, module, symbol)
        chain, level, module, name = map(_short, (block["id"][rows], block["stackDepth"][rows], module, name))
        return Frames(chain, level, module, name, unnamed)

    return reader.by_block(table.name, frames_of)


def _short(column: IntArray) -> IntArray:
    """In half the memory, where the values allow it: a report has ten million frames."""
    limits = np.iinfo(np.int32)
    fits = not column.size or (column.min() >= limits.min and column.max() <= limits.max)
    return column.astype(np.int32) if fits else column


def _ids(reader: ReportReader, table: Table, pattern: re.Pattern[str]) -> list[int]:
    """Ids of the names that a pattern matches, where the report has the table at all."""
    return reader.strings.ids_matching(pattern) if reader.has(table.name) else []


def _joined(parts: Sequence[Frames]) -> Frames:
    none = np.zeros(0, np.int64)
    columns = zip(Frames(none, none, none, none, np.zeros(0, np.bool_)), *parts, strict=True)
    chain, level, module, name, unnamed = map(np.concatenate, columns)
    return Frames(chain, level, module, name, unnamed)


def _first_of_each(chain: IntArray, depth: IntArray, count: int) -> tuple[IntArray, IntArray]:
    """(frames, level): the innermost frames of each chain, at most `count`, whatever their depths are."""
    order = np.lexsort((depth, chain))
    begins, differs = (_changes(column[order]) for column in (chain, depth))
    order, begins = order[begins | differs], begins[begins | differs]  # of a depth the first frame
    number = np.arange(order.size)
    level = number - np.maximum.accumulate(np.where(begins, number, 0))
    return order[level < count], level[level < count]


def _after_first_run(group: IntArray, within: BoolArray) -> BoolArray:
    """What comes, within its group, after the rows at its begin of which something holds; groups are side by side."""
    number = np.arange(group.size)
    begin = np.maximum.accumulate(np.where(_changes(group), number, 0))
    outside = np.cumsum(~within)
    before: IntArray = outside[begin] - ~within[begin]
    return np.asarray(outside > before)


def _changes(values: IntArray) -> BoolArray:
    """Where a value differs from the one before, and at the first."""
    return np.append([True] * (values.size > 0), values[1:] != values[:-1]).astype(np.bool_)


# ---- what events say of them -----------------------------------------------------------------------------------------


def find_functions(reader: ReportReader, chains: Chains, chain: IntArray, by_level: Sequence[EventType]) -> list[Pair]:
    """The functions of the chains (by id) of n events: a pair for each level at which some event has one."""
    pairs = []
    for level, event_type in enumerate(by_level[: reader.options.stack_depth]):
        frames, present = chains.find(level, chain)
        if present.any():
            ids = np.zeros(chain.size, np.int64)
            ids[present] = _name_ids(reader, frames, event_type.names)
            pairs.append(Pair(reader.labels.handle(event_type), ids, present))
    return pairs


def _name_ids(reader: ReportReader, frames: Frames, space: str) -> IntArray:
    """Functions by their names, those that have none by their modules, in parentheses."""
    ids = np.empty(frames.name.size, np.int64)
    for mask, label in ((~frames.unnamed, label_function), (frames.unnamed, lambda path: f"({label_module(path)})")):
        index, names = reader.names(frames.name[mask])
        ids[mask] = reader.labels.name_ids(space, map(label, names))[index]
    return ids


def find_modules(reader: ReportReader, chains: Chains, chain: IntArray, event_type: EventType) -> list[Pair]:
    """The modules of the functions at level 0 of n events."""
    frames, present = chains.find(0, chain)
    if not present.any():
        return []
    index, names = reader.names(frames.module)
    ids = np.zeros(chain.size, np.int64)
    ids[present] = reader.labels.name_ids(event_type.names, map(label_module, names))[index]
    return [Pair(reader.labels.handle(event_type), ids, present)]


# Histograms of Paraver show nothing of a label that is in brackets, unless a user asks for long ones.


def label_function(name: str) -> str:
    """A name; what is none, like [Broken backtraces], is in parentheses."""
    return f"({name[1:-1]})" if name.startswith("[") and name.endswith("]") else name


def label_module(path: str) -> str:
    """The name of a module without its folders, and of what is no file, like [vdso], without brackets."""
    name = path.rpartition("/")[2]
    match = _BRACKETS.fullmatch(name)
    return (match[1] or match[2] if match else name) or "Unknown"
