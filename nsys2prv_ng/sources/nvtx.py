"""NVTX ranges and marks of all domains, with categories.

Push/pop ranges nest on their thread. Start/end ranges need not, so they have lanes: types of their own, of which a
range takes the first that is free on its thread. PyTorch writes a number into each text; it is cut off and given as an
event.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.paraver.records import Pair, events, intervals
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import PID_MASK, process_of
from nsys2prv_ng.sources.base import BoolArray, IntArray, Reading, Result, Source, Unended, unsound_times
from nsys2prv_ng.sources.lanes import crossing, free_lanes
from nsys2prv_ng.sources.nvtx_names import split_numbers

NVTX = "NVTX_EVENTS"
TABLE = Table(
    NVTX,
    ("start", "eventType"),
    {"end": NULL, "globalTid": NULL, "endGlobalTid": NULL, "textId": NULL, "domainId": 0, "category": NULL},
    text=("text",),
)

# ENUM_NSYS_EVENT_TYPE: NVTX's own events and those of nvtxt. The rest of the table names things and happens at no time.
_PUSH_POP = (59, 70)
_START_END = (60, 71)
_MARK = (34, 65)
_CATEGORY_NAME = (33, 64)
_DOMAIN_CREATE = 75
_NAMING = (*_CATEGORY_NAME, 39, 72, 73, 74, _DOMAIN_CREATE, 76, 97, 98, 99)

_FOREVER = np.iinfo(np.int64).max


def read(reading: Reading) -> Result:
    """Ranges and marks of each domain; what has no end is closed when the trace ends."""
    columns = reading.columns(NVTX)
    kind = columns["eventType"]
    is_event = ~np.isin(kind, _NAMING)
    result = Result(read=int(is_event.sum()))
    if not result.read:
        return result
    texts = _Texts(reading, columns)
    rows = _sound(result, columns, is_event)
    process = process_of(columns["globalTid"])
    domains = _domain_names(reading, columns, texts, rows)
    categories = _category_names(columns, texts)
    pair_index, pairs = pd.MultiIndex.from_arrays([process[rows], columns["domainId"][rows]]).factorize()
    names = [domains[int(p), int(d)] for p, d in pairs]
    for domain in sorted(set(names)):
        of_domain = np.array([name == domain for name in names], np.bool_)[pair_index]
        _Domain(reading, result, columns, texts, categories, domain).add(rows[of_domain])
    return result


def _sound(result: Result, columns: Columns, is_event: BoolArray) -> IntArray:
    """Rows of events that can be shown; the others are counted as dropped."""
    kind, begin, end = columns["eventType"], columns["start"], columns["end"]
    no_thread = is_event & (columns["globalTid"] == NULL)
    unknown = is_event & ~no_thread & ~np.isin(kind, (*_PUSH_POP, *_START_END, *_MARK))
    result.drop("no thread", int(no_thread.sum()))
    for value in np.unique(kind[unknown]):
        result.drop(f"unknown event type {value}", int((unknown & (kind == value)).sum()))
    left = is_event & ~no_thread & ~unknown
    lasts = left & ~np.isin(kind, _MARK) & (end != NULL)
    for reason, mask in unsound_times(begin, np.where(lasts, end, np.maximum(begin, 1))).items():
        result.drop(reason, int((left & mask).sum()))
        left &= ~mask
    return np.flatnonzero(left)


class _Texts:
    """Texts of the rows: name without its number, number, by the index of the row's distinct text."""

    def __init__(self, reading: Reading, columns: Columns) -> None:
        inline = columns.texts["text"].combine_chunks().dictionary_encode()
        if isinstance(inline, pa.ChunkedArray):
            inline = inline.combine_chunks()
        codes = inline.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        by_id, registered = reading.names(columns["textId"])
        self.original = pa.concat_arrays([inline.dictionary.cast(pa.string()), pa.array(registered, pa.string())])
        self.index = np.where(codes >= 0, codes, len(inline.dictionary) + by_id)
        names, self.number, self.has_number = split_numbers(self.original)
        encoded = names.dictionary_encode()
        self.names: list[str] = encoded.dictionary.to_pylist()
        self.name_index = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def name_ids(self, labels: Labels, space: str, rows: IntArray) -> IntArray:
        """Ids of the rows' names; only names that occur in them are registered."""
        of_rows = self.name_index[self.index[rows]]
        used, position = np.unique(of_rows, return_inverse=True)
        return labels.name_ids(space, [self.names[i] for i in used])[position]

    def text(self, row: int) -> str:
        """The original text of one row."""
        return str(self.original[int(self.index[row])].as_py() or "")


def _domain_names(reading: Reading, columns: Columns, texts: _Texts, rows: IntArray) -> dict[tuple[int, int], str]:
    """Name of each (process, domain id): ids are per process, the default domain has none and is ''."""
    process, domain = process_of(columns["globalTid"]), columns["domainId"]
    created = np.flatnonzero(columns["eventType"] == _DOMAIN_CREATE)
    names = {(int(process[row]), int(domain[row])): texts.text(row) for row in created}
    codes, pairs = pd.MultiIndex.from_arrays([process[rows], domain[rows]]).factorize()
    for code, key in enumerate(pairs):
        known = (int(key[0]), int(key[1]))
        if known[1] == 0:
            names[known] = ""
        elif not names.get(known):
            # A capture that began after the domain was made lacks its name; NCCL's is known by its calls.
            used = np.unique(texts.name_index[texts.index[rows[codes == code]]])
            is_nccl = all(texts.names[i].startswith("nccl") for i in used)
            names[known] = "NCCL" if is_nccl else f"domain {known[1]}"
    return names


