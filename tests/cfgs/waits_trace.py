"""A made trace of three ranks that wait for each other, and the value of each row and type in each nanosecond."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from nsys2prv_ng.paraver import event_types as types
from tests.trace_reader import Trace, read_trace

END = 20_000
TASK_OF_ROW = (0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2)
STREAMS, GPUS = (1, 2, 6, 9), (3, 4, 7, 10)
"""Rows: each rank has a host thread, streams and GPUs; rank 0 has two of the latter."""

PART, RANK, REASON, LATENESS, ACTIVITY = 63000410, 63000411, 63000412, 63000414, 63000413
SENT, PEER, RECEIVED, RANGE = 9506, 9507, 9508, 9620
_VALUES = {PART: ("waiting", "moving"), RANK: ("rank 0", "rank 1", "rank 2"), RANGE: ("forward", "backward", "layer")}
_TITLES = {
    event_type.number: event_type.title
    for event_type in (
        types.OPERATION_PART,
        types.WAITED_FOR,
        types.WAIT_REASON,
        types.GPU_ACTIVITY_WITH_WAITS,
        types.LATENESS,
        types.NCCL_SEND_BYTES,
        types.NCCL_RECEIVE_PEER,
        types.NCCL_RECEIVE_BYTES,
    )
} | {RANGE: "NVTX range on GPU, lane 1"}

Values = dict[int, np.ndarray]
"""By event type, the value in each row and nanosecond; of ranges the innermost."""


def make_waits_trace(folder: Path, seed: int) -> tuple[Trace, Values]:
    """Write a trace of random kernels and return it with its values.

    A kernel is split or not, has sent and received bytes or not, and may have had no rank that was last. Kernels of a
    stream do not overlap, but some begin where the one before ends.
    """
    rng = random.Random(seed)
    values = {number: np.zeros((len(TASK_OF_ROW), END), np.int64) for number in _TITLES}
    lines: list[tuple[int, int, str]] = []

    def write(row: int, time: int, *pairs: int) -> None:
        task = TASK_OF_ROW[row]
        place = f"{row + 1}:1:{task + 1}:{row - TASK_OF_ROW.index(task) + 1}"
        lines.append((time, len(lines), ":".join(map(str, ("2", place, time, *pairs)))))

    def write_interval(row: int, begin: int, end: int, *pairs: int) -> None:
        for number, value in zip(pairs[::2], pairs[1::2], strict=True):
            values[number][row, begin:end] = value
        write(row, begin, *pairs)
        write(row, end, *(part for number in pairs[::2] for part in (number, 0)))

    for row in STREAMS:
        time = 0
        while (kernels := list(_make_kernels(rng, time)))[-1][1] < END - 100:
            _write_ranges(rng, row, time, kernels[-1][1], values, write)
            for begin, end in kernels:
                _write_kernel(rng, row, begin, end, write, write_interval)
            time = kernels[-1][1] + rng.choice((0, 50))
    for row in GPUS:
        changes = [0, *sorted(rng.sample(range(1, END - 1), 300)), END]
        for begin, end in itertools.pairwise(changes):
            value = rng.randint(1, 9)
            values[ACTIVITY][row, begin:end] = value
            write(row, begin, ACTIVITY, value)
    return _write_trace(folder, [line for _, _, line in sorted(lines)]), values


def _make_kernels(rng: random.Random, time: int) -> Iterator[tuple[int, int]]:
    for _ in range(rng.randint(2, 5)):
        begin = time + rng.choice((0, rng.randint(1, 100)))
        time = begin + rng.randint(3, 200)
        yield begin, time


def _write_ranges(
    rng: random.Random, row: int, begin: int, end: int, values: Values, write: Callable[..., None]
) -> None:
    """Write a range around some kernels, and one in it."""
    inner = sorted(rng.sample(range(begin + 1, end), 2))
    outer_value = rng.randint(1, 2)
    values[RANGE][row, begin:end] = outer_value
    values[RANGE][row, inner[0] : inner[1]] = 3
    for time, value in ((begin, outer_value), (inner[0], 3), (inner[1], 0), (end, 0)):
        write(row, time, RANGE, value)


def _write_kernel(
    rng: random.Random, row: int, begin: int, end: int, write: Callable[..., None], write_interval: Callable[..., None]
) -> None:
    if rng.random() < 0.4:
        write_interval(row, begin, end, SENT, rng.randint(1, 10**9))
    if rng.random() < 0.4:
        write(row, begin, PEER, rng.randint(1, 3))
        write_interval(row, begin, end, RECEIVED, rng.randint(1, 10**9))
    if rng.random() < 0.2:
        return
    until = rng.choice((begin, end, rng.randint(begin, end)))
    if until > begin:
        rank, reason = rng.randint(1, 3), rng.randint(1, 5)
        blame = (RANK, rank, REASON, reason) if rng.random() < 0.8 else ()
        write_interval(row, begin, until, PART, 1, *blame)
    else:
        write_interval(row, begin, end, LATENESS, round(10 ** rng.uniform(1, 9)))
    if end > until:
        write_interval(row, until, end, PART, 2)


def _write_trace(folder: Path, lines: list[str]) -> Trace:
    applications = ",".join(f"{TASK_OF_ROW.count(task)}:1" for task in range(3))
    header = f"#Paraver (01/01/2024 at 00:00):{END}_ns:1({len(TASK_OF_ROW)}):1:3({applications})"
    (folder / "trace.prv").write_text("\n".join([header, *lines, ""]))
    labels = []
    for number, title in _TITLES.items():
        labels += ["EVENT_TYPE", f"0 {number} {title}"]
        values = {0: "End"} | dict(enumerate(_VALUES.get(number, ()), 1))
        values |= {REASON: types.LATE_REASONS, ACTIVITY: types.GPU_WAITS}.get(number, {})
        if len(values) > 1:
            labels += ["VALUES", *(f"{value} {label}" for value, label in values.items())]
        labels.append("")
    (folder / "trace.pcf").write_text("\n".join(labels))
    names = [f"row {row}" for row in range(len(TASK_OF_ROW))]
    tasks = "\n".join(f"rank {task}" for task in range(3))
    threads = "\n".join(names)
    (folder / "trace.row").write_text(f"LEVEL TASK SIZE 3\n{tasks}\nLEVEL THREAD SIZE {len(names)}\n{threads}\n")
    return read_trace(folder / "trace.prv")
