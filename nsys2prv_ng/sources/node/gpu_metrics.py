"""Reads GPU metrics: the values of the hardware counters of each GPU, at each sample.

They belong to the GPU as a whole and are on the row of the GPU, whichever process sampled it. The uuid identifies a
GPU. If several reports contain samples of one GPU, its row shows all of them. (nsys lets only one session sample a GPU
at once, so reports do not contain the same sample twice.) Names identify a metric, because nsys's ids of metrics differ
between kinds of GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.row_keys import combine_columns, find_starts, list_indices, sort_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, mark
from nsys2prv_ng.errors import UsageError, find_nearest, suggest
from nsys2prv_ng.objects.tree import ObjectTree
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.report.database import NULL, Table
from nsys2prv_ng.sources.shared import samples as sampling
from nsys2prv_ng.sources.shared.reasons import BETWEEN_LIMITS, NO_GPU, ONLY_JSON, OTHER_METRIC, UNCHANGED, Reason
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.samples import Block, Key, Samples
from nsys2prv_ng.sources.shared.source import EventRows, JoinInput, JoinResult, Result, Source
from nsys2prv_ng.text.names import match_patterns

METRICS = "GPU_METRICS"
TABLE = Table(METRICS, ("typeId", "metricId", "value"), {"timestamp": NULL, "rawTimestamp": NULL})
NAMES = Table("TARGET_INFO_GPU_METRICS", ("typeId", "metricId"), text=("metricName",))

# Up to 2023, exports contain metrics only as JSON among other generic events.
GENERIC = Table("GENERIC_EVENTS", ("typeId",))
GENERIC_TYPES = Table("GENERIC_EVENT_TYPES", ("typeId", "sourceId"))
GENERIC_SOURCES = Table("GENERIC_EVENT_SOURCES", ("sourceId",), text=("data",))

_GPU_MASK = 0xFF
"""The bits of a typeId that are nsys's number of the GPU."""


class MetricFilter(NamedTuple):
    """The names of the metrics in a report, and the patterns with which the user chose among them."""

    names: frozenset[str]
    patterns: tuple[str, ...]


def read(reader: ReportReader) -> Result:
    """Return a line for each sample of each GPU, with the values of all chosen metrics."""
    result = Result(join_data=MetricFilter(frozenset(), reader.options.metrics))
    if not reader.has(METRICS):
        result.read = read_json_samples(reader)  # a newer nsys exports the same report with a table of metrics
        result.drop(ONLY_JSON, result.read)
        return result
    device, metric = ("typeId",), ("typeId", "metricId")
    blocks = sampling.read_blocks(reader, TABLE, device, metric, only_limits=reader.options.metrics_limits)
    index, names = _find_metrics(reader, blocks)
    samples = sampling.join_blocks(blocks, _find_gpus(blocks), index)
    result.read = samples.time.size
    result.join_data = MetricFilter(frozenset(name for name, _ in names), reader.options.metrics)

    samples = sampling.select_sound(reader, result, samples, "GPU metrics", NO_GPU)
    chosen = np.array([not reader.options.metrics or _is_chosen(name, result.join_data.patterns) for name, _ in names])
    if not chosen.all():
        samples = _select(result, samples, chosen[samples.metric], OTHER_METRIC)
    if reader.options.metrics_changes:
        samples = _select(result, samples, _mark_changes(samples), UNCHANGED)
    if reader.options.metrics_limits:
        is_limit = sampling.mark_limits(samples.time, samples.device)
        samples = _select(result, samples, np.repeat(is_limit, np.diff(samples.first)), BETWEEN_LIMITS)
    if samples.time.size:
        types = [families.make_gpu_metric(name, metric_id) for name, metric_id in names]
        result.records.append(sampling.make_records(reader, samples, reader.places.devices(samples.device), types))
    return result


def read_json_samples(reader: ReportReader) -> int:
    """Return the number of samples in JSON: all samples of an old export, while newer ones also have the table."""
    return int(np.isin(reader.columns(GENERIC.name)["typeId"], read_json_types(reader)).sum())


