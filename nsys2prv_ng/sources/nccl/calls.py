"""Reads the NCCL calls of a report: ranges of the NVTX domain NCCL, with their payloads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng.arrays.groups import count_earlier
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.lanes import mark_crossing
from nsys2prv_ng.paraver.families import NCCL_DOMAIN
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.report.nvtx_payload import SCHEMAS
from nsys2prv_ng.report.schema_version import JSON_OPTION, choose_payload_option
from nsys2prv_ng.sources.nccl.advanced_trace import AdvancedTrace, find_advanced_trace
from nsys2prv_ng.sources.nccl.payload import Payloads, read_payloads
from nsys2prv_ng.sources.nvtx.events import NVTX, PUSH_POP, START_END, read_created_domains, read_nvtx_events
from nsys2prv_ng.sources.shared.nccl_ranges import (
    ADVANCED_CALLS,
    API_GROUP,
    CALLS,
    COLLECTIVES,
    RECEIVE,
    SEND,
    is_nccl_domain,
)
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, OVERLAPS_CALL, PAYLOAD_NOT_EXPORTED, PAYLOAD_UNKNOWN, Reason
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END, Result
from nsys2prv_ng.sources.shared.sound_times import find_unsound_times

COMMUNICATING = re.compile("|".join(sorted(CALLS)))

COLLECTIVE, SENDING, RECEIVING = range(3)
"""Direction of a call. One-sided calls, which name a peer, count as sending."""


class NcclRanges(NamedTuple):
    """The ranges of n calls, which nest on each thread. Sorted by thread and start, outer ranges first. Times in ns."""

    global_tid: IntArray
    begin: IntArray
    end: IntArray
    name: IntArray
    """Index into the names of `NcclCalls`."""


@dataclass(frozen=True)
class NcclCalls:
    """The NCCL calls of a report, including calls that only start or end a group."""

    ranges: NcclRanges
    names: list[str]
    group: IntArray
    """Number of the group that launches each call's kernels. A call outside groups forms a group alone."""
    shown: IntArray
    """Indices of the calls whose payload is understood."""
    payload: Payloads
    """Payloads of the shown calls."""
    advanced: AdvancedTrace | None = None
    """The advanced trace, if the report has one that is read."""


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
    counted = payload.given | np.array([text in CALLS for text in names], np.bool_)[name]
    result.read += int(counted.sum())

    tid, begin, end = (columns[column][rows] for column in ("globalTid", "start", "end"))
    known_end = np.where(end == NULL, np.maximum(begin, 1), end)
    end = np.where(end == NULL, NO_END, end)
    sound = result.drop_rows({NO_THREAD: tid == NULL, **find_unsound_times(begin, known_end)}, counted)
    crosses = mark_crossing(tid[sound], begin[sound], end[sound])
    kept = sound[result.drop_rows({OVERLAPS_CALL: crosses}, counted[sound])]
    understood = payload.mark_understood()
    without = PAYLOAD_NOT_EXPORTED[JSON_OPTION] if advanced is not None else _explain_no_payload(reader)
    lacking = {without: ~payload.given[kept], PAYLOAD_UNKNOWN: ~understood[kept]}
    result.drop_rows(lacking, counted[kept])

    kept = kept[np.lexsort((-end[kept], begin[kept], tid[kept]))]
    ranges = NcclRanges(tid[kept], begin[kept], end[kept], name[kept])
    shown = np.flatnonzero(understood[kept])
    if advanced is None:
        step = np.array([{"ncclGroupStart": 1, "ncclGroupEnd": -1}.get(text, 0) for text in names], np.int64)
        group = _number_groups(ranges.global_tid, step[ranges.name])
    else:
        group = _join_groups(advanced, payload, get_process(ranges.global_tid), kept)
    shown_payload = payload.columns.iloc[kept[shown]].reset_index(drop=True)
    return NcclCalls(
        ranges,
        names,
        group,
        shown,
        payload._replace(columns=shown_payload, given=payload.given[kept[shown]]),
        advanced,
    )


