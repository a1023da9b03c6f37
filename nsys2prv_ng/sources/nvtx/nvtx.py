"""NVTX ranges and marks of all domains, with categories and payloads.

Push/pop ranges nest on their thread. Start/end ranges need not, so they have lanes: types of their own, of which a
range takes the first that is free on its thread. PyTorch writes a number into each text; it is cut off and given as an
event.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.intervals.lanes import assign_lanes, mark_crossing
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair, make_events
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.report.metadata import PID_MASK, get_process
from nsys2prv_ng.sources.nvtx import python_samples
from nsys2prv_ng.sources.nvtx.events import (
    INTEGER_PAYLOADS,
    MARK,
    NAMING,
    NVTX,
    PUSH_POP,
    REAL_PAYLOADS,
    START_END,
    TABLE,
    NvtxEvents,
    read_nvtx_events,
)
from nsys2prv_ng.sources.shared.patterns import match_patterns
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import NO_END, Result
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Source

_OWN_PAYLOADS = ("NCCL", python_samples.DOMAIN)
"""Domains whose JSON is no label: NCCL's has a source of its own, nsys's samples of Python are functions."""


def read(reader: ReportReader) -> Result:
    """Ranges and marks of each domain; what has no end is closed when the trace ends."""
    if not reader.columns(NVTX).rows:
        return Result()
    found = reader.once(read_nvtx_events)
    result = Result(read=found.read)
    for reason, count in found.dropped.items():
        result.drop(reason, count)
    for domain in found.domains:
        if domain in found.chosen:
            _Domain(reader, result, found, domain).add()
        else:
            result.drop("outside --nvtx-domain", int((found.domain == found.domains.index(domain)).sum()))
    result.shared = (reader.options.nvtx_domains, found.domains)
    if reader.options.nvtx_range:
        rows = found.matching(reader.options.nvtx_range)
        result.windows = np.stack([found.columns["start"][rows], found.end(rows)], axis=1)
    return result


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Nothing is joined, but only now is it known whether some pattern fits no domain of any report."""
    shared = [part.shared for part in parts if isinstance(part.shared, tuple)]
    patterns = {pattern for wanted, _ in shared for pattern in wanted}
    domains = sorted({name or "default" for _, found in shared for name in found})
    for pattern in sorted(patterns):
        if not any(match_patterns(name, pattern) for name in domains):
            raise UsageError(f"--nvtx-domain {pattern}: no domain has this name; there are {', '.join(domains)}")
    return JoinResult()


