"""Adds up where hosts wait for GPUs, and how long GPUs are idle after that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.gpus.readbacks import KEYS, load_readbacks, name_keys
from nsys2prv_ng.analysis.gpus.times import GpuTime
from nsys2prv_ng.arrays.groups import Table, make_objects, make_rows, sum_table
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.reading.opened_events import load_opened_events
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.steps.numbered_names import is_step
from nsys2prv_ng.summary.readbacks.numbers import ReadbackNumbers
from nsys2prv_ng.summary.totals import add_up


def sum_readbacks(report: ReportRecords, store: Store, counted: CountedEvents) -> Table:
    """Return the read-backs of a report that count, by KEYS: their number `count`, their `bytes` and `wait_ns`."""
    waits = load_readbacks(report, load_opened_events(report, source_names.CUDA_API, store), store)
    kept = np.flatnonzero(counted.mark_host(waits.thread, waits.begin))
    columns = {"key": waits.key[kept], "count": np.ones_like(kept), "bytes": waits.bytes[kept]}
    columns["wait_ns"] = (waits.end - waits.begin)[kept]
    return name_keys(sum_table(columns, ["key"]), waits.keys)


def list_readbacks(parts: Sequence[Table], times: Iterable[GpuTime], step: str) -> list[ReadbackNumbers]:
    """Return the read-backs of all reports, those after which GPUs are idle longest first.

    `parts`: what `sum_readbacks` returns; `times`: of GPUs, with their idle time after read-backs; `step`: the name or
    the template of the steps, which their ranges get.
    """
    tables = [*parts, *(time.readbacks for time in times if time.readbacks is not None)]
    sums = ("count", "bytes", "wait_ns", "idle_ns")
    for table in tables:
        table["range"] = make_objects(step if is_step(name, step) else name for name in table["range"].tolist())
    zeros = ({name: np.zeros_like(next(iter(table.values())), np.int64) for name in sums} for table in tables)
    rows = make_rows(add_up([{**zero, **table} for zero, table in zip(zeros, tables, strict=True)], KEYS))
    # A wait of the step before may leave its GPU idle in the first step that counts.
    found = [ReadbackNumbers(**row) for row in rows if row["count"]]
    return sorted(found, key=lambda row: (-row.idle_ns, -row.wait_ns, row.call, row.range))
