"""Reads NVTX ranges and marks of all domains, with categories and payloads, and projects ranges to streams.

Push/pop ranges nest on their thread. Start/end ranges may not, so they have lanes: each lane is an event type, and a
range takes the first lane that is free on its thread. PyTorch writes a number into each text; the number is cut off and
becomes an event.

On a stream, a range lasts from the first to the last operation that it launched there. An operation belongs to the
ranges that were open on the thread of its call when the call started (the definition of NVIDIA's nvtx_gpu_proj_trace).
So the kernels of PyTorch's autograd threads belong to ranges on these threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import combine_columns, encode_rows, find_distinct, find_distinct_rows, sort_nested
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.intervals.nesting import find_innermost, mark_crossing
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.records.columns import Pair, make_events, make_intervals
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.cuda import device_operations as gpu
from nsys2prv_ng.sources.cuda.stream_operations import LAUNCH_TABLES
from nsys2prv_ng.sources.nvtx import events as nvtx_events
from nsys2prv_ng.sources.nvtx.events import NVTX, PUSH_POP, NvtxEvents, read_sequence_numbers
from nsys2prv_ng.sources.nvtx.flops import count_flops
from nsys2prv_ng.sources.nvtx.python_samples import PYTHON_DOMAINS, read_functions
from nsys2prv_ng.sources.shared import reasons, report_reader
from nsys2prv_ng.sources.shared.report_reader import ReportReader, make_name_pair, make_number_pair
from nsys2prv_ng.sources.shared.source import NO_END, EventRows, JoinInput, JoinResult, Result, Source
from nsys2prv_ng.text.names import match_patterns


def read(reader: ReportReader) -> Result:
    """Return the ranges and marks of each domain; a range without an end lasts until the trace ends."""
    if not reader.columns(NVTX).rows:
        return Result()
    events = reader.once(nvtx_events.read_nvtx_events)
    result = events.account.copy_records()
    for domain in events.domains:
        if domain in events.selected:
            _DomainWriter(reader, result, events, domain).write()
        else:
            result.drop(reasons.OTHER_DOMAIN, int((events.domain == events.domains.index(domain)).sum()))
    result.join_data = (reader.options.nvtx_domains, events.domains)
    if reader.options.nvtx_range:
        rows = events.find_matching(reader.options.nvtx_range)
        result.windows = np.stack([events.columns["start"][rows], events.ends[rows]], axis=1)
    return result


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Raise UsageError for a pattern that matches no domain in any report. Nothing is joined."""
    reports = [part.data for part in parts if part.data is not None]
    patterns = {pattern for selection, _ in reports for pattern in selection}
    domains = sorted({name or "default" for _, names in reports for name in names})
    for pattern in sorted(patterns):
        if not any(match_patterns(name, pattern) for name in domains):
            message = f"no domain has this name; the domains are {', '.join(domains)}"
            raise UsageError(message, parameter="nvtx_domain", value=pattern)
    return JoinResult()


