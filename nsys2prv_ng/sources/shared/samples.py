"""Values of metrics that were sampled, from columns of a table to one line for each sample.

A sample is what one device (a GPU, a network card, a core) said at one time: the values of all its metrics. Tables have
a row for each value; nsys writes those of a sample side by side, and mostly those of the next in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays import row_keys as keys
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray
from nsys2prv_ng.objects.places import NodePart
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.records.columns import EVENT, POINT, Int32Array, Records, pack_tie
from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared.reasons import NO_DEVICE, NO_TIME
from nsys2prv_ng.sources.shared.report_reader import ReportReader
from nsys2prv_ng.sources.shared.result import Result

Key = tuple[int, ...]

TOO_LARGE = "too large for the trace"
REPETITION = "another value of its time and metric follows"
_TOO_LARGE = NULL + 1
"""What `scaled` has for real numbers that do not fit."""


class Samples(NamedTuple):
    """Samples of n and their m values, those of a sample side by side: time (ns), device (-1: none), offsets of the
    first values (of n + 1), then index of the metric (-1: none) and value of each value."""

    time: IntArray
    device: IntArray
    first: IntArray
    metric: Int32Array
    value: IntArray

    def only(self, wanted: BoolArray) -> Samples:
        """The wanted ones of the values, and the samples that have some."""
        first = np.concatenate([[0], np.cumsum(wanted)])[self.first]
        left = np.flatnonzero(np.diff(first))
        first = first[np.append(left, self.time.size)]
        return Samples(self.time[left], self.device[left], first, self.metric[wanted], self.value[wanted])


class Block(NamedTuple):
    """Rows of a table as runs of one time (ns) and device: these and the index of the first row of each run, then the
    metric and value of each row. Devices and metrics are indices into their keys."""

    time: IntArray
    device: IntArray
    first: IntArray
    devices: list[Key]
    metric: Int32Array
    metrics: list[Key]
    value: IntArray


def make_block(time: IntArray, device: Sequence[IntArray], metric: Sequence[IntArray], value: IntArray) -> Block:
    """A block of columns, of which it holds nothing: time (ns), the columns that tell devices and metrics, values."""
    first = _changing(time, *device)
    run_device, devices = keys.find_distinct_rows(*(column[first] for column in device))
    code, of_kind = _kinds(metric, int(first[2] - first[1]) if first.size > 2 else 0)
    metrics = list(zip(*(column[of_kind].tolist() for column in metric), strict=True))
    return Block(time[first], run_device, first, devices, code.astype(np.int32), metrics, value.copy())


def _kinds(metric: Sequence[IntArray], period: int) -> tuple[IntArray, IntArray]:
    """As `keys.codes_of`; faster where rows repeat those of `period` rows before, as samples of one device do."""
    if not period or any((column[period:] != column[:-period]).any() for column in metric):
        return keys.encode_rows(*metric)
    kind, of_kind = keys.encode_rows(*(column[:period] for column in metric))
    return np.resize(kind, metric[0].size), of_kind


def _changing(*columns: IntArray) -> IntArray:
    """Rows that differ from the one before, and the first."""
    differs = np.zeros(columns[0].size, np.bool_)
    differs[:1] = True
    for column in columns:
        differs[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(differs)


def make_keys(blocks: Sequence[Block]) -> tuple[list[Key], list[Key]]:
    """The keys of all devices and of all metrics, in the order in which they first occur."""
    devices = dict.fromkeys(key for block in blocks for key in block.devices)
    metrics = dict.fromkeys(key for block in blocks for key in block.metrics)
    return list(devices), list(metrics)


def join_blocks(blocks: list[Block], devices: Mapping[Key, int], metrics: Mapping[Key, int]) -> Samples:
    """Samples of all blocks, with the index of each device and metric; of the blocks none is left: they are large."""
    starts = np.cumsum([0, *(block.value.size for block in blocks)])
    none = [np.zeros(0, np.int64)]
    time = np.concatenate([block.time for block in blocks] or none)
    device = np.concatenate([_indices(block.devices, devices)[block.device] for block in blocks] or none)
    first = np.concatenate([*(block.first + start for block, start in zip(blocks, starts, strict=False)), starts[-1:]])
    metric, value = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.int64)
    while blocks:
        block = blocks.pop()
        rows = slice(starts[len(blocks)], starts[len(blocks) + 1])
        metric[rows] = _indices(block.metrics, metrics)[block.metric]
        value[rows] = block.value
    return _by_sample(_joined(time, device, first, metric, value))


def _indices(block_keys: Sequence[Key], index: Mapping[Key, int]) -> IntArray:
    return np.array([index[key] for key in block_keys], np.int64)


def _joined(time: IntArray, device: IntArray, first: IntArray, metric: Int32Array, value: IntArray) -> Samples:
    """Samples of runs of values, of which some in a row may be of one sample."""
    begins = _changing(time, device)
    return Samples(time[begins], device[begins], first[np.append(begins, time.size)], metric, value)


def _by_sample(samples: Samples) -> Samples:
    """The samples, sorted unless each is there only once, as nsys writes them."""
    if not keys.mark_duplicates(samples.device, samples.time).any():
        return samples
    order = np.lexsort((samples.time, samples.device))
    count = np.diff(samples.first)[order]
    first = np.concatenate([[0], np.cumsum(count)])
    values = np.arange(first[-1]) + np.repeat(samples.first[order] - first[:-1], count)
    return _joined(samples.time[order], samples.device[order], first, samples.metric[values], samples.value[values])


def select_sound(
    reader: ReportReader,
    result: Result,
    samples: Samples,
    what: str,
    no_device: str = NO_DEVICE,
    is_real: BoolArray | None = None,
) -> Samples:
    """Values that have a time, a device, a metric and a number; the other samples are dropped, for a reason.

    `what` the values are, for the warnings that tell of those that are left out; `is_real`: which metrics hold what
    `scaled` made.
    """
    no_time = samples.time == NULL
    nowhere = ~no_time & (samples.device < 0)
    result.drop(NO_TIME, int(no_time.sum()))
    result.drop(no_device, int(nowhere.sum()))
    placed = ~no_time & ~nowhere
    has_value = (samples.value != NULL) & (samples.metric >= 0)
    too_large = np.zeros(has_value.size, np.bool_)
    if is_real is not None and is_real.any():
        too_large = has_value & (samples.value == _TOO_LARGE) & is_real[samples.metric]
        has_value &= ~too_large
    if placed.all() and has_value.all():
        return samples
    is_placed = np.repeat(placed, np.diff(samples.first))
    kept = samples.only(is_placed & has_value)
    lost = placed & ~_has_some(samples, has_value)
    of_large = lost & _has_some(samples, too_large)
    result.drop(TOO_LARGE, int(of_large.sum()))
    result.drop("no value", int((lost & ~of_large).sum()))
    for why, wrong in (("NULL", ~has_value & ~too_large), (TOO_LARGE, too_large)):
        number = int((is_placed & wrong).sum())
        if number:
            reader.metadata.warnings.append(f"{number:,} values of {what} are {why} and left out")
    return kept


def _has_some(samples: Samples, wanted: BoolArray) -> BoolArray:
    """Whether any of each sample's values is wanted."""
    has_some: BoolArray = np.diff(np.concatenate([[0], np.cumsum(wanted)])[samples.first]) > 0
    return has_some