def _explain_no_payload(reader: ReportReader) -> Reason:
    """Return why calls have no payload. If the report contains the layout of payloads, the export omits them."""
    option = choose_payload_option(reader.metadata.schema_version) if reader.has(SCHEMAS.name) else None
    return PAYLOAD_NOT_EXPORTED[option or ""]


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
        of_nccl[code] = is_nccl_domain({texts.names[i] or "" for i in np.unique(name[codes == code]).tolist()})
    within = np.flatnonzero(of_nccl[codes])
    advanced = find_advanced_trace(reader, rows[within], name[within], texts.names)
    if advanced is None or is_call.any():
        if advanced is not None:
            _warn(reader, ["it has NCCL's own ranges too, and only these are read"])
        return rows[is_call], name[is_call], texts.names, None
    _warn(reader, advanced.surprises)
    named_calls = [ADVANCED_CALLS.get(text, text) for text in texts.names]
    chosen = np.concatenate([advanced.calls, advanced.structure])
    names = [*named_calls, *texts.names]
    index = texts.name_index[texts.index[chosen]]
    index[advanced.calls.size :] += len(named_calls)
    return chosen, index, names, advanced


def count_advanced_calls(reader: ReportReader) -> int:
    """Return the number of calls in the advanced trace of a report; 0 without one."""
    if not reader.strings.find_matching_ids(API_GROUP.__eq__):  # spares most reports the reading of their ranges
        return 0
    advanced = _find_rows(reader)[3]
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
    size, own = advanced.group.size, payload.columns["api_group"].to_numpy(np.int64)
    calls = advanced.calls.size
    around = np.where(advanced.group >= 0, advanced.group + calls, np.arange(size))
    number = np.where(own == NULL, own[around], own)
    has_number = number != NULL
    key = np.where(has_number, number, around)
    codes, _ = encode_rows(has_number[kept].astype(np.int64), np.where(has_number[kept], process, 0), key[kept])
    return codes


def make_table(reader: ReportReader, calls: NcclCalls) -> pd.DataFrame:
    """Make a table of the shown calls: who made them, when, and what they do.

    NULL stands for a missing field of a payload, -1 for no communicator. `direction` is one of the constants above.
    `sequence` numbers the calls of a process with the same communicator, direction and peer from 1, in the order of
    their starts. It is 0 for calls that are neither collectives nor messages. Times in ns.
    """
    ranges, payload = NcclRanges(*(column[calls.shown] for column in calls.ranges)), calls.payload.columns
    names = np.array(calls.names, dtype=object)[ranges.name]
    is_collective = np.array([name in COLLECTIVES for name in calls.names], np.bool_)[ranges.name]
    is_message = (names == SEND) | (names == RECEIVE)
    has_peer = is_message | (payload["peer"].to_numpy() != NULL)
    table = payload.assign(
        place=reader.places.threads(ranges.global_tid, application=True),
        process=get_process(ranges.global_tid),
        begin=ranges.begin,
        end=ranges.end,
        name=ranges.name,
        group=calls.group[calls.shown],
        is_message=is_message,
        direction=np.where(has_peer, np.where(names == RECEIVE, RECEIVING, SENDING), COLLECTIVE),
    )
    numbered = np.flatnonzero((is_collective | is_message) & (table["communicator"].to_numpy() >= 0))
    numbered = numbered[np.argsort(ranges.begin[numbered], kind="stable")]
    sequence = np.zeros(is_message.size, np.int64)
    key = (table[name].to_numpy(np.int64)[numbered] for name in ("process", "communicator", "direction", "peer"))
    sequence[numbered] = count_earlier(encode_rows(*key)[0]) + 1
    table["sequence"] = sequence
    return table


def _number_groups(tid: IntArray, step: IntArray) -> IntArray:
    """Number groups. They nest: a group lasts from the outermost start (step 1) of a thread to its end (step -1)."""
    total = pd.Series(step).groupby(tid).cumsum()
    depth = total - total.groupby(tid).cummin().clip(upper=0)  # an end without its start changes nothing
    depth_before = depth.groupby(tid).shift(fill_value=0)
    return (depth_before == 0).cumsum().to_numpy(np.int64) - 1


def find_sizes(table: pd.DataFrame, communicators: int) -> list[int]:
    """Return the number of ranks of each communicator, if any call records it, else 0."""
    sizes = np.zeros(communicators, np.int64)
    for column in ("ranks", "devices"):
        communicator, size = table["communicator"].to_numpy(np.int64), table[column].to_numpy(np.int64)
        known = np.flatnonzero((communicator >= 0) & (size != NULL))
        np.maximum.at(sizes, communicator[known], size[known])
    return [int(size) for size in sizes]
