"""Reads the rows of NVTX_EVENTS that can be shown, and splits their texts into names and numbers.

PyTorch's `emit_nvtx` writes `aten::to, op_id = 990347` or `aten::mul, seq = 45, op_id = 7, sizes = [[8]]`, and users
write `step 3`: thousands of texts for a few dozen names. In a trace, the name is the value of the range's event and the
number is a separate event, so that a histogram has one column for each name.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
from nsys2prv_ng.sources.shared.nccl_names import is_nccl_domain
from nsys2prv_ng.sources.shared.reasons import NO_THREAD, Reason, find_unsound_times, name_unknown_event
from nsys2prv_ng.sources.shared.report_reader import ReportReader, encode_texts, register_used
from nsys2prv_ng.sources.shared.source import NO_END, Result
from nsys2prv_ng.text.names import match_patterns
from nsys2prv_ng.value_class import ValueClass

# One line, one blank between words: control characters (Cc), line and paragraph separators, all other blanks (Z).
_BLANKS = r"[\p{Cc}\p{Z}]+"
# The first PyTorch field and everything after it. A number must end there or be followed by the next field.
_SUFFIX = r"^(?P<name>.*?)(?P<suffix>, (?:(?:seq|op_id) = -?[0-9]+(?:,.*)?|(?:sizes|input_op_ids) = \[.*))$"
_FIELD = r", {} = (?P<number>-?[0-9]+)(?:,|$)"
# An integer that is the last word, and the separators before it.
_FINAL = r"^(?P<name>.*?)[ :=#]+(?P<number>-?[0-9]+)$"
# The rest must contain more than numbers: `7`, `10 20` and `12:30` are complete names.
_MORE_THAN_NUMBERS = r"[^-0-9 :=#]"


def split_numbers(texts: pa.Array) -> tuple[pa.Array, IntArray, BoolArray]:
    """Split NVTX texts, none of which is missing, into names and numbers.

    Return three arrays of n, the length of `texts`: names (string), numbers (int64; 0 if there is none), and whether
    there is a number. The rules, in this order:

    1. Each run of blanks, tabs, newlines and control characters becomes one blank; runs at both ends are removed.
    2. The text is cut at the first of PyTorch's fields: `, seq = N`, `, op_id = N`, `, sizes = [`,
       `, input_op_ids = [`. The number is the op_id, else the seq.
    3. An integer that is the last word, after a blank, `:`, `=` or `#`, is cut with the separators before it. It is the
       number if rule 2 found none: `step 3`, `iter=3`, `ProfilerStep#3`. So `iter 3, op_id = 8` becomes `iter` and 8.
       Digits within words stay (`layer0`, `bf16`, `v2.5`, `step_3`).
    4. A cut that would leave no name is not made (`7`, `10 20`, `, op_id = 3`). A number that does not fit int64 stays
       in the name, together with everything that rule 2 or 3 would have cut.
    """
    # Rule 2. Without a match the suffix is empty and the name is the whole text.
    whole, parts, suffix = _cut_suffix(texts)
    op_id, seq = (_get_number(pc.extract_regex(suffix, _FIELD.format(field))) for field in ("op_id", "seq"))
    digits = pc.if_else(pc.not_equal(op_id, ""), op_id, seq)
    cut = pc.and_(pc.not_equal(suffix, ""), pc.or_(pc.equal(digits, ""), _fits(digits)))
    stem = pc.utf8_trim(pc.fill_null(parts.field("name"), ""), " ")
    cut = pc.and_(cut, pc.not_equal(stem, ""))
    name = pc.if_else(cut, stem, whole)
    digits = pc.if_else(cut, digits, "")

    # Rule 3, unless rule 4 forbade the cut of rule 2.
    parts = pc.extract_regex(name, _FINAL)
    final, stem = _get_number(parts), pc.fill_null(parts.field("name"), "")
    last = pc.and_(_fits(final), pc.match_substring_regex(stem, _MORE_THAN_NUMBERS))
    last = pc.and_(last, pc.or_(cut, pc.equal(suffix, "")))
    name = pc.if_else(last, stem, name)
    digits = pc.if_else(pc.and_(last, pc.equal(digits, "")), final, digits)

    has_number = pc.not_equal(digits, "")
    numbers = pc.cast(pc.if_else(has_number, digits, "0"), pa.int64())
    return name, numbers.to_numpy(zero_copy_only=False), has_number.to_numpy(zero_copy_only=False)


def read_sequence_numbers(texts: pa.Array) -> IntArray:
    """Return PyTorch's sequence number in each NVTX text (n); NULL for a text without one.

    It is the field `, seq = N`, which links operators to their backward passes: their ranges have the same number.
    """
    numbers = np.full(len(texts), NULL, np.int64)
    possible = pc.match_substring(texts, "seq").to_numpy(zero_copy_only=False)  # most reports have none
    if possible.any():
        digits = _get_number(pc.extract_regex(_cut_suffix(texts.filter(possible))[2], _FIELD.format("seq")))
        has_number = pc.and_(_fits(digits), pc.invert(pc.starts_with(digits, "-")))
        found = pc.cast(pc.if_else(has_number, digits, str(NULL)), pa.int64())
        numbers[possible] = found.to_numpy(zero_copy_only=False)
    return numbers


def _cut_suffix(texts: pa.Array) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return the texts on one line, the parts into which PyTorch's fields divide them, and these fields ("": none)."""
    whole = pc.utf8_trim(pc.replace_substring_regex(texts, _BLANKS, " "), " ")
    parts = pc.extract_regex(whole, _SUFFIX)
    return whole, parts, pc.fill_null(parts.field("suffix"), "") if len(whole) else whole


def _get_number(parts: pa.Array) -> pa.Array:
    """Return the field `number` of a regex's matches; empty if there is no match."""
    return pc.fill_null(parts.field("number"), "")


def _fits(digits: pa.Array) -> pa.Array:
    """Return whether each `-?[0-9]+` fits int64. Numbers of equal length compare as texts."""
    magnitude = pc.utf8_ltrim(pc.utf8_ltrim(digits, "-"), "0")
    length = pc.utf8_length(magnitude)
    limit = pc.if_else(pc.starts_with(digits, "-"), "9223372036854775808", "9223372036854775807")
    short = pc.less(length, 19)
    return pc.and_(
        pc.not_equal(digits, ""), pc.or_(short, pc.and_(pc.equal(length, 19), pc.less_equal(magnitude, limit)))
    )


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