class _Domain:
    """The events of one domain in one report."""

    def __init__(
        self,
        reader: ReportReader,
        result: Result,
        found: NvtxEvents,
        domain: str,
    ) -> None:
        self.reader, self.labels, self.places = reader, reader.labels, reader.places
        self.result, self.found, self.domain = result, found, domain
        self.columns, self.texts = found.columns, found.texts

    def add(self) -> None:
        """Records of the domain's ranges and marks."""
        self._push_pop(self.found.select_domain(self.domain, PUSH_POP))
        self._start_end(self.found.select_domain(self.domain, START_END))
        marks = self.found.select_domain(self.domain, MARK)
        if marks.size:
            pairs = [self._name(families.nvtx_mark(self.domain), marks), *self._attributes(marks)]
            self.result.records.append(make_events(self._place(marks), self.columns["start"][marks], pairs))

    def _push_pop(self, rows: IntArray) -> None:
        crosses = mark_crossing(self.columns["globalTid"][rows], self.columns["start"][rows], self.found.end(rows))
        self.result.drop("partly overlaps another range of its thread and domain", int(crosses.sum()))
        self._ranges(rows[~crosses], families.nvtx_range(self.domain))

    def _start_end(self, rows: IntArray) -> None:
        lanes = assign_lanes(self.columns["globalTid"][rows], self.columns["start"][rows], self.found.end(rows))
        beyond = lanes >= families.NVTX_LANES
        self.result.drop(f"more than {families.NVTX_LANES} start/end ranges open on its thread", int(beyond.sum()))
        for lane in np.unique(lanes[~beyond]):
            self._ranges(rows[lanes == lane], families.nvtx_lane(self.domain, int(lane)))

    def _ranges(self, rows: IntArray, event_type: EventType) -> None:
        """Intervals of rows that nest. Both ends are on the thread that began the range."""
        end = self.found.end(rows)
        if not rows.size:
            return
        pairs = [self._name(event_type, rows), *self._attributes(rows)]
        closing = [self.labels.handle(event_type)]
        self.result.add_intervals(self._place(rows), self.columns["start"][rows], end, pairs, closing)
        # One without an end that ends with the range around it was not closed by the program either.
        self.result.closed += int(((self.columns["end"][rows] == NULL) & (end != NO_END)).sum())

    def _name(self, event_type: EventType, rows: IntArray) -> Pair:
        return Pair(self.labels.handle(event_type), self.texts.name_ids(self.labels, event_type.names, rows))

    def _place(self, rows: IntArray) -> IntArray:
        return self.places.threads(self.columns["globalTid"][rows], application=self.domain == "NCCL")

    def _attributes(self, rows: IntArray) -> list[Pair]:
        """Number, category, ending thread and payload, where a row has them."""
        pairs = []
        index = self.texts.index[rows]
        has_number = self.texts.has_number[index]
        if has_number.any():
            handle = self.labels.handle(families.nvtx_number(self.domain))
            pairs.append(Pair(handle, self.texts.number[index], has_number))
        category = self.columns["category"][rows]
        has_category = (category != NULL) & (category != 0)  # NVTX: 0 is no category
        if has_category.any():
            event_type = families.nvtx_category(self.domain)
            ids = self._category_ids(rows, category, event_type.names)
            pairs.append(Pair(self.labels.handle(event_type), ids, has_category))
        tid, end_tid = self.columns["globalTid"][rows], self.columns["endGlobalTid"][rows]
        elsewhere = (end_tid != NULL) & (end_tid != tid)
        if elsewhere.any():
            pairs.append(Pair(self.labels.handle(families.nvtx_end_thread(self.domain)), end_tid & PID_MASK, elsewhere))
        return pairs + self._payloads(rows)

    def _payloads(self, rows: IntArray) -> list[Pair]:
        """Payloads: integers as they are, reals with six decimals, JSON as a label (NCCL's has its own source)."""
        pairs = []
        integer = np.full(rows.size, NULL, np.int64)
        for name in INTEGER_PAYLOADS:
            integer = np.where(integer == NULL, self.columns[name][rows], integer)
        if (integer != NULL).any():
            pairs.append(Pair(self.labels.handle(families.nvtx_payload(self.domain)), integer, integer != NULL))
        real = np.full(rows.size, np.nan)
        for name in REAL_PAYLOADS:
            real = np.where(np.isnan(real), self.columns.reals[name][rows], real)
        event_type = families.nvtx_real_payload(self.domain)
        scaled = real * 10.0**event_type.precision
        fits = np.abs(scaled) < 2.0**63  # false for what is no number
        if fits.any():
            value = np.rint(np.where(fits, scaled, 0)).astype(np.int64)
            pairs.append(Pair(self.labels.handle(event_type), value, fits))
        if self.domain == python_samples.DOMAIN:
            pairs += python_samples.read_functions(self.reader, self._json_texts(rows))
        elif self.domain not in _OWN_PAYLOADS:
            pairs += self._json(rows)
        return pairs

    def _json_texts(self, rows: IntArray) -> pa.Array:
        text = self.columns.texts["jsonText"].combine_chunks().take(pa.array(rows))
        by_id = self.columns["jsonTextId"][rows]
        if (by_id != NULL).any():
            ids, position = np.unique(by_id, return_inverse=True)
            names = [None if i == NULL else name for i, name in zip(ids, self.reader.strings(ids), strict=True)]
            text = pc.coalesce(text, pa.array(names, pa.string()).take(pa.array(position)))
        return text

    def _json(self, rows: IntArray) -> list[Pair]:
        text = self._json_texts(rows)
        if text.null_count == rows.size:
            return []
        encoded = text.dictionary_encode()
        event_type = families.nvtx_json_payload(self.domain)
        ids = self.labels.name_ids(event_type.names, encoded.dictionary.to_pylist())
        index = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        present = np.asarray(text.is_valid())
        return [Pair(self.labels.handle(event_type), ids[index], present)]

    def _category_ids(self, rows: IntArray, category: IntArray, space: str) -> IntArray:
        process, domain = get_process(self.columns["globalTid"][rows]), self.columns["domainId"][rows]
        codes, distinct = find_distinct_rows(process, domain, category)
        names = [self.found.categories.get((p, d, c), f"category {c}") for p, d, c in distinct]
        return self.labels.name_ids(space, names)[codes]


SOURCE = Source(
    "nvtx",
    "NVTX ranges and marks",
    (TABLE,),
    read,
    join,
    rows=(EventRows(NVTX, "globalTid", application=False, no_task=("eventType", NAMING)),),
    row="ranges, marks, names",
)
