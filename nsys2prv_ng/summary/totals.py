"""Sums over the events of one report, by name: small tables, which are added up over all reports."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pandas as pd

from nsys2prv_ng.analysis.opened_events import ABSENT, OpenedEvents, load_opened_events
from nsys2prv_ng.arrays.row_keys import find_rows, mark_duplicates
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.nesting import measure_depths
from nsys2prv_ng.job.read_reports import ReportRecords
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.sources.mpi.calls import RECEIVES, SENDS, get_role
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, NO_FUNCTION, parse_function

OTHER_FUNCTION = "other"
WHOLE_GRAPH = "CUDA graph as a whole"
"""In the place of a kernel's class."""

FEWEST = 3
"""A range that one thread opened fewer times does not repeat."""
DEEPEST = 2
"""Ranges within more others are parts of what repeats."""

_NCCL = "NCCL"
_AT_ONCE = re.compile(r"MPI_(I[a-z]|File_i|Rget|Rput)")
"""Calls of MPI that begin what others wait for."""
Windows = Sequence[tuple[int, int]]

_SUMS = ("count", "ns", "min_ns", "max_ns")
_HOW = {"min_ns": "min", "max_ns": "max", "depth": "min"}
"""How tables are added up, other than by sums."""


def add_up(parts: Sequence[pd.DataFrame], keys: list[str]) -> pd.DataFrame:
    """Tables of several reports as one, with a row for each key."""
    table: pd.DataFrame = pd.concat(parts, ignore_index=True)
    if table.empty:
        return table
    how = {name: _HOW.get(name, "sum") for name in table.columns if name not in keys}
    return table.groupby(keys, as_index=False, sort=True).agg(how)


def _by(keys: dict[str, IntArray], length: IntArray, **sums: IntArray) -> pd.DataFrame:
    """Number, time, shortest and longest (ns), and other sums, of the events that agree in some columns."""
    amounts = {"count": np.ones(length.size, np.int64), "ns": length, "min_ns": length, "max_ns": length, **sums}
    return add_up([pd.DataFrame({**keys, **amounts})], list(keys))


def _given(value: IntArray) -> IntArray:
    return np.where(value == ABSENT, 0, value)


def _named(table: pd.DataFrame, column: str, names: dict[int, str]) -> pd.DataFrame:
    return table.assign(**{column: [names.get(value, f"value {value}") for value in table[column].tolist()]})


# ---- on GPUs ---------------------------------------------------------------------------------------------------------


def sum_kernels(report: ReportRecords, store: Store) -> pd.DataFrame:
    """Kernels by `name` and `kernel_class`, and graphs that were traced as a whole."""
    found = load_opened_events(report, "kernels", store)
    kernel_class = found.get_values(types.KERNEL_CLASS)
    parts = [
        _kinds(found, types.KERNEL, kernel_class),
        _kinds(found, types.NCCL_KERNEL, kernel_class),
        _kinds(load_opened_events(report, "cuda_graphs", store), types.GRAPH_LAUNCH).assign(kernel_class=WHOLE_GRAPH),
    ]
    return add_up(parts, ["name", "kernel_class"])


def _kinds(found: OpenedEvents, event_type: EventType, kernel_class: IntArray | None = None) -> pd.DataFrame:
    value = found.get_values(event_type)
    of_type = np.flatnonzero(value != ABSENT)
    keys = {"name": value[of_type]}
    if kernel_class is not None:
        keys["kernel_class"] = kernel_class[of_type]
    table = _named(_by(keys, found.length[of_type]), "name", found.get_names(event_type))
    return table if kernel_class is None else _named(table, "kernel_class", found.get_names(types.KERNEL_CLASS))


def sum_memory_operations(report: ReportRecords, store: Store, windows: Windows) -> pd.DataFrame:
    """Copies and sets by `operation`; of those that no window cut the `bytes` and the time `rated_ns`."""
    found = load_opened_events(report, "memory_operations", store)
    value, whole = found.get_values(types.MEMORY_OPERATION), found.mark_whole(windows)
    moved = _given(found.get_values(types.MEMORY_BYTES)) * whole
    table = _by({"operation": value}, found.length, bytes=moved, rated_ns=found.length * whole)
    return _named(table, "operation", found.get_names(types.MEMORY_OPERATION))


# ---- communication ---------------------------------------------------------------------------------------------------


def sum_nccl(report: ReportRecords, store: Store, windows: Windows) -> pd.DataFrame:
    """By `function`: `calls` of the host, how many `told` their bytes, and these `bytes`; `kernels`, their time `ns`,
    and of those whose calls told the bytes, and no window cut, the time `carried_ns` and the bytes `carried_bytes`."""
    payload = load_opened_events(report, "nccl", store)
    sizes = (types.NCCL_BYTES, types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES)
    size: IntArray = np.sum([_given(payload.get_values(each)) for each in sizes], axis=0)
    is_stream = np.array([isinstance(place, Stream) for place in report.places.all], np.bool_)
    on_stream = is_stream[payload.place]

    def size_of(found: OpenedEvents, lines: IntArray, among: BoolArray) -> IntArray:
        """Bytes of what begins where a payload does, -1 for what has none."""
        rows = np.flatnonzero(among)
        rows = rows[~mark_duplicates(payload.place[rows], payload.begin[rows])]
        at = find_rows([payload.place[rows], payload.begin[rows]], [found.place[lines], found.begin[lines]])
        return np.where(at >= 0, np.append(size[rows], 0)[at], -1)

    calls, call, functions = _functions(load_opened_events(report, "nvtx", store), families.make_nvtx_range(_NCCL))
    called = np.where(calls.mark_whole(windows)[call], size_of(calls, call, ~on_stream), -1)
    told = (called >= 0).astype(np.int64)
    made = pd.DataFrame({"function": functions, "calls": 1, "told": told, "bytes": np.maximum(called, 0)})
    made = made[made["function"] != NO_FUNCTION]

    kernel, line, functions = _functions(load_opened_events(report, "kernels", store), types.NCCL_KERNEL)
    carried, length = size_of(kernel, line, on_stream), kernel.length[line]
    carried = np.where(kernel.mark_whole(windows)[line], carried, 0)
    rated = {"carried_ns": np.where(carried > 0, length, 0), "carried_bytes": np.maximum(carried, 0)}
    ran = pd.DataFrame({"function": functions, "kernels": 1, "ns": length, **rated})
    table = add_up([pd.concat([made, ran], ignore_index=True).fillna(0).astype(np.int64)], ["function"])
    return _named(table, "function", {NO_FUNCTION: OTHER_FUNCTION, **dict(enumerate(FUNCTIONS))})


