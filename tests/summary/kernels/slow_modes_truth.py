"""Made kernels with a known slow mode, and real reports in which some kernels take longer than they did."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from nsys2prv_ng.arrays.types import FloatArray
from nsys2prv_ng.summary.kernels.cells import Kernels, KernelTimes, Shape, join_times, sum_kernels

SHAPES = 12
"""Number of names and launch shapes of made kernels."""


def make_times(
    seed: int,
    ranks: int,
    steps: int,
    *,
    noise: float = 0.03,
    tail: float = 0.0,
    drift: float = 0.0,
    has_contents: bool = False,
    has_chance: bool = False,
    slow: tuple[int, range, float] | None = None,
) -> tuple[KernelTimes, float]:
    """Return the times of made kernels, and the time (ns) that a slow mode (rank, steps, factor) costs.

    `noise`: sigma of the logarithm. `tail`: share of kernels with a Pareto tail. `drift`: how much longer the first
    steps take. `has_contents`: every third place of a shape takes twice as long. `has_chance`: every second kernel
    takes 1.5 times as long, by chance.
    """
    random = np.random.default_rng(seed)
    usual, count = random.lognormal(11, 1, SHAPES), random.integers(3, 20, SHAPES)
    parts, lost = [], 0.0
    for rank in range(ranks):
        ns: list[FloatArray] = []
        keys = []
        for shape in range(SHAPES):
            size = (steps, int(count[shape]))
            step, place = np.indices(size)
            time = usual[shape] * random.lognormal(0, noise, size) * (1 + drift * np.exp(-step / 3))
            time *= np.where(random.random(size) < tail, 1 + random.pareto(1.5, size), 1)
            time *= np.where(has_contents & (place % 3 == 0), 2, 1)
            time *= np.where(has_chance & (random.random(size) < 0.5), 1.5, 1)
            if slow is not None and rank == slow[0]:
                is_slow = np.isin(step, slow[1])
                lost += (slow[2] - 1) * time[is_slow].sum()
                time = np.where(is_slow, slow[2] * time, time)
            ns.append(time.ravel())
            keys.append(np.stack([step.ravel(), np.full(step.size, shape), place.ravel()]))
        step, shape, place = np.concatenate(keys, axis=1).astype(np.int64)
        length = np.concatenate(ns).astype(np.int64)
        task, beside = np.full(step.size, rank), np.zeros(step.size, np.bool_)
        kernels = Kernels(task, step, shape, 1000 * step + place, place, length, beside)
        parts.append(sum_kernels(kernels, [Shape(f"kernel {n}", (n, 1, 1), (32, 1, 1)) for n in range(SHAPES)], steps))
    return join_times(parts), lost


def slow_down(path: Path, target: Path, first: int, factor: float, name: str = "%") -> int:
    """Copy a report whose kernels of a name, launched in step `first` or later, take longer; return how much (ns)."""
    shutil.copy(path, target)
    lost = 0
    with closing(sqlite3.connect(target)) as database:
        ranges = database.execute(
            """SELECT start, "end", coalesce(text, value) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId
            WHERE eventType = 59 AND coalesce(text, value) LIKE 'step%'"""
        ).fetchall()
        numbers = [(start, end, int(re.findall(r"-?\d+", text)[-1])) for start, end, text in ranges]
        database.execute("CREATE TEMP TABLE calls AS SELECT start, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME")
        database.execute("CREATE INDEX temp.by_id ON calls(correlationId)")
        for start, end, number in numbers:
            if number < first:
                continue
            kernels = database.execute(
                """SELECT kernels.rowid, kernels."end" - kernels.start FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernels
                JOIN calls USING (correlationId) JOIN StringIds ON id = shortName
                WHERE calls.start BETWEEN ? AND ? AND value NOT LIKE 'nccl%' AND value LIKE ?""",
                (start, end, name),
            ).fetchall()
            more = [(round((factor - 1) * ns), row) for row, ns in kernels]
            database.executemany('UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + ? WHERE rowid = ?', more)
            lost += sum(ns for ns, _ in more)
        database.commit()
    return lost
