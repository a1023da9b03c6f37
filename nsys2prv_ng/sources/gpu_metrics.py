"""GPU metrics: what the hardware counters of each GPU said, at each sample.

They are of the GPU as a whole, so they are on its own row, whichever process sampled it: a GPU is known by its uuid,
and where several reports hold samples of one GPU, its row has those of all. (nsys lets one session at a time sample a
GPU, so no two of them are the same sample.) nsys's ids of metrics differ between kinds of GPU: names tell them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba as nb
import numpy as np
import pandas as pd

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.records import CLASS_SHIFT, EVENT, POINT, Records
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.base import BoolArray, IntArray, Joined, Part, Reading, Result, Source
from nsys2prv_ng.sources.patterns import matches

METRICS = "GPU_METRICS"
TABLE = Table(METRICS, ("typeId", "metricId", "value"), {"timestamp": NULL, "rawTimestamp": NULL})
NAMES = Table("TARGET_INFO_GPU_METRICS", ("typeId", "metricId"), text=("metricName",))

# Up to 2023 exports hold metrics as JSON among other generic events only.
GENERIC = Table("GENERIC_EVENTS", ("typeId",))
GENERIC_TYPES = Table("GENERIC_EVENT_TYPES", ("typeId", "sourceId"))
GENERIC_SOURCES = Table("GENERIC_EVENT_SOURCES", ("sourceId",), text=("data",))

_GPU_MASK = 0xFF
"""Of a typeId: nsys's number of the GPU."""


class _Values(NamedTuple):
    """Values of n, those of a sample side by side: time (ns), GPU, index of the metric's name, value."""

    time: IntArray
    gpu: IntArray
    metric: IntArray
    value: IntArray

    def take(self, rows: IntArray | BoolArray) -> _Values:
        return _Values(*(column[rows] for column in self))


@dataclass(frozen=True)
class Choice:
    """The metrics that a report has, and the patterns by which the user chose among them."""

    names: frozenset[str]
    patterns: tuple[str, ...]


def read(reading: Reading) -> Result:
    """A line for each sample of each GPU, with the values of all chosen metrics."""
    result = Result(shared=Choice(frozenset(), reading.options.metrics))
    if not reading.has(METRICS):
        _count_json(reading, result)
        return result
    columns = reading.columns(METRICS)
    time = np.where(columns["timestamp"] != NULL, columns["timestamp"], columns["rawTimestamp"])
    gpu = np.where(columns["typeId"] != NULL, columns["typeId"] & _GPU_MASK, -1)
    metric, names = _metrics(reading, columns["typeId"], columns["metricId"])
    values = _by_sample(_Values(time, gpu, metric, columns["value"]))
    starts = _starts(values)
    result.read = starts.size
    result.shared = Choice(frozenset(name for name, _ in names), reading.options.metrics)

    values = _sound(reading, result, values, starts)
    chosen = np.array([not reading.options.metrics or _chosen(name, result.shared.patterns) for name, _ in names])
    if not chosen.all():
        before = _starts(values).size
        values = values.take(chosen[values.metric])
        result.drop("none of its metrics was chosen", before - _starts(values).size)
    if reading.options.metrics_changes:
        before = _starts(values).size
        values = values.take(_changes(values, len(names)))
        result.drop("unchanged", before - _starts(values).size)
    if values.time.size:
        result.records.append(_samples(reading, values, names))
    return result


def _count_json(reading: Reading, result: Result) -> None:
    """Samples of an old export are not read: nsys exports the same report anew with a table of metrics."""
    sources = reading.columns(GENERIC_SOURCES.name)
    is_metrics = [bool(text) and '"GpuMetrics"' in text for text in sources.texts["data"].to_pylist()]
    generic = reading.columns(GENERIC_TYPES.name)
    of_metrics = generic["typeId"][np.isin(generic["sourceId"], sources["sourceId"][np.array(is_metrics, np.bool_)])]
    result.read = int(np.isin(reading.columns(GENERIC.name)["typeId"], of_metrics).sum())
    result.drop("only as JSON in this export; export the report with nsys 2024.2 or newer", result.read)


