"""What was read, in a store: put away by source, and back in memory to be changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Records, shift_times
from nsys2prv_ng.records.retime import retime_records
from nsys2prv_ng.records.runs import load_records, store_records
from nsys2prv_ng.records.store import Slot, Store
from nsys2prv_ng.sources.shared.result import Result, StateIntervals


@dataclass(frozen=True)
class SpilledStates:
    """States that the events of a report ask for, with its own places and times."""

    slot: Slot | None
    count: int


def spill_records(result: Result, store: Store, *, on_common_clock: bool) -> None:
    """Put the records that a result has in memory away."""
    records = result.records[0] if len(result.records) == 1 else rec.concatenate(result.records)
    result.records = []
    result.runs += store_records(records, store, on_common_clock=on_common_clock)


@contextmanager
def load_for_change(result: Result, store: Store, clock: ClockMap | None = None) -> Iterator[None]:
    """Have the records of a result in memory, to change them, and put them away again.

    With its report's `clock` they are on the common clock from then on; without they must all be of one clock.
    """
    of_report = [run for run in result.runs if not run.on_common_clock]
    common = clock is not None or not of_report
    assert common or len(of_report) == len(result.runs)
    for run in result.runs:
        records = load_records(run, store)
        result.records.append(records if clock is None or run.on_common_clock else _moved(records, clock))
    result.runs = []
    yield
    spill_records(result, store, on_common_clock=common)


def _moved(records: Records, clock: ClockMap) -> Records:
    """Records of a report's times on the common clock; may be the same ones."""
    if clock.drift:
        return retime_records(records, clock)
    shift_times(records, clock.offset)
    return records


_STATE_COLUMNS = np.int32, np.int64, np.int64, np.int16
"""Place, begin, end and state as they are stored."""


def spill_states(states: Sequence[StateIntervals], store: Store) -> SpilledStates:
    """Put states away."""
    columns = [np.concatenate(column) for column in zip(*states, strict=True)]
    if not columns or not columns[0].size:
        return SpilledStates(None, 0)
    stored = [column.astype(dtype, copy=False) for column, dtype in zip(columns, _STATE_COLUMNS, strict=True)]
    return SpilledStates(store.put(stored), columns[0].size)


def load_states(states: SpilledStates, store: Store) -> StateIntervals:
    """States that were put away."""
    columns = [np.empty(states.count, dtype) for dtype in _STATE_COLUMNS]
    if states.slot is not None:
        store.get(states.slot, columns)
    return StateIntervals(*(column.astype(np.int64, copy=False) for column in columns))
