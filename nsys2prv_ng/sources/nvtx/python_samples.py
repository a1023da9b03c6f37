"""Reads nsys's samples of Python, and its back traces of CUDA calls, which are at the start of these.

Both are marks in a domain of their own, with the functions on the stack as JSON. `Frames` starts with the innermost
function. `Function` and `File` are ids of names, as everywhere in the export. The innermost function whose file is not
that of a library is the program's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_starts
from nsys2prv_ng.arrays.types import BoolArray, IntArray, put
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared.report_reader import ReportReader

_SAMPLING, _BACK_TRACES = PYTHON_DOMAINS = ("Python Periodic Sampling", "Python Backtrace on CUDA")
_FRAME_START = '{"Function":'
_FRAME = r'^(?P<function>[0-9]{1,18}),"File":(?P<file>[0-9]{1,18})[,}]'
_LIBRARY = re.compile(r"(.*/)?(?:(?:site|dist)-packages|lib/python[0-9.]+)/([^/]+?)(\.py|/.*)?|<.*")
"""Files of installed packages, of Python's own modules, and code without a file; the second group is the package."""

_WRAPPERS = {"wrapper", "inner", "decorate_context"}
"""What decorators call the functions that they put around others, in PyTorch (`inner` around ATen's)."""


class _Stacks(NamedTuple):
    """n frames of samples, the innermost first in each: index of the sample, level, ids of the function and its file.

    The ids are NULL where they are not known.
    """

    sample: IntArray
    level: IntArray
    function: IntArray
    file: IntArray


def read_functions(reader: ReportReader, texts: pa.Array, domain: str) -> list[Pair]:
    """Return the functions in the JSON of n marks of a domain: for each level of the stacks, and of the program.

    Of a back trace, only the function of the program.
    """
    split = pc.split_pattern(texts.cast(pa.string()).fill_null(""), _FRAME_START)
    number = pc.list_value_length(split).to_numpy()
    level = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number) - 1  # -1: before the first frame
    frames = pc.extract_regex(split.flatten().filter(pa.array(level >= 0)), _FRAME)
    sample = np.repeat(np.arange(number.size), number)[level >= 0]
    function, file = (_parse_integers(pc.struct_field(frames, name)) for name in ("function", "file"))
    known = function != NULL
    stacks = _Stacks(*(column[known] for column in (sample, level[level >= 0], function, file)))
    if not stacks.sample.size:
        return []
    codes, pairs = find_distinct_rows(stacks.function, stacks.file)
    names, files = (reader.strings(np.array(ids, np.int64)) for ids in zip(*pairs, strict=True))
    names = [unescape(name) for name in names]  # nsys writes &lt;module&gt;
    # Without the file's folders, which may differ between ranks.
    labels = [f"{name} ({path.rpartition('/')[2]})" for name, path in zip(names, files, strict=True)]

    def make_pair(event_type: EventType, rows: IntArray, labels: Sequence[str]) -> Pair:
        used, index = np.unique(codes[rows], return_inverse=True)
        ids = reader.labels.name_ids(event_type.names, [labels[n] for n in used])[index]
        value = put(ids, stacks.sample[rows], len(texts), 0)
        return Pair(reader.labels.handle(event_type), value, value > 0)

    packages = [_LIBRARY.fullmatch(path) for path in files]
    of_program = _find_of_program(stacks, np.array([match is None for match in packages])[codes])
    if domain == _BACK_TRACES:
        return [make_pair(types.PROGRAM_PYTHON, of_program, labels)] if of_program.size else []
    is_inner = np.array([name.startswith("_") or name in _WRAPPERS for name in names])[codes]
    called = _find_called(stacks, of_program, is_inner)
    owners = [match[2] or "" if match else "" for match in packages]
    qualified = [f"{owner}.{name}" if owner else name for owner, name in zip(owners, names, strict=True)]
    rows = [np.flatnonzero(stacks.level == level) for level in range(reader.options.stack_depth)]
    chosen = [(event_type, each, labels) for event_type, each in zip(types.SAMPLED_PYTHON, rows, strict=False)]
    chosen += [(types.PROGRAM_PYTHON, of_program, labels), (types.CALLED_PYTHON, called, qualified)]
    return [make_pair(*each) for each in chosen if each[1].size]


def _find_of_program(stacks: _Stacks, is_program: BoolArray) -> IntArray:
    """Return the frame of the innermost function of the program in each sample that has one."""
    rows = np.flatnonzero(is_program)
    return rows[find_starts(stacks.sample[rows])]


def _find_called(stacks: _Stacks, of_program: IntArray, is_inner: BoolArray) -> IntArray:
    """Return the frame of the library's function that each function of the program called, if it called one.

    It is the outermost one that neither is a library's own (`_call`) nor wraps another, or else the outermost one.
    """
    limit = put(stacks.level[of_program], stacks.sample[of_program], int(stacks.sample.max()) + 1)
    rows = np.flatnonzero(stacks.level < limit[stacks.sample])
    rows = rows[np.lexsort((-stacks.level[rows], is_inner[rows], stacks.sample[rows]))]
    return rows[find_starts(stacks.sample[rows])]


def _parse_integers(column: pa.Array) -> IntArray:
    """Return the integers in a column of texts; NULL for a missing text."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.int64()), NULL).to_numpy(zero_copy_only=False), np.int64)
