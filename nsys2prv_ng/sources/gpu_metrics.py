"""GPU metrics: what the hardware counters of each GPU said, at each sample.

They are of the GPU as a whole, so they are on its own row, whichever process sampled it: a GPU is known by its uuid,
and where several reports hold samples of one GPU, its row has those of all. (nsys lets one session at a time sample a
GPU, so no two of them are the same sample.) nsys's ids of metrics differ between kinds of GPU: names tell them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from nsys2prv_ng import keys
from nsys2prv_ng.compiling import compiled
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.records import CLASS_SHIFT, EVENT, POINT, Int32Array, Records
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.base import BoolArray, EventRows, IntArray, Joined, Part, Reading, Result, Source
from nsys2prv_ng.sources.patterns import matches

METRICS = "GPU_METRICS"
TABLE = Table(METRICS, ("typeId", "metricId", "value"), {"timestamp": NULL, "rawTimestamp": NULL})
NAMES = Table("TARGET_INFO_GPU_METRICS", ("typeId", "metricId"), text=("metricName",))

# Up to 2023 exports hold metrics as JSON among other generic events only.
GENERIC = Table("GENERIC_EVENTS", ("typeId",))
GENERIC_TYPES = Table("GENERIC_EVENT_TYPES", ("typeId", "sourceId"))
GENERIC_SOURCES = Table("GENERIC_EVENT_SOURCES", ("sourceId",), text=("data",))

ONLY_JSON = "only as JSON in this export; export the report with nsys 2024.2 or newer"
"""Why samples of an old export are not read."""

_GPU_MASK = 0xFF
"""Of a typeId: nsys's number of the GPU."""


class _Samples(NamedTuple):
    """Samples of n and their m values, those of a sample side by side: time (ns), GPU, offsets of the first values (of
    n + 1), then index of the metric's name and value of each value."""

    time: IntArray
    gpu: IntArray
    first: IntArray
    metric: Int32Array
    value: IntArray

    def only(self, wanted: BoolArray) -> _Samples:
        """The wanted ones of the values, and the samples that have some."""
        first = np.concatenate([[0], np.cumsum(wanted)])[self.first]
        left = np.flatnonzero(np.diff(first))
        first = first[np.append(left, self.time.size)]
        return _Samples(self.time[left], self.gpu[left], first, self.metric[wanted], self.value[wanted])


class _Block(NamedTuple):
    """Rows of the table as runs of one time (ns) and type: these and the index of the first row of each run, then the
    kind (index into `kinds`, pairs of type and metric) and value of each row."""

    time: IntArray
    type_id: IntArray
    first: IntArray
    kinds: list[tuple[int, int]]
    kind: Int32Array
    value: IntArray


@dataclass(frozen=True)
class Choice:
    """The metrics that a report has, and the patterns by which the user chose among them."""

    names: frozenset[str]
    patterns: tuple[str, ...]


def read(reading: Reading) -> Result:
    """A line for each sample of each GPU, with the values of all chosen metrics."""
    result = Result(shared=Choice(frozenset(), reading.options.metrics))
    if not reading.has(METRICS):
        result.read = json_samples(reading)  # nsys exports the same report anew with a table of metrics
        result.drop(ONLY_JSON, result.read)
        return result
    blocks = reading.by_block(METRICS, _block)
    index, names = _metrics(reading, blocks)
    samples = _by_sample(_join_blocks(blocks, index))
    result.read = samples.time.size
    result.shared = Choice(frozenset(name for name, _ in names), reading.options.metrics)

    samples = _sound(reading, result, samples)
    chosen = np.array([not reading.options.metrics or _chosen(name, result.shared.patterns) for name, _ in names])
    if not chosen.all():
        before = samples.time.size
        samples = samples.only(chosen[samples.metric])
        result.drop("none of its metrics was chosen", before - samples.time.size)
    if reading.options.metrics_changes:
        before = samples.time.size
        samples = samples.only(_changes(samples, len(names)))
        result.drop("unchanged", before - samples.time.size)
    if samples.time.size:
        result.records.append(_records(reading, samples, names))
    return result


