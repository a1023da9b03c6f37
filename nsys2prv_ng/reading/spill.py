"""Spills the results of sources to a store, and loads them to change them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from nsys2prv_ng.clock.applying import ClockMap
from nsys2prv_ng.paraver.event_types import STATES
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.clip import retime_records
from nsys2prv_ng.records.columns import Records, shift_times
from nsys2prv_ng.records.runs import Run, load_records, store_records
from nsys2prv_ng.records.store import Store, StoredColumns, load_columns, store_columns
from nsys2prv_ng.runtime.engine import Engine
from nsys2prv_ng.sources.shared.source import Result, StateIntervals

T = TypeVar("T")


def spill_records(result: Result, store: Store, *, on_common_clock: bool) -> None:
    """Move the records that a result has in memory to the store."""
    records = rec.concatenate(result.records)
    result.records = []
    result.runs += store_records(records, store, on_common_clock=on_common_clock)


@contextmanager
def load_for_change(result: Result, store: Store, clock: ClockMap | None = None) -> Iterator[None]:
    """Load the records of a result to change them, and spill them at the end.

    With its report's `clock` they are then on the common clock; without it they must all be on one clock.
    """
    on_own_clock = [run for run in result.runs if not run.on_common_clock]
    common = clock is not None or not on_own_clock
    assert common or len(on_own_clock) == len(result.runs)
    result.records += [load_on_clock(run, store, clock) for run in result.runs]
    result.runs = []
    yield
    spill_records(result, store, on_common_clock=common)


def change_records(
    changes: Sequence[tuple[Result, ClockMap | None, T]],
    change: Callable[[Result, T], None],
    store: Store,
    engine: Engine,
) -> None:
    """Change the records of results, wherever the engine works.

    Each result comes with a clock for `load_for_change` and with the second argument of `change`.
    """

    def change_one(item: tuple[Result, ClockMap | None, T]) -> Result:
        result, clock, known = item
        with load_for_change(result, store, clock):
            change(result, known)
        return result

    copies = [(result.copy_records(), clock, known) for result, clock, known in changes]
    for (result, _, _), changed in zip(changes, engine.map(change_one, copies), strict=True):
        result.take_records(changed)


def load_on_clock(run: Run, store: Store, clock: ClockMap | None) -> Records:
    """Return the records of a run: on the common clock with its report's `clock`, otherwise as they are stored."""
    records = load_records(run, store)
    if clock is None or run.on_common_clock:
        return records
    if clock.drift:
        return retime_records(records, clock)
    shift_times(records, clock.offset)
    return records


_STATE_COLUMNS = np.int32, np.int64, np.int64, np.int16
"""Stored types of place, begin, end and state."""


def spill_states(states: Sequence[StateIntervals], store: Store) -> StoredColumns | None:
    """Move states to the store; None if there are none."""
    columns = [np.concatenate(column) for column in zip(*states, strict=True)]
    if not columns or not columns[0].size:
        return None
    return store_columns([c.astype(dtype, copy=False) for c, dtype in zip(columns, _STATE_COLUMNS, strict=True)], store)


def load_states(states: StoredColumns | None, places: int, store: Store) -> StateIntervals:
    """Return states that were spilled. `places`: number of places of their report."""
    if states is None:
        return StateIntervals(*(np.zeros(0, np.int64) for _ in range(4)))
    loaded = StateIntervals(*(column.astype(np.int64, copy=False) for column in load_columns(states, store)))
    if states.slot.is_named:
        place, begin, end, state = loaded
        far = rec.FARTHEST_TIME
        limits = (place, 0, places - 1), (state, 0, max(STATES)), (begin, -far, far), (end, -far, far)
        if (begin > end).any() or not all(((low <= c) & (c <= high)).all() for c, low, high in limits):
            raise rec.make_damage_error(states.slot.shelf)
    return loaded
