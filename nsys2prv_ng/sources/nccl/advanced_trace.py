"""Finds the calls in NVIDIA's advanced NCCL trace, and shows its ranges of GPUs and proxies on rows of the node.

A call of the program, what the runtime schedules, and an operation on a GPU may have the same name. The user guide of
Nsight Systems documents how ranges nest on host threads, which tells them apart: calls are within an `API Group`, but
not within the `GroupLaunch`, `GroupRuntime` or `KernelLaunch` that it contains. What is left is on GPUs, or in the
proxy if its thread has the name of a proxy's thread. No report with such a trace was at hand: whatever differs from the
documentation is a warning, and is not read.

Channels run at the same time, and so do the steps of a proxy, so their ranges overlap on the thread that reports them.
The documentation does not name the field with the channel, so a row is a lane: each range takes the first free one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.pick import pick
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, sort_nested
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.nesting import assign_lanes, find_innermost, mark_crossing
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.nvtx.events import NVTX, read_nvtx_events
from nsys2prv_ng.sources.shared.nccl_names import ADVANCED_CALLS, API_GROUP, DOCUMENTED, PROXY_THREAD, STRUCTURE
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import NO_END, Result
from nsys2prv_ng.text.names import quote_name

_SHOWN = 3
"""Most unknown names in a warning."""


class AdvancedTrace(NamedTuple):
    """The ranges of an advanced NCCL trace, as rows of NVTX_EVENTS.

    `structure`: ranges around calls and launches of kernels, which nest on each thread. `group`: the `API Group` around
    each of the calls, then of the structure: its index in `structure`, -1 for none. `elsewhere`: operations on GPUs,
    and ranges on the threads of proxies. `is_proxy`: whether each range in `elsewhere` is on the thread of a proxy.
    `surprises`: what differs from the documentation.
    """

    calls: IntArray
    structure: IntArray
    group: IntArray
    elsewhere: IntArray
    is_proxy: BoolArray
    surprises: list[str]


def find_advanced_trace(reader: ReportReader, rows: IntArray, name: IntArray, names: list[str]) -> AdvancedTrace | None:
    """Return the advanced trace among the ranges of the domain NCCL; None if there is none.

    `rows`: the n ranges, rows of NVTX_EVENTS; `name`: index of each into the names.
    """
    is_call, is_structure, is_documented = (
        np.array([text in known for text in names], np.bool_)[name] for known in (ADVANCED_CALLS, STRUCTURE, DOCUMENTED)
    )
    if not (is_call | is_structure).any():
        return None
    columns = reader.columns(NVTX)
    tid, begin, end = (columns[column][rows] for column in ("globalTid", "start", "end"))
    end = np.where(end == NULL, NO_END, end)
    tids, thread = np.unique(tid, return_inverse=True)
    proxies = [bool(PROXY_THREAD.fullmatch(reader.metadata.threads.get(int(t), ""))) for t in tids]
    on_proxy = np.array(proxies, np.bool_)[thread]
    sound = (tid != NULL) & (begin <= end)
    structure = np.flatnonzero(is_structure & sound & ~on_proxy)
    structure = structure[~mark_crossing(tid[structure], begin[structure], end[structure])]
    structure = structure[sort_nested(tid[structure], begin[structure], end[structure])]
    candidates = np.flatnonzero(is_call & sound & ~on_proxy)
    candidates = candidates[np.lexsort((begin[candidates], tid[candidates]))]
    nesting = find_innermost(tid[structure], begin[structure], end[structure], tid[candidates], begin[candidates])
    is_group = np.array([text == API_GROUP for text in names], np.bool_)[name[structure]]
    inner = nesting.innermost
    fits = (inner >= 0) & (end[candidates] <= pick(end[structure], inner, 0))
    is_api = fits & np.isin(inner, np.flatnonzero(is_group))
    group = _find_groups(is_group, nesting.parent)
    elsewhere = np.concatenate([candidates[~fits], np.flatnonzero(on_proxy & sound)])
    return AdvancedTrace(
        calls=rows[candidates[is_api]],
        structure=rows[structure],
        group=np.concatenate([pick(group, inner[is_api], -1), group]),
        elsewhere=rows[elsewhere],
        is_proxy=on_proxy[elsewhere],
        surprises=_list_surprises(
            sorted(names[i] for i in np.unique(name[~is_documented & ~on_proxy]).tolist()),
            lacks_groups=bool(candidates.size and not is_group.any()),
            crossing=int((is_structure & sound & ~on_proxy).sum()) - structure.size,
        ),
    )


def _find_groups(is_group: BoolArray, parent: IntArray) -> IntArray:
    """Return the outermost group around each of n ranges, itself included; -1 for none. Parents come first."""
    group = np.where(is_group, np.arange(is_group.size), -1)
    above = parent.copy()
    while (above >= 0).any():  # once for each level of nesting
        known = np.isin(above, np.flatnonzero(is_group))
        group = np.where(known, above, group)
        above = pick(parent, above, -1)
    return group


def _list_surprises(unknown: list[str], *, lacks_groups: bool, crossing: int) -> list[str]:
    """Return what differs from the documentation."""
    surprises = []
    if unknown:
        more = "" if len(unknown) <= _SHOWN else f" and {len(unknown) - _SHOWN:,} more"
        surprises.append(f"unknown ranges {', '.join(map(quote_name, unknown[:_SHOWN]))}{more}")
    if lacks_groups:
        surprises.append(f"no range {API_GROUP}, so calls cannot be told from GPU operations (--nccl-trace=default)")
    if crossing:
        surprises.append(f"{crossing:,} ranges that do not nest")
    return surprises


# ---- ranges of GPUs and proxies --------------------------------------------------------------------------------------


def write_channels(reader: ReportReader, result: Result, trace: AdvancedTrace) -> None:
    """Add an interval for each operation on a GPU and each range of a proxy, on a row for each lane of a process."""
    columns, texts = reader.columns(NVTX), reader.once(read_nvtx_events).texts
    kinds = (~trace.is_proxy, types.NCCL_CHANNEL, "NCCL GPU"), (trace.is_proxy, types.NCCL_PROXY, "NCCL proxy")
    for chosen, event_type, title in kinds:
        rows = trace.elsewhere[chosen]
        if not rows.size:
            continue
        process, begin, end = get_process(columns["globalTid"][rows]), columns["start"][rows], columns["end"][rows]
        end = np.where(end == NULL, NO_END, end)
        lane = assign_lanes(process, begin, end)
        index, keys = find_distinct_rows(process, lane)
        parts = [
            NodePart(f"{title} of process {key & PID_MASK}", (key,), number, f" lane {number + 1}", is_local=True)
            for key, number in keys
        ]
        value = texts.name_ids(reader.labels, event_type.names, rows)
        handle = reader.labels.handle(event_type)
        result.read += rows.size
        result.add_intervals(reader.places.node_parts(parts)[index], begin, end, [Pair(handle, value)], [handle])