class _DomainWriter:
    """Adds the events of one domain in one report to a result."""

    def __init__(self, reader: ReportReader, result: Result, events: NvtxEvents, domain: str) -> None:
        self.reader, self.labels = reader, reader.labels
        self.result, self.events, self.domain = result, events, domain
        self.columns, self.texts = events.columns, events.texts

    def write(self) -> None:
        """Add the domain's ranges and marks."""
        nesting, *lanes = self.events.find_nesting_sets(self.domain)
        push_pop = self.events.select_domain(self.domain, PUSH_POP)
        self.result.drop(reasons.OVERLAPS_RANGE, push_pop.size - nesting.size)
        self._write_ranges(nesting, families.make_nvtx_range(self.domain))
        if not self.domain:  # PyTorch's
            self._keep_sequence_numbers(nesting)
        self.result.drop(reasons.NO_RANGE_LANE, sum(rows.size for rows in lanes[families.NVTX_LANES :]))
        for lane, rows in enumerate(lanes[: families.NVTX_LANES]):
            self._write_ranges(rows, families.make_nvtx_lane(self.domain, lane))
        marks = self.events.select_domain(self.domain, nvtx_events.MARK)
        if marks.size:
            pairs = [self._make_name(families.make_nvtx_mark(self.domain), marks), *self._make_attributes(marks)]
            self.result.records.append(make_events(self._get_places(marks), self.columns["start"][marks], pairs))

    def _write_ranges(self, rows: IntArray, event_type: EventType) -> None:
        """Add intervals of rows that nest. A range ends on the thread that started it."""
        end = self.events.ends[rows]
        if not rows.size:
            return
        pairs = [self._make_name(event_type, rows), *self._make_attributes(rows)]
        closing = [self.labels.handle(event_type)]
        self.result.add_intervals(self._get_places(rows), self.columns["start"][rows], end, pairs, closing)
        # The program also did not close a range that has no end and ends with the range around it.
        self.result.closed += int(((self.columns["end"][rows] == NULL) & (end != NO_END)).sum())

    def _keep_sequence_numbers(self, rows: IntArray) -> None:
        """Keep place, start, end and number of the ranges with a sequence number: analyses link backward passes."""
        numbers = read_sequence_numbers(self.texts.original)
        rows = rows[numbers[self.texts.index[rows]] != NULL]
        if rows.size:
            limits = self.columns["start"][rows], self.events.ends[rows]
            self.result.side_columns = [self._get_places(rows), *limits, numbers[self.texts.index[rows]]]

    def _make_name(self, event_type: EventType, rows: IntArray) -> Pair:
        return Pair(self.labels.handle(event_type), self.texts.name_ids(self.labels, event_type.names, rows))

    def _get_places(self, rows: IntArray) -> IntArray:
        is_nccl = self.domain == families.NCCL_DOMAIN
        return self.reader.places.threads(self.columns["globalTid"][rows], application=is_nccl)

    def _make_attributes(self, rows: IntArray) -> list[Pair]:
        """Make pairs for the number, FLOPs, category, ending thread and payload of the rows that have them."""
        pairs = self.texts.make_number_pairs(self.labels, self.domain, rows)
        flops = self.reader.once(count_flops)[rows]
        if flops.any():
            pairs.append(Pair(self.labels.handle(families.make_nvtx_flops(self.domain)), flops, flops > 0))
        category = self.columns["category"][rows]
        has_category = (category != NULL) & (category != 0)  # NVTX: 0 is no category
        if has_category.any():
            process, domain = get_process(self.columns["globalTid"][rows]), self.columns["domainId"][rows]
            codes, distinct = find_distinct_rows(process, domain, category)
            names = [self.events.categories.get((p, d, c), f"category {c}") for p, d, c in distinct]
            event_type = families.make_nvtx_category(self.domain)
            pairs.append(make_name_pair(self.labels, event_type, codes, names, has_category))
        tid, end_tid = self.columns["globalTid"][rows], self.columns["endGlobalTid"][rows]
        elsewhere = (end_tid != NULL) & (end_tid != tid)
        if elsewhere.any():
            handle = self.labels.handle(families.make_nvtx_end_thread(self.domain))
            pairs.append(Pair(handle, end_tid & PID_MASK, elsewhere))
        return pairs + self._make_payloads(rows)

    def _make_payloads(self, rows: IntArray) -> list[Pair]:
        """Make pairs for payloads: integers as they are, reals with six decimals, JSON as a label (except NCCL's)."""
        pairs = []
        integer = np.full(rows.size, NULL, np.int64)
        for name in nvtx_events.INTEGER_PAYLOADS:
            integer = np.where(integer == NULL, self.columns[name][rows], integer)
        if (integer != NULL).any():
            pairs.append(make_number_pair(self.labels, families.make_nvtx_payload(self.domain), integer))
        real = np.full(rows.size, np.nan)
        for name in nvtx_events.REAL_PAYLOADS:
            real = np.where(np.isnan(real), self.columns.reals[name][rows], real)
        event_type = families.make_nvtx_real_payload(self.domain)
        scaled = real * 10.0**event_type.precision
        fits = np.abs(scaled) < 2.0**63  # false for NaN
        if fits.any():
            value = np.rint(np.where(fits, scaled, 0)).astype(np.int64)
            pairs.append(Pair(self.labels.handle(event_type), value, fits))
        if self.domain != families.NCCL_DOMAIN:  # the source `nccl` reads NCCL's JSON
            json = report_reader.read_texts(self.reader, self.columns, rows, "jsonText", "jsonTextId")
            if self.domain in PYTHON_DOMAINS:
                pairs += read_functions(self.reader, json, self.domain)
            elif json.null_count < len(json):
                index, texts = report_reader.encode_texts(json)
                event_type = families.make_nvtx_json_payload(self.domain)
                pairs.append(make_name_pair(self.labels, event_type, index, texts, index >= 0))
        return pairs


SOURCE = Source(
    source_names.NVTX,
    "NVTX ranges and marks",
    (nvtx_events.TABLE,),
    read,
    join,
    tuple[tuple[str, ...], list[str]],
    counted_tables=(EventRows(NVTX, "globalTid", application=False, no_task=("eventType", nvtx_events.NAMING)),),
    noun="ranges, marks, names",
    needed_by=("ranges",),
    load=LoadCost(events=3, pairs=3.5),
)


# ---- projections to streams ------------------------------------------------------------------------------------------


class LaunchedOperations(NamedTuple):
    """n operations with a recorded call: thread and start of the call; place, start and end of the operation (ns)."""

    global_tid: IntArray
    called: IntArray
    place: IntArray
    begin: IntArray
    end: IntArray


def read_on_gpu(reader: ReportReader) -> Result:
    """Return an interval for each range and stream."""
    result = Result()
    if not reader.columns(nvtx_events.NVTX).rows or not reader.columns(gpu.CALLS.name).rows:
        return result
    events, launched = reader.once(nvtx_events.read_nvtx_events), find_launched(reader)
    for domain in sorted(events.selected - {families.GIL_DOMAIN}):  # it launches nothing
        projections = [project(events, rows, launched) for rows in events.find_nesting_sets(domain)]
        _write_on_gpu(reader, result, events, domain, projections)
    return result


