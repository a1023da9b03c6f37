"""The table of operators with known FLOPs."""

from __future__ import annotations

from nsys2prv_ng.summary.numbers.flops import FlopNumbers
from nsys2prv_ng.text.formatting import format_flops, format_percent
from nsys2prv_ng.text.grid import Cell, Count, FlopRate, Flops, Grid, Name, Ns, make_columns


def tabulate_flops(flops: FlopNumbers) -> Grid:
    """Return the operators with known shapes, the most FLOPs first."""
    rows: list[list[Cell]] = [
        [
            Name(each.operator),
            each.number_type or "-",
            Count(each.count),
            Flops(each.flops),
            Ns(each.kernel_ns),
            FlopRate(each.flops / each.kernel_ns * 1e9 if each.kernel_ns else None),
        ]
        for each in flops.operators
    ]
    return Grid(
        caption="FLOPs of operators by their shapes, and time of the kernels that they launched",
        columns=make_columns("operator", "type", "count", "FLOPs", "kernel time", "rate"),
        rows=rows,
        names=2,
        below=_describe(flops),
    )


def _describe(flops: FlopNumbers) -> list[str]:
    """Return how much operators with shapes compute, how fast, and how much of such work they are."""
    each = ""
    if flops.steps:
        each = f" {format_flops(flops.flops / flops.steps / flops.tasks)} a step and rank"
    rate = f"{format_flops(flops.flops / flops.kernel_ns * 1e9)}/s while their kernels run" if flops.kernel_ns else ""
    share = format_percent(flops.explained_ns, flops.of_ns)
    return [
        f"At least{each or ' ' + format_flops(flops.flops)}, {rate}",
        f"These operators launched {share} of the time in GEMM, attention and convolution kernels",
    ]