def _metrics(reading: Reading, type_id: IntArray, metric_id: IntArray) -> tuple[IntArray, list[tuple[str, int]]]:
    """(index into the metrics for each row or -1, their names with one of their ids)."""
    table = reading.columns(NAMES.name)
    named = {
        (int(t), int(m)): name
        for t, m, name in zip(table["typeId"], table["metricId"], table.texts["metricName"].to_pylist(), strict=True)
        if name
    }
    # Factorised one by one: a table of pairs of millions of rows would take more time than everything else here.
    type_index, type_ids = pd.factorize(type_id)
    metric_index, metric_ids = pd.factorize(metric_id)
    index: dict[tuple[str, int], int] = {}
    of_pair = np.full((max(1, type_ids.size), max(1, metric_ids.size)), -1, np.int64)
    pairs = np.unique(type_index * of_pair.shape[1] + metric_index)
    for pair in pairs:
        i, j = divmod(int(pair), of_pair.shape[1])
        key = int(type_ids[i]), int(metric_ids[j])
        if key[1] != NULL:
            metric = named.get(key, f"GPU metric {key[1]}"), key[1]
            of_pair[i, j] = index.setdefault(metric, len(index))
    return of_pair[type_index, metric_index], list(index)


def _by_sample(values: _Values) -> _Values:
    """The values, sorted unless those of each sample are together already, as nsys writes them."""
    starts = _starts(values)
    samples = pd.MultiIndex.from_arrays([values.gpu[starts], values.time[starts]])
    return values if samples.is_unique else values.take(np.lexsort((values.time, values.gpu)))


def _starts(values: _Values) -> IntArray:
    """Index of the first value of each sample."""
    change = (values.time[1:] != values.time[:-1]) | (values.gpu[1:] != values.gpu[:-1])
    return np.flatnonzero(np.concatenate([np.ones(min(1, values.time.size), np.bool_), change]))


def _sound(reading: Reading, result: Result, values: _Values, starts: IntArray) -> _Values:
    """Values that have a time, a GPU, a metric and a number."""
    no_time = values.time == NULL
    no_gpu = ~no_time & (values.gpu < 0)
    result.drop("no time", int(no_time[starts].sum()))
    result.drop("no GPU", int(no_gpu[starts].sum()))
    placed = ~no_time & ~no_gpu
    has_value = (values.value != NULL) & (values.metric >= 0)
    missing = int((placed & ~has_value).sum())
    if not missing and placed.all():
        return values
    kept = values.take(placed & has_value)
    result.drop("no value", int(placed[starts].sum()) - _starts(kept).size)
    if missing:
        reading.metadata.warnings.append(f"{missing:,} values of GPU metrics are NULL and left out")
    return kept


def _samples(reading: Reading, values: _Values, names: list[tuple[str, int]]) -> Records:
    """One line for each sample."""
    starts = _starts(values)
    handles = [reading.labels.handle(types.gpu_metric(name, metric_id)) for name, metric_id in names]
    return Records(
        time=values.time[starts],
        tie=np.full(starts.size, POINT << CLASS_SHIFT, np.int64),
        place=reading.places.devices(values.gpu[starts]).astype(np.int32),
        kind=np.full(starts.size, EVENT, np.int8),
        first=np.concatenate([starts, [values.time.size]]).astype(np.int64),
        handle=np.array(handles, np.int32)[values.metric],
        # A copy: what was read is not to change with the records.
        value=values.value.copy(),
    )


def _changes(values: _Values, metrics: int) -> BoolArray:
    """Values that differ from the one before of the same metric and GPU, and the first of each."""
    gpu, gpus = pd.factorize(values.gpu)
    order = np.lexsort((values.time, gpu))
    differs: BoolArray = _differs(gpu, values.metric, values.value, order, gpus.size, metrics)
    return differs


@nb.njit(cache=True, nogil=True)
def _differs(gpu, metric, value, order, gpus, metrics):  # type: ignore[no-untyped-def]
    last = np.zeros((gpus, metrics), np.int64)
    known = np.zeros((gpus, metrics), np.bool_)
    differs = np.zeros(value.size, np.bool_)
    for i in order:
        g, m = gpu[i], metric[i]
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


SOURCE = Source("gpu_metrics", "GPU metrics", (TABLE, NAMES, GENERIC, GENERIC_TYPES, GENERIC_SOURCES), read, join)