def _without_repetitions(result: Result, samples: Samples, metrics: Sequence[EventType]) -> Samples:
    """Of each metric the last value of each sample: Paraver shows one at a time. Each of the others counts as read and
    dropped."""
    if not samples.value.size:
        return samples
    # Types that agree in their member have the same number, whatever ids they have.
    members = {each.member: i for i, each in enumerate(metrics)}
    number = np.array([members[each.member] for each in metrics], np.int32)[samples.metric]
    rises = number[1:] > number[:-1]
    rises[samples.first[1:-1] - 1] = True  # from one sample to the next it need not
    if rises.all():  # as mostly, and cheap to tell
        return samples
    sample = np.repeat(np.arange(samples.time.size), np.diff(samples.first))
    is_repetition = keys.mark_duplicates(sample[::-1], number[::-1].astype(np.int64))[::-1]
    result.read += int(is_repetition.sum())
    result.drop(REPETITION, int(is_repetition.sum()))
    return samples.only(~is_repetition)


def make_records(reader: ReportReader, samples: Samples, place: IntArray, metrics: Sequence[EventType]) -> Records:
    """One line for each sample: `place` by sample, types by metric."""
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


# ---- of parts of the node --------------------------------------------------------------------------------------------


def add_node_samples(
    reader: ReportReader,
    result: Result,
    blocks: list[Block],
    part_of: Callable[[Key], NodePart | None],
    metric_of: Callable[[Key], EventType | None],
    what: str,
) -> None:
    """Count and add samples, each on the row of its device with the node's own task.

    `part_of` a device is what it is of the node, `metric_of` the type of a metric; None where the key tells of none.
    """
    devices, kinds = make_keys(blocks)
    parts = {key: part for key in sorted(devices) if (part := part_of(key)) is not None}
    event_types = {key: event_type for key in kinds if (event_type := metric_of(key)) is not None}
    samples = join_blocks(blocks, _order(devices, parts), _order(kinds, event_types))
    result.read += samples.time.size
    metrics = list(event_types.values())
    is_real = np.array([metric.precision > 0 for metric in metrics], np.bool_)
    samples = select_sound(reader, result, samples, what, is_real=is_real)
    samples = _without_repetitions(result, samples, metrics)
    if samples.time.size:
        # Of rows that nothing is shown on none is made.
        used = np.zeros(len(parts), np.bool_)
        used[samples.device] = True
        place = np.full(len(parts), -1, np.int64)
        place[used] = reader.places.node_parts([part for part, of in zip(parts.values(), used, strict=True) if of])
        result.records.append(make_records(reader, samples, place[samples.device], metrics))


def _order(of: Iterable[Key], known: Mapping[Key, object]) -> dict[Key, int]:
    """Place of each key among the known ones; -1 for the others."""
    return dict.fromkeys(of, -1) | {key: i for i, key in enumerate(known)}


def scale_values(real: FloatArray) -> IntArray:
    """Real numbers as integers of the precision that `families.node_metric` has; NULL for what is not a number."""
    with np.errstate(over="ignore"):
        value = real * 10.0**families.REAL_PRECISION
    fits = np.abs(value) < 2.0**62  # not a number is not
    instead = np.where(fits, 0, np.where(np.isnan(value), NULL, _TOO_LARGE))
    return np.where(fits, np.rint(np.where(fits, value, 0)), 0).astype(np.int64) + instead
