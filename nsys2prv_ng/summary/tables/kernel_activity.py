"""Makes the table of what GPUs use while kernels of one class run."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.summary.numbers.kernel_activity import LIMIT_PERCENT, KernelActivity
from nsys2prv_ng.text.grid import Cell, Column, Count, Grid, Name, Ns, Rate, Share, make_columns


def tabulate_kernel_activity(activity: Sequence[KernelActivity]) -> Grid:
    """Return a row for each class of kernels, the class with most sampled time first."""
    rows: list[list[Cell]] = [
        [
            Name(each.kernel_class),
            Ns(each.ns),
            Count(each.samples),
            *(
                Rate(None) if percent is None else Share(percent, 100)
                for percent in (each.sm_active, each.sm_issue, each.tensor_active, each.dram_read, each.dram_write)
            ),
            each.limited_by,
        ]
        for each in activity
    ]
    columns = ("kernel class", Column("time sampled", minor=True), Column("samples", minor=True))
    units = ("SM active", Column("SM issue", minor=True), "tensor active", "DRAM read", "DRAM write")
    return Grid(
        caption="GPU activity while kernels of one class run",
        columns=make_columns(*columns, *units, Column("limited by", optional=True)),
        rows=rows,
        more="classes",
        below=[f"Limited by: DRAM (read + write) or tensor cores, the busier one, from {LIMIT_PERCENT}% of peak on"],
    )