def json_samples(reading: Reading) -> int:
    """Number of samples that the export holds as JSON: all of an old export, besides the table in others."""
    sources = reading.columns(GENERIC_SOURCES.name)
    is_metrics = [bool(text) and '"GpuMetrics"' in text for text in sources.texts["data"].to_pylist()]
    generic = reading.columns(GENERIC_TYPES.name)
    of_metrics = generic["typeId"][np.isin(generic["sourceId"], sources["sourceId"][np.array(is_metrics, np.bool_)])]
    return int(np.isin(reading.columns(GENERIC.name)["typeId"], of_metrics).sum())


def _block(columns: Columns) -> _Block:
    type_id, time = columns["typeId"], columns["timestamp"]
    time = np.where(time != NULL, time, columns["rawTimestamp"])
    first = _changing(time, type_id)
    metric_id = columns["metricId"]
    kind, of_kind = _kinds(type_id, metric_id, int(first[2] - first[1]) if first.size > 2 else 0)
    kinds = list(zip(type_id[of_kind].tolist(), metric_id[of_kind].tolist(), strict=True))
    # Copies: the columns are gone when this returns.
    return _Block(time[first], type_id[first], first, kinds, kind.astype(np.int32), columns["value"].copy())


def _kinds(type_id: IntArray, metric_id: IntArray, period: int) -> tuple[IntArray, IntArray]:
    """As `keys.codes_of`; faster where rows repeat those of `period` rows before, as samples of one GPU do."""
    whole = type_id, metric_id
    if not period or any((column[period:] != column[:-period]).any() for column in whole):
        return keys.codes_of(*whole)
    kind, of_kind = keys.codes_of(*(column[:period] for column in whole))
    return np.resize(kind, type_id.size), of_kind


def _changing(*columns: IntArray) -> IntArray:
    """Rows that differ from the one before, and the first."""
    differs = np.zeros(columns[0].size, np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def _metrics(reading: Reading, blocks: Sequence[_Block]) -> tuple[dict[tuple[int, int], int], list[tuple[str, int]]]:
    """(index into the metrics by type and metric, -1 for no metric; their names with one of their ids)."""
    table = reading.columns(NAMES.name)
    named = {
        (int(t), int(m)): name
        for t, m, name in zip(table["typeId"], table["metricId"], table.texts["metricName"].to_pylist(), strict=True)
        if name
    }
    kinds = dict.fromkeys(kind for block in blocks for kind in block.kinds)
    # In the order in which the types, then the metrics, first occur.
    type_order, metric_order = (
        {each: i for i, each in enumerate(dict.fromkeys(kind[part] for kind in kinds))} for part in (0, 1)
    )
    index: dict[tuple[str, int], int] = {}
    of_kind = dict.fromkeys(kinds, -1)
    for kind in sorted(kinds, key=lambda kind: (type_order[kind[0]], metric_order[kind[1]])):
        if kind[1] != NULL:
            metric = named.get(kind, f"GPU metric {kind[1]}"), kind[1]
            of_kind[kind] = index.setdefault(metric, len(index))
    return of_kind, list(index)


def _join_blocks(blocks: list[_Block], index: Mapping[tuple[int, int], int]) -> _Samples:
    """Samples of all blocks, of which none is left: they are large."""
    starts = np.cumsum([0, *(block.value.size for block in blocks)])
    time, type_id = (np.concatenate([block[i] for block in blocks] or [np.zeros(0, np.int64)]) for i in range(2))
    gpu = np.where(type_id != NULL, type_id & _GPU_MASK, -1)
    first = np.concatenate([*(block.first + start for block, start in zip(blocks, starts, strict=False)), starts[-1:]])
    metric, value = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int64)
    while blocks:
        block = blocks.pop()
        rows = slice(starts[len(blocks)], starts[len(blocks) + 1])
        metric[rows] = np.array([index[kind] for kind in block.kinds], np.int32)[block.kind]
        value[rows] = block.value
    return _joined(time, gpu, first, metric, value)


def _joined(time: IntArray, gpu: IntArray, first: IntArray, metric: Int32Array, value: IntArray) -> _Samples:
    """Samples of runs of values, of which some in a row may be of one sample."""
    begins = _changing(time, gpu)
    return _Samples(time[begins], gpu[begins], first[np.append(begins, time.size)], metric, value)


