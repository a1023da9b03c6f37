"""Reads the rows of NVTX_EVENTS that can be shown, with their texts, domains and categories."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import encode_rows, find_distinct_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray
from nsys2prv_ng.intervals.nesting import assign_lanes, clamp_to_parents, mark_crossing
from nsys2prv_ng.paraver.families import NCCL_DOMAIN, make_nvtx_number
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.report.metadata import get_process
from nsys2prv_ng.sources.mpi.nvtx_ranges import find_mpi_ranges
from nsys2prv_ng.sources.nvtx.names import split_numbers
from nsys2prv_ng.sources.shared.nccl_names import is_nccl_domain
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, Reason, find_unsound_times, name_unknown_event
from nsys2prv_ng.sources.shared.report_reader import ReportReader, encode_texts, register_used
from nsys2prv_ng.sources.shared.source import NO_END, Result
from nsys2prv_ng.text.names import match_patterns
from nsys2prv_ng.value_class import ValueClass

NVTX = "NVTX_EVENTS"
INTEGER_PAYLOADS = ("uint64Value", "int64Value", "uint32Value", "int32Value")
REAL_PAYLOADS = ("doubleValue", "floatValue")

_OPTIONAL = ("end", "globalTid", "endGlobalTid", "textId", "category", "jsonTextId")
TABLE = Table(
    NVTX,
    ("start", "eventType"),
    {**dict.fromkeys((*_OPTIONAL, *INTEGER_PAYLOADS), NULL), "domainId": 0},
    text=("text", "jsonText"),
    real=REAL_PAYLOADS,
)

# ENUM_NSYS_EVENT_TYPE: events of NVTX and of nvtxt. The other rows name things and have no time.
PUSH_POP = (59, 70)
START_END = (60, 71)
MARK = (34, 65)
_CATEGORY_NAME = (33, 64)
_DOMAIN_CREATE = 75
NAMING = (*_CATEGORY_NAME, 39, 72, 73, 74, _DOMAIN_CREATE, 76, 97, 98, 99)


class Texts:
    """The texts of the rows. A name is a text without its number.

    `index` is the distinct text of each row; `name_index`, `number` and `has_number` are by distinct text.
    """

    def __init__(self, reader: ReportReader, columns: Columns) -> None:
        inline = columns.texts["text"].combine_chunks().dictionary_encode()
        if isinstance(inline, pa.ChunkedArray):
            inline = inline.combine_chunks()
        codes = inline.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        by_id, registered = reader.names(columns["textId"])
        self.original = pa.concat_arrays([inline.dictionary.cast(pa.string()), pa.array(registered, pa.string())])
        self.index = np.where(codes >= 0, codes, len(inline.dictionary) + by_id)
        names, self.number, self.has_number = split_numbers(self.original)
        self.name_index, self.names = encode_texts(names)

    def name_ids(self, labels: Labels, space: str, rows: IntArray) -> IntArray:
        """Return the ids of the rows' names; only names that occur in these rows are registered."""
        return register_used(labels, space, self.names, self.name_index[self.index[rows]])

    def make_number_pairs(self, labels: Labels, domain: str, rows: IntArray) -> list[Pair]:
        """Make the pair for the rows of a domain with a number; none if no row has one."""
        text = self.index[rows]
        has_number = self.has_number[text]
        if not has_number.any():
            return []
        return [Pair(labels.handle(make_nvtx_number(domain)), self.number[text], has_number)]

    def get_text(self, row: int) -> str:
        """Return the original text of one row."""
        return str(self.original[int(self.index[row])].as_py() or "")


class NvtxEvents(ValueClass):
    """The NVTX events of a report.

    `account`: the number of events, shown or not, and of dropped ones. `rows`: the n rows of the table that can be
    shown. `domain`: index of the domain of each of them. `ends`: the end of every row of the table (ns): NO_END for a
    range without an end, unless a range around it ends. `domains`: names of the domains, sorted; the default domain has
    an empty one. `categories`: name of each (process, domain id, category). `selected`: names of the domains that the
    user selected.
    """

    columns: Columns
    texts: Texts
    account: Result
    rows: IntArray
    domain: IntArray
    ends: IntArray
    domains: list[str]
    categories: dict[tuple[int, ...], str]
    selected: frozenset[str]

    def find_matching(self, pattern: str) -> IntArray:
        """Return the rows of ranges whose whole text, as the program wrote it, matches a pattern with * and ?."""
        texts = self.texts.original.to_pylist()
        matches = np.array([match_patterns(str(text or ""), pattern) for text in texts], np.bool_)
        is_range = np.isin(self.columns["eventType"][self.rows], (*PUSH_POP, *START_END))
        return self.rows[is_range & matches[self.texts.index[self.rows]]]

    def select_domain(self, domain: str, kinds: tuple[int, ...]) -> IntArray:
        """Return the rows of a domain with some event types."""
        rows = self.rows[self.domain == self.domains.index(domain)]
        return rows[np.isin(self.columns["eventType"][rows], kinds)]

    def find_nesting_sets(self, domain: str) -> list[IntArray]:
        """Return the rows of a domain's ranges in sets that nest on each thread: push/pop, then start/end by lane.

        Push/pop ranges that cross another range are in no set.
        """
        tid, begin = self.columns["globalTid"], self.columns["start"]
        rows = self.select_domain(domain, PUSH_POP)
        sets = [rows[~mark_crossing(tid[rows], begin[rows], self.ends[rows])]]
        rows = self.select_domain(domain, START_END)
        lanes = assign_lanes(tid[rows], begin[rows], self.ends[rows])
        return sets + [rows[lanes == lane] for lane in np.unique(lanes)]


