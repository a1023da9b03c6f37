"""Reads the NCCL calls of a report: ranges of the NVTX domain NCCL with their payloads, or NVIDIA's advanced trace.

A call of the program, what the runtime schedules, and an operation on a GPU may have the same name. The user guide of
Nsight Systems documents how ranges nest on host threads, which tells them apart: calls are within an `API Group`, but
not within the `GroupLaunch`, `GroupRuntime` or `KernelLaunch` that it contains. What is left is on GPUs, or in the
proxy if its thread has the name of a proxy's thread. No report with such a trace was at hand: whatever differs from the
documentation is a warning, and is not read.

Channels run at the same time, and so do the steps of a proxy, so their ranges overlap on the thread that reports them.
The documentation does not name the field with the channel, so a row is a lane: each range takes the first free one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.row_keys import count_earlier, encode_rows, find_distinct_rows, find_starts, sort_nested
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick, put
from nsys2prv_ng.intervals.nesting import assign_lanes, find_innermost, mark_crossing
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.families import NCCL_DOMAIN
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.export_settings import JSON_OPTION, choose_payload_option
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.report.nvtx_payload import SCHEMAS
from nsys2prv_ng.sources.nccl.payload import PayloadColumns, Payloads, read_payloads
from nsys2prv_ng.sources.nvtx.events import NVTX, PUSH_POP, START_END, read_created_domains, read_nvtx_events
from nsys2prv_ng.sources.shared import nccl_names as range_names
from nsys2prv_ng.sources.shared import reasons
from nsys2prv_ng.sources.shared.nccl_names import ADVANCED_CALLS, API_GROUP, DOCUMENTED, PROXY_THREAD, STRUCTURE
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import NO_END, Result
from nsys2prv_ng.text.names import quote_name
from nsys2prv_ng.value_class import ValueClass

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


COMMUNICATING = re.compile("|".join(sorted(range_names.CALLS)))

COLLECTIVE, SENDING, RECEIVING = range(3)
"""Direction of a call. One-sided calls, which name a peer, count as sending."""


class NcclRanges(NamedTuple):
    """The ranges of n calls, which nest on each thread. Sorted by thread and start, outer ranges first. Times in ns.

    `name`: index into the names of `NcclCalls`.
    """

    global_tid: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray


class NcclCalls(ValueClass):
    """The NCCL calls of a report, including calls that only start or end a group.

    `group`: number of the group that launches each call's kernels. A call outside groups forms a group alone. `shown`:
    indices of the calls whose payload is understood. `payload`: payloads of the shown calls. `advanced`: the advanced
    trace, if the report has one that is read.
    """

    ranges: NcclRanges
    names: list[str]
    group: IntArray
    shown: IntArray
    payload: Payloads
    advanced: AdvancedTrace | None = None


class CallTable(PayloadColumns, kw_only=True):
    """The n shown calls of a report: who made them, when, and what they do. Times in ns.

    `place`: place of the thread. `name`: index into the names of `NcclCalls`. `is_message`: whether the call is a send
    or a receive of two ranks. `direction`: one of the constants above. `sequence`: numbers the calls of a process with
    the same communicator, direction and peer from 1, in the order of their starts. 0 for calls that are neither
    collectives nor messages.
    """

    place: IntArray
    process: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray
    group: IntArray
    is_message: BoolArray
    direction: IntArray
    sequence: IntArray


def read_calls(reader: ReportReader, result: Result) -> NcclCalls:
    """Return the NCCL calls that have a thread and sound times and that nest.

    `result` counts the calls that move data or have a payload as read. If such a call is not shown, it counts as
    dropped.
    """
    columns = reader.columns(NVTX)
    rows, name, names, advanced = _find_rows(reader)
    payload = read_payloads(reader, rows)
    if advanced is not None:
        payload = payload.hide(np.arange(rows.size) >= advanced.calls.size)  # of what is no call
    counted = payload.given | np.array([text in range_names.CALLS for text in names], np.bool_)[name]
    result.read += int(counted.sum())

    tid, begin, end = (columns[column][rows] for column in ("globalTid", "start", "end"))
    known_end = np.where(end == NULL, np.maximum(begin, 1), end)
    end = np.where(end == NULL, NO_END, end)
    sound = result.drop_rows({reasons.NO_THREAD: tid == NULL, **reasons.find_unsound_times(begin, known_end)}, counted)
    crosses = mark_crossing(tid[sound], begin[sound], end[sound])
    kept = sound[result.drop_rows({reasons.OVERLAPS_CALL: crosses}, counted[sound])]
    understood = payload.mark_understood()
    # If the report contains the layout of payloads, the export omits them.
    option = choose_payload_option(reader.metadata.schema_version) if reader.has(SCHEMAS.name) else None
    without = reasons.PAYLOAD_NOT_EXPORTED[JSON_OPTION if advanced is not None else option or ""]
    lacking = {without: ~payload.given[kept], reasons.PAYLOAD_UNKNOWN: ~understood[kept]}
    result.drop_rows(lacking, counted[kept])

    kept = kept[sort_nested(tid[kept], begin[kept], end[kept])]
    ranges = NcclRanges(tid[kept], begin[kept], end[kept], name[kept])
    shown = np.flatnonzero(understood[kept])
    if advanced is None:
        group = number_groups(ranges.global_tid, names, ranges.name)
    else:
        group = _join_groups(advanced, payload, get_process(ranges.global_tid), kept)
    return NcclCalls(ranges, names, group, shown, payload.take(kept[shown]), advanced)


def _find_rows(reader: ReportReader) -> tuple[IntArray, IntArray, list[str], AdvancedTrace | None]:
    """Return (rows of NCCL's calls, index of each into the names, names, the advanced trace if it is the only one).

    NCCL's domain is found by its name. A capture that started after the domain was created lacks the name. Then ranges
    in unnamed domains belong to NCCL if their names start with nccl, or if all are of the advanced trace. Rows of an
    advanced trace are the calls, with NCCL's names, and then the ranges around them.
    """
    columns, texts = reader.columns(NVTX), reader.once(read_nvtx_events).texts
    kind, domain, process = columns["eventType"], columns["domainId"], get_process(columns["globalTid"])
    domain_names = read_created_domains(columns, texts)
    rows = np.flatnonzero(np.isin(kind, (*PUSH_POP, *START_END)) & (domain != 0))
    codes, domains = find_distinct_rows(process[rows], domain[rows])
    name = texts.name_index[texts.index[rows]]
    named = np.array([domain_names.get(key) == NCCL_DOMAIN for key in domains], np.bool_)
    may_be = named | np.array([not domain_names.get(key) for key in domains], np.bool_)
    pushed = np.isin(kind[rows], PUSH_POP) & may_be[codes]
    is_call = np.array([(text or "").startswith("nccl") for text in texts.names], np.bool_)[name] & pushed
    of_nccl = named.copy()
    for code in np.flatnonzero(may_be & ~named).tolist():
        used = np.unique(name[codes == code]).tolist()
        of_nccl[code] = range_names.is_nccl_domain({texts.names[i] or "" for i in used})
    within = np.flatnonzero(of_nccl[codes])
    advanced = find_advanced_trace(reader, rows[within], name[within], texts.names)
    if advanced is None or is_call.any():
        if advanced is not None:
            _warn(reader, ["it has NCCL's own ranges too, and only these are read"])
        return rows[is_call], name[is_call], texts.names, None
    _warn(reader, advanced.surprises)
    named_calls = [range_names.ADVANCED_CALLS.get(text, text) for text in texts.names]
    chosen = np.concatenate([advanced.calls, advanced.structure])
    names = [*named_calls, *texts.names]
    index = texts.name_index[texts.index[chosen]]
    index[advanced.calls.size :] += len(named_calls)
    return chosen, index, names, advanced


def count_advanced_calls(reader: ReportReader) -> int:
    """Return the number of calls in the advanced trace of a report; 0 without one."""
    # This spares most reports the reading of their ranges.
    has_groups = reader.strings.find_matching_ids(range_names.API_GROUP.__eq__)
    advanced = _find_rows(reader)[3] if has_groups else None
    return 0 if advanced is None else advanced.calls.size


def _warn(reader: ReportReader, surprises: list[str]) -> None:
    """Add one warning if the advanced trace differs from its documentation."""
    if surprises:
        text = f"its advanced NCCL trace is not as documented: {'; '.join(surprises)}"
        reader.metadata.warnings.append(text)


def _join_groups(advanced: AdvancedTrace, payload: Payloads, process: IntArray, kept: IntArray) -> IntArray:
    """Return a number for the group of each kept range of an advanced trace.

    A group is what has the same `apiGroupId` in a process, also on other threads, or else the same range `API Group`.
    """
    size, recorded = advanced.group.size, payload.columns.api_group
    calls = advanced.calls.size
    around = np.where(advanced.group >= 0, advanced.group + calls, np.arange(size))
    number = np.where(recorded == NULL, recorded[around], recorded)
    has_number = number != NULL
    key = np.where(has_number, number, around)
    codes, _ = encode_rows(has_number[kept].astype(np.int64), np.where(has_number[kept], process, 0), key[kept])
    return codes


def make_table(reader: ReportReader, calls: NcclCalls) -> CallTable:
    """Make a table of the shown calls."""
    ranges, payload = NcclRanges(*(column[calls.shown] for column in calls.ranges)), calls.payload.columns
    is_collective, is_send, is_receive = (
        np.array([name in among for name in calls.names], np.bool_)[ranges.name]
        for among in (range_names.COLLECTIVES, (range_names.SEND,), (range_names.RECEIVE,))
    )
    is_message, process = is_send | is_receive, get_process(ranges.global_tid)
    has_peer = is_message | (payload.peer != NULL)
    direction = np.where(has_peer, np.where(is_receive, RECEIVING, SENDING), COLLECTIVE)
    numbered = np.flatnonzero((is_collective | is_message) & (payload.communicator >= 0))
    numbered = numbered[np.argsort(ranges.begin[numbered], kind="stable")]
    key = process, payload.communicator, direction, payload.peer
    sequence = put(count_earlier(*(column[numbered] for column in key)) + 1, numbered, process.size, 0)
    return CallTable(
        **vars(payload),
        place=reader.places.threads(ranges.global_tid, application=True),
        process=process,
        begin=ranges.begin,
        end=ranges.end,
        name=ranges.name,
        group=calls.group[calls.shown],
        is_message=is_message,
        direction=direction,
        sequence=sequence,
    )


def number_groups(tid: IntArray, names: Sequence[str], name: IntArray) -> IntArray:
    """Number the groups of n calls. They nest: a group lasts from the outermost start of a thread to its end.

    Calls of a thread follow each other. `name`: of each call, an index into the names.
    """
    step = np.array([{"ncclGroupStart": 1, "ncclGroupEnd": -1}.get(text, 0) for text in names], np.int64)[name]
    depth_before = np.zeros(step.size, np.int64)
    for first, after in pairwise([*find_starts(tid).tolist(), tid.size]):
        total = np.cumsum(step[first : after - 1])
        # An end without its start changes nothing.
        depth_before[first + 1 : after] = total - np.minimum(np.minimum.accumulate(total), 0)
    return np.cumsum(depth_before == 0) - 1


def find_sizes(table: CallTable, communicators: int) -> list[int]:
    """Return the number of ranks of each communicator, if any call records it, else 0."""
    sizes = np.zeros(communicators, np.int64)
    for column in (table.ranks, table.devices):
        known = (table.communicator >= 0) & (column != NULL)
        np.maximum.at(sizes, table.communicator[known], column[known])
    return [int(size) for size in sizes]