def find_launched(reader: ReportReader) -> LaunchedOperations:
    """Find the operations with a place and a recorded call."""
    recorded, operations = reader.once(gpu.read_recorded_calls), reader.once(gpu.locate)
    call, on_gpu = operations.call, operations.spread(dict.fromkeys(gpu.TABLES, 1)) > 0
    rows = np.flatnonzero((operations.place >= 0) & (call >= 0) & on_gpu)
    columns = (operations.place, operations.stack("start"), operations.stack("end"))
    caller = recorded.global_tid[call[rows]], recorded.begin[call[rows]]
    return LaunchedOperations(*caller, *(column[rows] for column in columns))


def project(events: NvtxEvents, rows: IntArray, launched: LaunchedOperations) -> IntArray:
    """Return the ranges `rows`, which nest on their threads, on each stream that they, or ranges within, used.

    The result is 4 x n: row of the range, place of the stream, start and end there (ns).
    """
    tid, begin = events.columns["globalTid"], events.columns["start"]
    rows = rows[sort_nested(tid[rows], begin[rows], events.ends[rows])]
    order = np.lexsort((launched.called, launched.global_tid))
    innermost, parent, depth = find_innermost(
        tid[rows], begin[rows], events.ends[rows], launched.global_tid[order], launched.called[order]
    )
    parts = np.stack([innermost, *(column[order] for column in (launched.place, launched.begin, launched.end))])
    parts = parts[:, innermost >= 0]
    # From the deepest ranges outwards, each range passes its limits to the range around it: one step for each operation
    # and level.
    levels = [parts[:, :0]]
    for level in range(int(depth.max(initial=0)), -1, -1):
        here = depth[parts[0]] == level
        limits = _find_limits(parts[:, here])
        levels.append(limits)
        outer = np.concatenate([parent[limits[:1]], limits[1:]])
        parts = np.concatenate([parts[:, ~here], outer[:, outer[0] >= 0]], axis=1)
    every = np.concatenate(levels, axis=1)
    every = every[:, np.lexsort((every[1], every[0]))]
    return np.concatenate([rows[every[:1]], every[1:]])


def _find_limits(parts: IntArray) -> IntArray:
    """Return range, place, first start and last end for each range and place among parts of ranges, 4 x n."""
    codes, first = encode_rows(parts[0], parts[1])
    limits = parts[:, first]
    np.minimum.at(limits[2], codes, parts[2])
    np.maximum.at(limits[3], codes, parts[3])
    return limits


def _write_on_gpu(
    reader: ReportReader, result: Result, events: NvtxEvents, domain: str, projected: list[IntArray]
) -> None:
    """Add intervals on lanes. Ranges of one host thread and set share a lane if they nest on the stream."""
    row, place, begin, end = np.concatenate(projected, axis=1)
    nesting_set = np.repeat(np.arange(len(projected)), [ranges.shape[1] for ranges in projected])
    result.read += row.size
    family, _ = find_distinct(combine_columns(nesting_set, events.columns["globalTid"][row]))
    lane = _number_lanes(place, family, _find_levels(place, family, begin, end))
    beyond = lane >= families.NVTX_GPU_LANES
    result.drop(reasons.NO_GPU_RANGE_LANE, int(beyond.sum()))
    labels = reader.labels
    for value in np.unique(lane[~beyond]):
        here = lane == value
        event_type = families.make_nvtx_on_gpu(domain, int(value))
        handle = labels.handle(event_type)
        name = Pair(handle, events.texts.name_ids(labels, event_type.names, row[here]))
        opening = [name, *events.texts.make_number_pairs(labels, domain, row[here])]
        result.records.append(make_intervals(place[here], begin[here], end[here], opening, [handle]))


def _find_levels(place: IntArray, family: IntArray, begin: IntArray, end: IntArray) -> IntArray:
    """Return the level of each interval. Intervals of one place, family and level nest; most are on level 0."""
    level = np.zeros(place.size, np.int64)
    group, _ = encode_rows(place, family)
    left = np.arange(place.size)
    while left.size:
        left = left[mark_crossing(group[left], begin[left], end[left])]
        level[left] += 1
    return level


def _number_lanes(place: IntArray, family: IntArray, level: IntArray) -> IntArray:
    """Return the dense number of each combination of family and level within its place."""
    index, kinds = find_distinct(combine_columns(place, family, level))
    kind_place = np.empty(kinds.size, np.int64)
    kind_place[index] = place
    lane = np.arange(kinds.size) - np.searchsorted(kind_place, kind_place)
    return lane[index]


ON_GPU = Source(
    source_names.NVTX_ON_GPU,
    "NVTX ranges on the streams that they launched work on",
    (nvtx_events.TABLE, *LAUNCH_TABLES),
    read_on_gpu,
    needed_tables=((nvtx_events.NVTX,), (gpu.CALLS.name,), gpu.TABLES),
)