def read_nvtx_events(reader: ReportReader) -> NvtxEvents:
    """Read the NVTX events of a report. Call it through `ReportReader.once`."""
    columns = reader.columns(NVTX)
    texts = Texts(reader, columns)
    is_event = ~np.isin(columns["eventType"], NAMING)
    if source_names.MPI in reader.chosen:  # reports before nsys 2023.4 have the MPI calls in this table
        is_event[reader.once(find_mpi_ranges).rows] = False
    account = Result(read=int(is_event.sum()))
    sound = account.drop_rows(_mark_unsound(columns), is_event)
    rows = sound[is_event[sound]]
    index, names = _name_domains(columns, texts, rows)
    domains = sorted(set(names))
    domain = np.array([domains.index(name) for name in names], np.int64)[index]
    categories = _read_names(columns, texts, _CATEGORY_NAME, columns["domainId"], columns["category"])
    patterns = reader.options.nvtx_domains or ("*",)  # the default domain is called `default` in patterns
    selected = frozenset(d for d in domains if any(match_patterns(d or "default", pattern) for pattern in patterns))
    ends = _find_ends(columns, rows, domain)
    return NvtxEvents(columns, texts, account, rows, domain, ends, domains, categories, selected)


def _find_ends(columns: Columns, rows: IntArray, domain: IntArray) -> IntArray:
    """Return the end of every row (ns); push/pop ranges nest by thread and domain."""
    end = np.where(columns["end"] == NULL, NO_END, columns["end"])
    push_pop = np.isin(columns["eventType"][rows], PUSH_POP)
    nesting = rows[push_pop]
    group, _ = encode_rows(columns["globalTid"][nesting], domain[push_pop])
    end[nesting] = clamp_to_parents(group, columns["start"][nesting], end[nesting], NO_END)
    return end


def _mark_unsound(columns: Columns) -> dict[Reason, BoolArray]:
    """Mark the rows that cannot be shown, by reason."""
    kind, begin, end = columns["eventType"], columns["start"], columns["end"]
    unknown = np.setdiff1d(kind, (*PUSH_POP, *START_END, *MARK, *NAMING))
    # Marks, and ranges without an end, have only a start to check.
    has_end = np.isin(kind, (*PUSH_POP, *START_END)) & (end != NULL)
    return {
        NO_THREAD: columns["globalTid"] == NULL,
        **{name_unknown_event(value): kind == value for value in unknown},
        **find_unsound_times(begin, np.where(has_end, end, np.maximum(begin, 1))),
    }


def read_created_domains(columns: Columns, texts: Texts) -> dict[tuple[int, ...], str]:
    """Return the name of each (process, domain id) that was created during the capture."""
    return _read_names(columns, texts, (_DOMAIN_CREATE,), columns["domainId"])


def _name_domains(columns: Columns, texts: Texts, rows: IntArray) -> tuple[IntArray, list[str]]:
    """Return (index of the domain of each row, names of the domains); the default domain is 0, its name ''.

    Ids are per process, so the domains of two processes may have the same name.
    """
    codes, domains = find_distinct_rows(get_process(columns["globalTid"][rows]), columns["domainId"][rows])
    created = read_created_domains(columns, texts)
    names = ["" if key[1] == 0 else created.get(key, "") for key in domains]
    for code, (_, number) in enumerate(domains):
        if number != 0 and not names[code]:
            # A capture that started after the domain was created lacks its name; NCCL's is known by its calls.
            used = np.unique(texts.name_index[texts.index[rows[codes == code]]])
            is_nccl = is_nccl_domain({texts.names[i] for i in used})
            names[code] = NCCL_DOMAIN if is_nccl else f"domain {number}"
    return codes, names


def _read_names(columns: Columns, texts: Texts, kinds: tuple[int, ...], *ids: IntArray) -> dict[tuple[int, ...], str]:
    """Return the texts of the rows with some event types, by process and ids."""
    rows = np.flatnonzero(np.isin(columns["eventType"], kinds)).tolist()
    keys = zip(*(column[rows].tolist() for column in (get_process(columns["globalTid"]), *ids)), strict=True)
    return {key: texts.get_text(row) for key, row in zip(keys, rows, strict=True)}
