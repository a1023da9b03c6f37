"""Reads nsys's samples of Python: marks in a separate NVTX domain, with the functions on the stack as JSON.

`Frames` starts with the innermost function. `Function` and `File` are ids of names, as everywhere in the export.
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
_FRAME_START = '{"Function":'
_FRAME = r'^(?P<function>[0-9]{1,18}),"File":(?P<file>[0-9]{1,18})[,}]'


def read_functions(reader: ReportReader, texts: pa.Array) -> list[Pair]:
    """Return the functions in the JSON of n samples: one pair for each level of the stacks."""
    split = pc.split_pattern(texts.cast(pa.string()).fill_null(""), _FRAME_START)
    parts, number = split.flatten(), pc.list_value_length(split).to_numpy()
    before = np.cumsum(number) - number  # index of the part before the first frame of each sample
    pairs = []
    for level, event_type in enumerate(types.SAMPLED_PYTHON[: reader.options.stack_depth]):
        samples = np.flatnonzero(number > level + 1)
        if not samples.size:
            break
        frames = pc.extract_regex(parts.take(pa.array(before[samples] + 1 + level)), _FRAME)
        function, file = (_parse_integers(pc.struct_field(frames, name)) for name in ("function", "file"))
        known = function != NULL
        value = np.zeros(len(texts), np.int64)
        value[samples[known]] = _register_names(reader, function[known], file[known], event_type.names)
        if known.any():
            pairs.append(Pair(reader.labels.handle(event_type), value, value > 0))
    return pairs


def _parse_integers(column: pa.Array) -> IntArray:
    """Return the integers in a column of texts; NULL for a missing text."""
    return np.asarray(pc.fill_null(pc.cast(column, pa.int64()), NULL).to_numpy(zero_copy_only=False), np.int64)


def _register_names(reader: ReportReader, function: IntArray, file: IntArray, space: str) -> IntArray:
    """Return the ids of names `function (file)`, without the file's folders, which may differ between ranks."""
    codes, pairs = find_distinct_rows(function, file)
    names, files = (reader.strings(np.array(ids, np.int64)) for ids in zip(*pairs, strict=True))
    labels = [f"{name} ({path.rpartition('/')[2]})" for name, path in zip(names, files, strict=True)]
    return reader.labels.name_ids(space, labels)[codes]
