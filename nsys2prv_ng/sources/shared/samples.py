"""Turns tables of sampled metrics into one line for each sample.

A sample consists of the values of all metrics of one device (a GPU, a network card, a core) at one time. Tables have
one row for each value. nsys writes the values of a sample side by side, and mostly in the same order as in the next
sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, Int32Array, IntArray, Integers, mark, put
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import EVENT, POINT, Records, pack_tie
from nsys2prv_ng.report.database import NULL, Columns, Table
from nsys2prv_ng.sources.shared.reasons import NO_DEVICE, NO_VALUE, REPETITION, TOO_LARGE, Reason, find_unsound_points
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.source import Result

Key = tuple[int, ...]
T = TypeVar("T")

_LATEST = np.iinfo(np.int64).max
_TOO_LARGE = NULL + 1
"""The result of `scale_values` for real numbers that do not fit."""


class Samples(NamedTuple):
    """n samples and their m values; the values of a sample are side by side.

    Each sample has a time (ns) and a device (-1: none); `first` has n + 1 offsets into the values. Each value has the
    index of its metric (-1: none) and the value itself.
    """

    time: IntArray
    device: IntArray
    first: IntArray
    metric: Int32Array
    value: IntArray

    def select(self, wanted: BoolArray) -> Samples:
        """Return the wanted values (a mask of m), and the samples with a wanted value."""
        first = np.concatenate([[0], np.cumsum(wanted)])[self.first]
        left = np.flatnonzero(np.diff(first))
        first = first[np.append(left, self.time.size)]
        return Samples(self.time[left], self.device[left], first, self.metric[wanted], self.value[wanted])


class Block(NamedTuple):
    """Rows of a table as runs of equal time and device.

    Each run has a time (ns), a device and the index of its first row; each row has a metric and a value. Devices and
    metrics are indices into their keys. Metrics and values have as few bytes as are enough: a report's blocks are in
    memory together.
    """

    time: IntArray
    device: IntArray
    first: IntArray
    devices: list[Key]
    metric: Integers
    metrics: list[Key]
    value: Integers


def make_block(
    time: IntArray, device: list[IntArray], metric: list[IntArray], value: IntArray, *, only_limits: bool = False
) -> Block:
    """Make a block from copies of columns: times (ns), the columns that identify devices and metrics, and values.

    If `only_limits`, a run has one value, unless it may be the first or last of its device, or the block has NULL.
    """
    first = keys.find_starts(time, *device)
    run_time = time[first]
    run_device, devices = keys.find_distinct_rows(*(column[first] for column in device))
    if only_limits and all(column.min(initial=0) > NULL for column in (time, *device, *metric, value)):
        count = np.where(mark_limits(run_time, run_device), np.diff(np.append(first, time.size)), 1)
        rows, first = keys.list_indices(first, count), np.cumsum(count) - count
        metric, value = [column[rows] for column in metric], value[rows]
    code, row_of_code = _encode_metrics(metric, int(first[2] - first[1]) if first.size > 2 else 0)
    metrics = list(zip(*(column[row_of_code].tolist() for column in metric), strict=True))
    code = code.astype(np.min_scalar_type(len(metrics)))
    # The fewest bytes that are enough for each value: most metrics are percentages.
    narrow = np.min_scalar_type(min(int(value.min(initial=0)), -1 - int(value.max(initial=0))))
    return Block(run_time, run_device, first, devices, code, metrics, value.astype(narrow))


def mark_limits(time: IntArray, device: IntArray) -> BoolArray:
    """Mark the items (n) that have the first or last time (ns) of their device."""
    devices = int(device.max(initial=-1)) + 1
    low, high = np.full(devices, _LATEST), np.full(devices, NULL)
    np.minimum.at(low, device, time)
    np.maximum.at(high, device, time)
    return np.asarray((time == low[device]) | (time == high[device]), np.bool_)


def read_blocks(
    reader: ReportReader,
    table: Table,
    device: Sequence[str],
    metric: Sequence[str],
    value: str = "value",
    *,
    only_limits: bool = False,
) -> list[Block]:
    """Read a large table, given the columns that identify devices and metrics, and the column of values.

    Times are in the column `start`, or else as `get_times` returns them. `only_limits`: as for `make_block`.
    """

    def convert(columns: Columns) -> Block:
        time = columns["start"] if "start" in columns.numbers else get_times(columns)
        devices, metrics = ([columns[name] for name in names] for names in (device, metric))
        return make_block(time, devices, metrics, columns[value], only_limits=only_limits)

    return reader.read_by_block(table.name, convert)


def get_times(columns: Columns) -> IntArray:
    """Return the times (ns) of a table that has some of them as raw timestamps."""
    return np.where(columns["timestamp"] != NULL, columns["timestamp"], columns["rawTimestamp"])


def _encode_metrics(metric: Sequence[IntArray], period: int) -> tuple[IntArray, IntArray]:
    """Encode metrics as `keys.encode_rows` does, but faster if each row equals the row `period` rows before it.

    This is so for the samples of one device.
    """
    if not period or any((column[period:] != column[:-period]).any() for column in metric):
        return keys.encode_rows(*metric)
    code, row_of_code = keys.encode_rows(*(column[:period] for column in metric))
    return np.resize(code, metric[0].size), row_of_code


def make_keys(blocks: Sequence[Block]) -> tuple[list[Key], list[Key]]:
    """Return the keys of all devices and all metrics, in the order in which they first occur."""
    devices = dict.fromkeys(key for block in blocks for key in block.devices)
    metrics = dict.fromkeys(key for block in blocks for key in block.metrics)
    return list(devices), list(metrics)


def number_keys(all_keys: Iterable[Key], find: Callable[[Key], T | None]) -> tuple[dict[Key, int], list[T]]:
    """Return (index of each key into the things that keys name, -1 if it names none; distinct things)."""
    index: dict[T, int] = {}
    found = [(key, find(key)) for key in all_keys]
    numbers = {key: -1 if thing is None else index.setdefault(thing, len(index)) for key, thing in found}
    return numbers, list(index)


def join_blocks(blocks: list[Block], devices: Mapping[Key, int], metrics: Mapping[Key, int]) -> Samples:
    """Return the samples of all blocks, given the index of each device and metric. Empty `blocks`, which are large."""
    starts = np.cumsum([0, *(block.value.size for block in blocks)])
    no_rows = [np.zeros(0, np.int64)]
    time = np.concatenate([block.time for block in blocks] or no_rows)
    device = np.concatenate([_look_up(block.devices, devices)[block.device] for block in blocks] or no_rows)
    first = np.concatenate([*(block.first + start for block, start in zip(blocks, starts, strict=False)), starts[-1:]])
    metric, value = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int64)
    while blocks:
        block = blocks.pop()
        rows = slice(starts[len(blocks)], starts[len(blocks) + 1])
        metric[rows] = _look_up(block.metrics, metrics)[block.metric]
        value[rows] = block.value
    return _sort_samples(_merge_runs(time, device, first, metric, value))


def _look_up(block_keys: Sequence[Key], index: Mapping[Key, int]) -> IntArray:
    return np.array([index[key] for key in block_keys], np.int64)


def _merge_runs(time: IntArray, device: IntArray, first: IntArray, metric: Int32Array, value: IntArray) -> Samples:
    """Return the samples of runs of values; neighbouring runs may belong to one sample."""
    starts = keys.find_starts(time, device)
    return Samples(time[starts], device[starts], first[np.append(starts, time.size)], metric, value)


def _sort_samples(samples: Samples) -> Samples:
    """Return the samples, sorted by device and time if a sample has several runs; nsys writes one for each."""
    if not keys.mark_duplicates(samples.device, samples.time).any():
        return samples
    order = np.lexsort((samples.time, samples.device))
    count = np.diff(samples.first)[order]
    first = np.concatenate([[0], np.cumsum(count)])
    values = keys.list_indices(samples.first[order], count)
    return _merge_runs(samples.time[order], samples.device[order], first, samples.metric[values], samples.value[values])


def select_sound(
    reader: ReportReader,
    result: Result,
    samples: Samples,
    what: str,
    no_device: Reason = NO_DEVICE,
    is_real: BoolArray | None = None,
) -> Samples:
    """Return the values with a time, a device, a metric and a number; drop the samples without such values.

    `what`: the name of the values in warnings about dropped values; `is_real`: mask of the metrics whose values come
    from `scale_values`.
    """
    kept = result.drop_rows({**find_unsound_points(samples.time), no_device: samples.device < 0})
    placed = mark(kept, samples.time.size)
    has_value = (samples.value != NULL) & (samples.metric >= 0)
    too_large = np.zeros(has_value.size, np.bool_)
    if is_real is not None and is_real.any():
        too_large = has_value & (samples.value == _TOO_LARGE) & is_real[samples.metric]
        has_value &= ~too_large
    if placed.all() and has_value.all():
        return samples
    is_placed = np.repeat(placed, np.diff(samples.first))
    sound = samples.select(is_placed & has_value)
    lost = placed & ~_mark_samples_with(samples, has_value)
    lost_large = lost & _mark_samples_with(samples, too_large)
    result.drop(TOO_LARGE, int(lost_large.sum()))
    result.drop(NO_VALUE, int((lost & ~lost_large).sum()))
    for reason, mask in (("NULL", ~has_value & ~too_large), (TOO_LARGE, too_large)):
        number = int((is_placed & mask).sum())
        if number:
            reader.metadata.warnings.append(f"{number:,} values of {what} are {reason} and dropped")
    return sound


def _mark_samples_with(samples: Samples, wanted: BoolArray) -> BoolArray:
    """Return a mask of the samples with a wanted value (a mask of m)."""
    return np.asarray(np.diff(np.concatenate([[0], np.cumsum(wanted)])[samples.first]) > 0, np.bool_)


def _drop_repetitions(result: Result, samples: Samples, metrics: Sequence[EventType]) -> Samples:
    """Return the last value of each metric in each sample, because Paraver shows one value at each time.

    The other values count as read and dropped.
    """
    if not samples.value.size:
        return samples
    # Types with the same member have the same number, whatever their ids are.
    members = {metric.member: i for i, metric in enumerate(metrics)}
    number = np.array([members[metric.member] for metric in metrics], np.int32)[samples.metric]
    rises = number[1:] > number[:-1]
    rises[samples.first[1:-1] - 1] = True  # not required from one sample to the next
    if rises.all():  # the usual case, and cheap to check
        return samples
    sample = np.repeat(np.arange(samples.time.size), np.diff(samples.first))
    is_repetition = keys.mark_duplicates(sample[::-1], number[::-1].astype(np.int64))[::-1]
    result.read += int(is_repetition.sum())
    result.drop(REPETITION, int(is_repetition.sum()))
    return samples.select(~is_repetition)


def make_records(reader: ReportReader, samples: Samples, place: IntArray, metrics: Sequence[EventType]) -> Records:
    """Make one line for each sample, given the place of each sample and the type of each metric."""
    n = samples.time.size
    handles = [reader.labels.handle(metric) for metric in metrics]
    return Records(
        time=samples.time,
        tie=np.full(n, pack_tie(POINT, 0), np.int64),
        place=place.astype(np.int32),
        kind=np.full(n, EVENT, np.int8),
        first=samples.first,
        handle=np.array(handles, np.int32)[samples.metric],
        value=samples.value,
    )


# ---- parts of the node -----------------------------------------------------------------------------------------------


def add_node_samples(
    reader: ReportReader,
    result: Result,
    blocks: list[Block],
    get_part: Callable[[Key], NodePart | None],
    get_metric: Callable[[Key], EventType],
    what: str,
) -> None:
    """Count and add samples, each on the row of its device in the task of the node.

    `get_part` returns the part of the node for the key of a device, or None if the key names no device. `get_metric`
    returns the type for the key of a metric; a key with NULL does not name a metric.
    """
    devices, kinds = make_keys(blocks)
    device_index, parts = number_keys(sorted(devices), get_part)
    metric_index, metrics = number_keys(kinds, lambda key: None if NULL in key else get_metric(key))
    samples = join_blocks(blocks, device_index, metric_index)
    result.read += samples.time.size
    is_real = np.array([metric.precision > 0 for metric in metrics], np.bool_)
    samples = select_sound(reader, result, samples, what, is_real=is_real)
    samples = _drop_repetitions(result, samples, metrics)
    if samples.time.size:
        # Parts without a sample get no row.
        used = np.unique(samples.device)
        place = put(reader.places.node_parts([parts[i] for i in used]), used, len(parts))
        result.records.append(make_records(reader, samples, place[samples.device], metrics))


def scale_values(real: FloatArray) -> IntArray:
    """Return real numbers as integers with the precision of `families.node_metric`; NULL for NaN."""
    with np.errstate(over="ignore"):
        value = real * 10.0**families.REAL_PRECISION
    fits = np.abs(value) < 2.0**62  # false for NaN
    instead = np.where(fits, 0, np.where(np.isnan(value), NULL, _TOO_LARGE))
    return np.where(fits, np.rint(np.where(fits, value, 0)), 0).astype(np.int64) + instead
