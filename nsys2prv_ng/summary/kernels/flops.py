"""Adds up the FLOPs of operators with known shapes, and the time of the kernels that they launched.

The source of NVTX ranges counts the FLOPs of operators (sources/nvtx/flops.py). An operator counts here if it launched
kernels in the time that numbers cover: operators on CPUs, and those whose kernels a CUDA graph recorded, do not. A
kernel belongs to the operator in whose range it was launched. A product of sparse matrices does not count, since its
shapes do not show its work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.groups import Table, drop_columns, make_objects, make_rows, sum_table
from nsys2prv_ng.arrays.row_keys import find_distinct, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, put
from nsys2prv_ng.intervals.nesting import find_innermost
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.reading.device_operations import Launches, load_launches
from nsys2prv_ng.reading.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.sources.cuda.kernel_classes import NUMBER_TYPES, find_number_types
from nsys2prv_ng.summary.kernels.numbers import FlopNumbers, KernelNumbers, OperatorFlops
from nsys2prv_ng.summary.totals import Windows, add_up

_KEYS = ["operator", "number_type", "task"]
_COLUMNS = [*_KEYS, "count", "high", "low", "kernel_ns", "explained_ns"]
_HALF = 31
"""Bits of the lower part of FLOPs: sums of the parts fit 64 bits, while sums of FLOPs may not."""
_SPARSE = "Sparse matrix"
_TYPES = ["", *NUMBER_TYPES]


def sum_operators(
    report: ReportRecords, task_of_place: IntArray, store: Store, counted: CountedEvents, windows: Windows
) -> Table:
    """Return the operators of a report by `operator`, `number_type` and `task`.

    FLOPs are `high` * 2^31 + `low`. `explained_ns` is the part of `kernel_ns` in kernels of the heavy classes.
    """
    event_type = families.make_nvtx_flops("")
    if report.labels.find_handle(event_type) is None:
        return {name: np.zeros(0, object if name in _KEYS[:2] else np.int64) for name in _COLUMNS}
    ranges = load_opened_events(report, source_names.NVTX, store)
    flops = ranges.get_values(event_type)
    line = np.flatnonzero((flops != ABSENT) & ranges.mark_whole(windows))
    line = line[np.lexsort((ranges.begin[line], ranges.place[line]))]
    flops, place = flops[line], ranges.place[line]
    kernels = load_opened_events(report, source_names.KERNELS, store)
    counts = kernels.mark_whole(windows) & counted.mark_operations(kernels.place, kernels.begin)
    operators = place, ranges.begin[line], ranges.end[line]
    kernel, operator = _find_launched(kernels, load_launches(report, store), counts, operators)
    length = kernels.length[kernel]
    name, kernel_class = (_load_labels(kernels, kind, kernel) for kind in (types.KERNEL, types.KERNEL_CLASS))
    heavy = np.where(kernel_class.take(is_heavy_class), length, 0)
    number_type = _choose_types(name, kernel_class, operator, heavy, line.size)
    is_shown = np.bincount(operator, minlength=line.size) > 0
    is_shown[operator[kernel_class.take(lambda label: label == _SPARSE)]] = False
    range_type = families.make_nvtx_range("")
    columns = {
        "operator": ranges.get_values(range_type)[line],
        "number_type": number_type,
        "task": task_of_place[place],
        "count": np.ones(line.size, np.int64),
        "high": flops >> _HALF,
        "low": flops & ((1 << _HALF) - 1),
        "kernel_ns": np.bincount(operator, length, line.size).astype(np.int64),
        "explained_ns": np.bincount(operator, heavy, line.size).astype(np.int64),
    }
    table = sum_table({name: column[is_shown] for name, column in columns.items()}, _KEYS)
    names = ranges.get_names(range_type)
    table["operator"] = make_objects(names[value] for value in table["operator"].tolist())
    table["number_type"] = make_objects(_TYPES[code] for code in table["number_type"].tolist())
    return table


def is_heavy_class(kernel_class: str) -> bool:
    """Return whether kernels of a class compute matrix products, attention or convolutions."""
    return kernel_class.startswith("GEMM ") or kernel_class in ("Attention", "Convolution")


class _Labels(NamedTuple):
    """A text of each of n kernels: its index in distinct texts."""

    code: IntArray
    texts: list[str]

    def take(self, is_wanted: Callable[[str], bool]) -> BoolArray:
        """Return a mask of the kernels with a text that is wanted."""
        return np.array([is_wanted(text) for text in self.texts], np.bool_)[self.code]


def _load_labels(kernels: OpenedEvents, event_type: EventType, line: IntArray) -> _Labels:
    """Return the texts that kernels, given by their lines, have for a type."""
    code, values = find_distinct(kernels.get_values(event_type)[line])
    names = kernels.get_names(event_type)
    return _Labels(code, [names.get(value, "") for value in values.tolist()])


def _find_launched(
    kernels: OpenedEvents, launches: Launches, counts: BoolArray, operators: tuple[IntArray, IntArray, IntArray]
) -> tuple[IntArray, IntArray]:
    """Return (lines of kernels, index of the operator that launched each). `counts`: whether each kernel does.

    Operators, given by thread, start and end, do not overlap on their thread and are ordered by both. Nodes of CUDA
    graphs belong to none.
    """
    is_single = (kernels.get_values(types.KERNEL) != ABSENT) & (kernels.get_values(types.GRAPH_NODE_ID) == ABSENT)
    line = np.flatnonzero(is_single & counts)
    launch = launches.find(kernels.place[line], kernels.begin[line])
    line, launch = line[launch >= 0], launch[launch >= 0]
    thread, sent = launches.thread[launch], launches.sent[launch]
    order = np.lexsort((sent, thread))
    operator = find_innermost(*operators, thread[order], sent[order]).innermost
    return line[order][operator >= 0], operator[operator >= 0]


def _choose_types(name: _Labels, kernel_class: _Labels, operator: IntArray, heavy: IntArray, count: int) -> IntArray:
    """Return the number type of each operator, as an index of _TYPES: that of its longest kernel with a known one.

    `heavy`: the time (ns) of each kernel that counts for that.
    """
    code, distinct = find_distinct_rows(name.code, kernel_class.code)
    found = find_number_types([name.texts[n] for n, _ in distinct], [kernel_class.texts[c] for _, c in distinct])
    number_type = np.array([_TYPES.index(text) for text in found], np.int64)[code]
    known = np.flatnonzero(number_type > 0)
    known = known[np.argsort(heavy[known], kind="stable")]
    return put(number_type[known], operator[known], count, 0)  # the last one counts, which is the longest


def collect_flops(parts: Sequence[Table], kernels: Sequence[KernelNumbers], steps: int) -> FlopNumbers | None:
    """Return the FLOPs of a job; None without operators with known shapes. `steps`: number of steps covered, or 0."""
    table = add_up(parts, _KEYS)
    if not table["task"].size:
        return None
    by_operator = add_up([drop_columns(table, "task", "explained_ns")], _KEYS[:2])
    parts_of_flops = zip(by_operator["high"].tolist(), by_operator["low"].tolist(), strict=True)
    flops = [float((high << _HALF) + low) for high, low in parts_of_flops]
    rows = make_rows(drop_columns(by_operator, "high", "low"))
    operators = [OperatorFlops(flops=each, **row) for each, row in zip(flops, rows, strict=True)]
    return FlopNumbers(
        tasks=np.unique(table["task"]).size,
        steps=steps,
        operators=sorted(operators, key=lambda each: (-each.flops, each.operator, each.number_type)),
        explained_ns=int(table["explained_ns"].sum()),
        of_ns=sum(kernel.total_ns for kernel in kernels if is_heavy_class(kernel.kernel_class)),
    )
