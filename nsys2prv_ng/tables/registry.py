"""Lists the tables, and finds one by the name that a user gives."""

from __future__ import annotations

from nsys2prv_ng.tables import event_tables as events
from nsys2prv_ng.tables import job_tables as jobs
from nsys2prv_ng.tables.columns import Table, find_named

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        events.KERNELS, events.COPIES, events.CUDA_CALLS, events.SYNCHRONIZATIONS, events.NVTX, events.NVTX_ON_GPU,
        jobs.COLLECTIVES, jobs.MESSAGES, events.MPI_CALLS, events.OS_CALLS, events.GPU_METRICS, events.MEMORY,
        events.SAMPLES, jobs.GAPS, jobs.STEPS, jobs.WAITS, jobs.CRITICAL_PATH,
    )
}  # fmt: skip
"""The tables by name."""


def find_table(name: str) -> Table:
    """Return a table by its name. Raises UsageError with the nearest name for another one."""
    return find_named(TABLES, name, "table", "tables")