def _functions(found: OpenedEvents, event_type: EventType) -> tuple[OpenedEvents, IntArray, IntArray]:
    """(all, the lines that have a type, NCCL's function by the name on each)."""
    value = found.get_values(event_type)
    lines = np.flatnonzero(value != ABSENT)
    names = found.get_names(event_type)
    of_name = np.full(max(names, default=0) + 1, NO_FUNCTION, np.int64)
    for number, name in names.items():
        of_name[number] = parse_function(name)
    return found, lines, of_name[value[lines]]


def sum_mpi(report: ReportRecords, store: Store, windows: Windows) -> pd.DataFrame:
    """Calls by `name`, how many `told` any bytes, what they `sent` and `received`, and the time `rated_ns` of these.

    Calls that a window cut tell none; nor is there time of calls that return before anything has moved.
    """
    found = load_opened_events(report, "mpi", store)
    of_types = types.MPI_BYTES, types.MPI_SENT_BYTES, types.MPI_RECEIVED_BYTES, types.MPI_SENDRECV_BYTES
    values = [found.get_values(each) for each in of_types]
    whole = found.mark_whole(windows)
    told = np.any([value != ABSENT for value in values], axis=0) * whole
    size, sent, *both_received = (_given(value) * whole for value in values)
    received = both_received[0] + both_received[1]
    parts = []
    for event_type in types.MPI_CALLS.values():
        value = found.get_values(event_type)
        lines = np.flatnonzero(value != ABSENT)
        sums = {"told": told[lines], "size": size[lines], "sent": sent[lines], "received": received[lines]}
        sums["rated_ns"] = told[lines] * found.length[lines]
        parts.append(
            _named(_by({"name": value[lines]}, found.length[lines], **sums), "name", found.get_names(event_type))
        )
    table = add_up(parts, ["name"])
    roles = np.array([get_role(name) for name in table["name"]], np.int64)
    receives = (roles & (SENDS | RECEIVES)) == RECEIVES  # of a Sendrecv the size is of what it sends
    table["sent"] += table["size"].where(~receives, 0)
    table["received"] += table["size"].where(receives, 0)
    waits = np.array([_AT_ONCE.match(name) is None for name in table["name"]], np.bool_)
    table["rated_ns"] = table["rated_ns"].where(waits, 0)
    return table.drop(columns="size")


# ---- ranges ----------------------------------------------------------------------------------------------------------


def sum_repeated_ranges(report: ReportRecords, task_of_place: IntArray, store: Store, windows: Windows) -> pd.DataFrame:
    """NVTX ranges by `task`, `domain` and `name` that a thread opened at least FEWEST times, outermost or within one.

    NCCL's are its calls. Start/end ranges are outermost: they are within no other. What a window cut is left out.
    """
    found = load_opened_events(report, "nvtx", store)
    lanes = range(families.make_nvtx_lane("", 0).number, families.make_nvtx_lane("", 0).number + families.NVTX_LANES)
    of_family = [each for each in found.list_types("nvtx") if each.member != _NCCL]
    push_pop = [each for each in of_family if each.number == families.make_nvtx_range("").number]
    parts = []
    for event_type in push_pop + [each for each in of_family if each.number in lanes]:
        value = found.get_values(event_type)
        lines = np.flatnonzero(value != ABSENT)
        frame = pd.DataFrame({"line": lines, "value": value[lines], "nests": event_type in push_pop})
        names = found.get_names(event_type)
        parts.append(frame.assign(domain=event_type.member, name=frame["value"].map(names)))
    if not parts:
        return pd.DataFrame(columns=["task", "domain", "name", "depth", *_SUMS])
    ranges: pd.DataFrame = pd.concat(parts, ignore_index=True)
    line = ranges["line"].to_numpy(np.int64)
    ranges = ranges.assign(place=found.place[line], ns=found.length[line], depth=1)
    nested = np.flatnonzero(ranges["nests"].to_numpy(np.bool_))
    at = line[nested]
    ranges.loc[nested, "depth"] = measure_depths(found.place[at], found.begin[at], found.end[at])
    ranges = ranges[(ranges["depth"] <= DEEPEST) & found.mark_whole(windows)[line]]
    by_thread = ranges.groupby(["place", "domain", "name"])["ns"]
    ranges = ranges[by_thread.transform("size") >= FEWEST]
    ranges = ranges.assign(task=task_of_place[ranges["place"].to_numpy(np.int64)])
    return (
        ranges.groupby(["task", "domain", "name"], as_index=False)
        .agg(depth=("depth", "min"), count=("ns", "size"), ns=("ns", "sum"), min_ns=("ns", "min"), max_ns=("ns", "max"))
        .astype(dict.fromkeys(("task", "depth", *_SUMS), np.int64))
    )