def _category_names(columns: Columns, texts: _Texts) -> dict[tuple[int, int, int], str]:
    """Name of each (process, domain id, category)."""
    process, domain, category = process_of(columns["globalTid"]), columns["domainId"], columns["category"]
    rows = np.flatnonzero(np.isin(columns["eventType"], _CATEGORY_NAME))
    return {(int(process[row]), int(domain[row]), int(category[row])): texts.text(row) for row in rows}


class _Domain:
    """The events of one domain in one report."""

    def __init__(
        self,
        reading: Reading,
        result: Result,
        columns: Columns,
        texts: _Texts,
        categories: dict[tuple[int, int, int], str],
        domain: str,
    ) -> None:
        self.labels, self.places = reading.labels, reading.places
        self.result, self.columns, self.texts, self.domain = result, columns, texts, domain
        self.categories = categories

    def add(self, rows: IntArray) -> None:
        """Records of the domain's rows, which are events with a thread and sound times."""
        kind = self.columns["eventType"][rows]
        self._push_pop(rows[np.isin(kind, _PUSH_POP)])
        self._start_end(rows[np.isin(kind, _START_END)])
        marks = rows[np.isin(kind, _MARK)]
        if marks.size:
            pairs = [self._name(types.nvtx_mark(self.domain), marks), *self._attributes(marks)]
            self.result.records.append(events(self._place(marks), self.columns["start"][marks], pairs))

    def _push_pop(self, rows: IntArray) -> None:
        crosses = crossing(self.columns["globalTid"][rows], self.columns["start"][rows], self._end(rows))
        self.result.drop("crosses another of its thread and domain", int(crosses.sum()))
        self._ranges(rows[~crosses], types.nvtx_range(self.domain))

    def _start_end(self, rows: IntArray) -> None:
        lanes = free_lanes(self.columns["globalTid"][rows], self.columns["start"][rows], self._end(rows))
        beyond = lanes >= types.NVTX_LANES
        self.result.drop(f"more than {types.NVTX_LANES} start/end ranges open on its thread", int(beyond.sum()))
        for lane in np.unique(lanes[~beyond]):
            self._ranges(rows[lanes == lane], types.nvtx_lane(self.domain, int(lane)))

    def _ranges(self, rows: IntArray, event_type: types.EventType) -> None:
        """Intervals of rows that nest. Both ends are on the thread that began the range."""
        open_ended = self.columns["end"][rows] == NULL
        for part in (rows[~open_ended], rows[open_ended]):
            if not part.size:
                continue
            pairs = [self._name(event_type, part), *self._attributes(part)]
            place, begin = self._place(part), self.columns["start"][part]
            closing = [self.labels.handle(event_type)]
            if self.columns["end"][part[0]] != NULL:
                self.result.records.append(intervals(place, begin, self.columns["end"][part], pairs, closing))
            else:
                self.result.closed += part.size
                self.result.unended.append(Unended(place, begin, pairs, closing))

    def _name(self, event_type: types.EventType, rows: IntArray) -> Pair:
        return Pair(self.labels.handle(event_type), self.texts.name_ids(self.labels, event_type.names, rows))

    def _place(self, rows: IntArray) -> IntArray:
        return self.places.threads(self.columns["globalTid"][rows], application=self.domain == "NCCL")

    def _end(self, rows: IntArray) -> IntArray:
        end = self.columns["end"][rows]
        return np.where(end == NULL, _FOREVER, end)

    def _attributes(self, rows: IntArray) -> list[Pair]:
        """Number, category and ending thread, where a row has them."""
        pairs = []
        index = self.texts.index[rows]
        has_number = self.texts.has_number[index]
        if has_number.any():
            handle = self.labels.handle(types.nvtx_number(self.domain))
            pairs.append(Pair(handle, self.texts.number[index], has_number))
        category = self.columns["category"][rows]
        has_category = (category != NULL) & (category != 0)  # NVTX: 0 is no category
        if has_category.any():
            event_type = types.nvtx_category(self.domain)
            ids = self._category_ids(rows, category, event_type.names)
            pairs.append(Pair(self.labels.handle(event_type), ids, has_category))
        tid, end_tid = self.columns["globalTid"][rows], self.columns["endGlobalTid"][rows]
        elsewhere = (end_tid != NULL) & (end_tid != tid)
        if elsewhere.any():
            pairs.append(Pair(self.labels.handle(types.nvtx_end_thread(self.domain)), end_tid & PID_MASK, elsewhere))
        return pairs

    def _category_ids(self, rows: IntArray, category: IntArray, space: str) -> IntArray:
        process, domain = process_of(self.columns["globalTid"][rows]), self.columns["domainId"][rows]
        codes, distinct = pd.MultiIndex.from_arrays([process, domain, category]).factorize()
        names = [self.categories.get((int(p), int(d), int(c)), f"category {c}") for p, d, c in distinct]
        return self.labels.name_ids(space, names)[codes]


SOURCE = Source("nvtx", "NVTX ranges and marks", (TABLE,), read)
