"""Comparisons for tests of pages: runs that never ran, and what a page draws of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nsys2prv_ng.analysis.efficiency.typical_step import RangeBar, RangesOfTask
from nsys2prv_ng.comparison.model import Side
from nsys2prv_ng.summary.efficiency.numbers import StepEfficiency
from nsys2prv_ng.summary.kernels.numbers import KernelNumbers
from nsys2prv_ng.summary.memory.numbers import MemoryOperationNumbers
from nsys2prv_ng.summary.pictures.numbers import Pictures, TypicalStep
from nsys2prv_ng.summary.ranges.numbers import RangeOfTask, RepeatedRange
from tests.comparison.made import GPUS, MS, make_summary
from tests.comparison.made_runs import make_facts, make_gpu


def make_side(label: str, factor: float = 1.0, *, kernels: int = 12, name: str = "") -> Side:
    """A run of eight steps, whose compute, kernels, ranges and copies take `factor` as long as usual.

    If they do not take as long as usual, three kernels have names that no usual run has. `name` is part of all names.
    """
    names = [f"kernel {n} {name}" for n in range(kernels)]
    names += [f"{name} of {label} {n}" for n in range(3)] if factor != 1 else []
    summary = make_summary(
        [
            {"compute_ns": round(factor * (20 + n) * MS * GPUS), "host_ns": 9 * MS * GPUS, "moving_ns": (4 + n) * MS}
            for n in range(8)
        ],
        ranges={f"loading {name}": 72 * MS * GPUS},
        facts=make_facts(captures=[label], programs=[f"python {name}"], nsys_versions=[f"2025 {label}"]),
        kernels=[
            KernelNumbers(
                name=own,
                kernel_class=f"class {n % 2} {name}",
                count=80,
                total_ns=round(factor * MS * GPUS * (10 + n % 7)),
                min_ns=1,
                max_ns=1,
            )
            for n, own in enumerate(names)
        ],
        memory_operations=[
            MemoryOperationNumbers(
                operation=f"copy {name}", count=8, bytes=10**9, total_ns=round(factor * 30 * MS * GPUS), rated_ns=1
            )
        ],
    )
    task = RangeOfTask(rank=0, task=f"python {name}", count=8, total_ns=round(factor * 90 * MS), min_ns=1, max_ns=1)
    return Side(
        label,
        replace(
            summary,
            gpus=[make_gpu(n, f"GPU {name}") for n in range(GPUS)],
            ranges=[RepeatedRange(domain="", name=f"forward {name}", depth=1, tasks=[task])],
            warnings=[f"clocks of {name}"],
        ),
    )


def make_pictures(length: int, *, rows: int = 4, bins: int = 200, name: str = "", tasks: int = 1) -> Pictures:
    """A typical step of `length` ns whose rows do three things in turn."""
    values = np.tile((np.arange(bins) // 10 % 3 + 1).astype(np.uint8), (rows, 1))
    activities = {key: f"{key} {name}" for key in ("compute", "waiting", "moving")}
    bars = [
        RangeBar(depth=0, begin_ns=5 * MS, end_ns=5 * MS + length, name=f"step {name}"),
        RangeBar(depth=1, begin_ns=5 * MS, end_ns=6 * MS, name=f"forward {name}"),
    ]
    ranges = [RangesOfTask(label=f"rank {n} {name}", bars=[*bars], hidden=2) for n in range(tasks)]
    step = TypicalStep(
        name=f"step 4 {name}",
        begin_ns=5 * MS,
        end_ns=5 * MS + length,
        ns=length,
        rows=[f"rank {n} {name}" for n in range(rows)],
        activities=activities,
        values=values,
        ranges=ranges,
    )
    return Pictures(begin_ns=0, end_ns=10 * length, step=step)


def drop_steps(side: Side) -> Side:
    """The same run, in which no steps were found."""
    efficiency = side.summary.efficiency
    assert efficiency is not None
    steps: list[StepEfficiency] = []
    bare = replace(efficiency, in_steps=None, steps_ns=None, steps=steps, is_chosen=False)
    return Side(side.label, replace(side.summary, steps=None, efficiency=bare, windows_ns=[]))
