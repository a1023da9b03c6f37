"""Samples of Python: marks of nsys's own in an NVTX domain, with the functions on the stack as JSON.

`Frames` begins with the innermost function; Function and File are ids of names, as everywhere in the export.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from nsys2prv_ng.arrays.row_keys import find_distinct_rows
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.records.columns import Pair
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared.report_reader import ReportReader

DOMAIN = "Python Periodic Sampling"
_BEGIN_OF_FRAME = '{"Function":'
_FRAME = r'^(?P<function>[0-9]{1,18}),"File":(?P<file>[0-9]{1,18})[,}]'


def read_functions(reader: ReportReader, texts: pa.Array) -> list[Pair]:
    """The functions in the JSON of n samples, by level: a pair for each level at which some sample has one."""
    split = pc.split_pattern(texts.cast(pa.string()).fill_null(""), _BEGIN_OF_FRAME)
    parts, number = split.flatten(), pc.list_value_length(split).to_numpy()
    before = np.cumsum(number) - number  # of each sample the index of what precedes its first frame
    pairs = []
    for level, event_type in enumerate(types.SAMPLED_PYTHON[: reader.options.stack_depth]):
        has = np.flatnonzero(number > level + 1)
        if not has.size:
            break
        found = pc.extract_regex(parts.take(pa.array(before[has] + 1 + level)), _FRAME)
        function, file = (_integers(pc.struct_field(found, name)) for name in ("function", "file"))
        known = function != NULL
        value = np.zeros(len(texts), np.int64)
        value[has[known]] = _named(reader, function[known], file[known], event_type.names)
        if known.any():
            pairs.append(Pair(reader.labels.handle(event_type), value, value > 0))
    return pairs


def _integers(column: pa.Array) -> IntArray:
    return np.asarray(pc.fill_null(pc.cast(column, pa.int64()), NULL).to_numpy(zero_copy_only=False), np.int64)


def _named(reader: ReportReader, function: IntArray, file: IntArray, space: str) -> IntArray:
    """Ids of `function (file)`, without the folders of the file, in which ranks may differ."""
    codes, pairs = find_distinct_rows(function, file)
    names, files = (reader.strings(np.array(each, np.int64)) for each in zip(*pairs, strict=True))
    labels = [f"{name} ({path.rpartition('/')[2]})" for name, path in zip(names, files, strict=True)]
    return reader.labels.name_ids(space, labels)[codes]