def _by_sample(samples: _Samples) -> _Samples:
    """The samples, sorted unless each is there only once, as nsys writes them."""
    if not keys.duplicated(samples.gpu, samples.time).any():
        return samples
    order = np.lexsort((samples.time, samples.gpu))
    count = np.diff(samples.first)[order]
    first = np.concatenate([[0], np.cumsum(count)])
    values = np.arange(first[-1]) + np.repeat(samples.first[order] - first[:-1], count)
    return _joined(samples.time[order], samples.gpu[order], first, samples.metric[values], samples.value[values])


def _sound(reading: Reading, result: Result, samples: _Samples) -> _Samples:
    """Values that have a time, a GPU, a metric and a number."""
    no_time = samples.time == NULL
    no_gpu = ~no_time & (samples.gpu < 0)
    result.drop("no time", int(no_time.sum()))
    result.drop("no GPU", int(no_gpu.sum()))
    placed = ~no_time & ~no_gpu
    has_value = (samples.value != NULL) & (samples.metric >= 0)
    if placed.all() and has_value.all():
        return samples
    is_placed = np.repeat(placed, np.diff(samples.first))
    kept = samples.only(is_placed & has_value)
    result.drop("no value", int(placed.sum()) - kept.time.size)
    missing = int((is_placed & ~has_value).sum())
    if missing:
        reading.metadata.warnings.append(f"{missing:,} values of GPU metrics are NULL and left out")
    return kept


def _records(reading: Reading, samples: _Samples, names: list[tuple[str, int]]) -> Records:
    """One line for each sample."""
    n = samples.time.size
    handles = [reading.labels.handle(families.gpu_metric(name, metric_id)) for name, metric_id in names]
    return Records(
        time=samples.time,
        tie=np.full(n, POINT << CLASS_SHIFT, np.int64),
        place=reading.places.devices(samples.gpu).astype(np.int32),
        kind=np.full(n, EVENT, np.int8),
        first=samples.first,
        handle=np.array(handles, np.int32)[samples.metric],
        value=samples.value,
    )


def _changes(samples: _Samples, metrics: int) -> BoolArray:
    """Values that differ from the one before of the same metric and GPU, and the first of each."""
    gpu, gpus = pd.factorize(samples.gpu)
    order = np.lexsort((samples.time, gpu))
    differs: BoolArray = _differs(gpu, samples.first, samples.metric, samples.value, order, gpus.size, metrics)
    return differs


@compiled
def _differs(gpu, first, metric, value, order, gpus, metrics):  # type: ignore[no-untyped-def]
    last = np.zeros((gpus, metrics), np.int64)
    known = np.zeros((gpus, metrics), np.bool_)
    differs = np.zeros(value.size, np.bool_)
    for sample in order:
        g = gpu[sample]
        for i in range(first[sample], first[sample + 1]):
            m = metric[i]
            if not known[g, m] or last[g, m] != value[i]:
                differs[i] = True
                known[g, m] = True
                last[g, m] = value[i]
    return differs


# ---- choice ----------------------------------------------------------------------------------------------------------


def _chosen(name: str, patterns: Sequence[str]) -> bool:
    return any(matches(name, pattern, ignore_case=True) for pattern in patterns)


def join(parts: Sequence[Part], tree: ObjectTree) -> Joined:
    """Nothing is joined, but only now is it known whether some pattern fits no metric of any report.

    Raises UsageError for such a pattern.
    """
    choices = [part.shared for part in parts if isinstance(part.shared, Choice)]
    names = sorted({name for choice in choices for name in choice.names})
    patterns = sorted({pattern for choice in choices for pattern in choice.patterns})
    unmatched = [pattern for pattern in patterns if not any(matches(name, pattern, ignore_case=True) for name in names)]
    if unmatched:
        known = f"known are {', '.join(names)}" if names else "these reports have no GPU metrics"
        raise UsageError(f"--metrics {','.join(unmatched)}: no metric has such a name; {known}")
    return Joined()


SOURCE = Source(
    "gpu_metrics",
    "GPU metrics",
    (TABLE, NAMES, GENERIC, GENERIC_TYPES, GENERIC_SOURCES),
    read,
    join,
    rows=(EventRows(METRICS),),
    row="values",
)