def read_json_types(reader: ReportReader) -> IntArray:
    """Return the types of the generic events that are samples of GPUs."""
    sources = reader.columns(GENERIC_SOURCES.name)
    is_metrics = [bool(text) and '"GpuMetrics"' in text for text in sources.texts["data"].to_pylist()]
    types = reader.columns(GENERIC_TYPES.name)
    has_metrics = np.isin(types["sourceId"], sources["sourceId"][np.array(is_metrics, np.bool_)])
    return np.unique(np.concatenate([types["typeId"][has_metrics], reader.columns(NAMES.name)["typeId"]]))


def _find_metrics(reader: ReportReader, blocks: Sequence[Block]) -> tuple[dict[Key, int], list[tuple[str, int]]]:
    """Return (index into the metrics by type and metric id, -1 for no metric; name and id of each metric)."""
    rows = reader.list_rows(NAMES.name, "typeId", "metricId", "metricName")
    named: dict[Key, str] = {(type_id, metric_id): name for type_id, metric_id, name in rows if name}

    def find_metric(kind: Key) -> tuple[str, int] | None:
        metric_id = kind[1]
        return None if metric_id == NULL else (named.get(kind, f"GPU metric {metric_id}"), metric_id)

    return sampling.number_keys(sampling.make_keys(blocks)[1], find_metric)


def _find_gpus(blocks: Sequence[Block]) -> dict[Key, int]:
    """Return nsys's GPU number for each type; -1 for no type."""
    return {(type_id,): type_id & _GPU_MASK if type_id != NULL else -1 for (type_id,) in sampling.make_keys(blocks)[0]}


def _select(result: Result, samples: Samples, wanted: BoolArray, reason: Reason) -> Samples:
    """Return the wanted values (a mask), and drop the samples without one."""
    selected = samples.select(wanted)
    result.drop(reason, samples.time.size - selected.time.size)
    return selected


def _mark_changes(samples: Samples) -> BoolArray:
    """Mark the first value of each metric and GPU, and the values that differ from the value before."""
    order = np.lexsort((samples.time, samples.device))
    count = np.diff(samples.first)[order]
    at = list_indices(samples.first[order], count)
    series = combine_columns(np.repeat(samples.device[order], count), samples.metric[at].astype(np.int64))
    by_series = sort_rows(series)
    at = at[by_series]
    return mark(at[find_starts(series[by_series], samples.value[at])], at.size)


# ---- choice ----------------------------------------------------------------------------------------------------------


def _is_chosen(name: str, patterns: Sequence[str]) -> bool:
    return any(match_patterns(name, pattern, ignore_case=True) for pattern in patterns)


def join(parts: Sequence[JoinInput], tree: ObjectTree) -> JoinResult:
    """Check the patterns, now that the metrics of all reports are known. Nothing is joined.

    Raises UsageError for a pattern that matches no metric in any report.
    """
    filters: list[MetricFilter] = [part.data for part in parts]
    names = sorted({name for metric_filter in filters for name in metric_filter.names})
    patterns = sorted({pattern for metric_filter in filters for pattern in metric_filter.patterns})
    unmatched = [pattern for pattern in patterns if not any(_is_chosen(name, [pattern]) for name in names)]
    if unmatched:
        remedy = suggest(unmatched, names, _guess) if names else "these reports have no GPU metrics"
        raise UsageError(f"no metric has such a name; {remedy}", parameter="metrics", value=",".join(unmatched))
    return JoinResult()


def _guess(pattern: str, names: Iterable[str]) -> str:
    """Return the pattern that the user may have meant, in quotes, or "". Names contain units that nobody types."""
    text = pattern.strip("*? ").lower()
    if text and any(text in name.lower() for name in names):
        return f"'*{text}*'"
    known = {name.partition(" [")[0].lower(): name for name in names}
    nearest = find_nearest(text, known)
    return f"'{known[nearest].partition(' [')[0]}*'" if nearest else ""


SOURCE = Source(
    source_names.GPU_METRICS,
    "GPU metrics",
    (TABLE, NAMES, GENERIC, GENERIC_TYPES, GENERIC_SOURCES),
    read,
    join,
    MetricFilter,
    counted_tables=(EventRows(METRICS),),
    noun="values",
    needed_by=(),
    load=LoadCost(events=0.03, pairs=1),
)
