"""Efficiencies and steps in summaries: numbers of a small job that were worked out by hand, and the text on them."""

from __future__ import annotations

import json
import sqlite3
import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import nsys2prv_ng
from nsys2prv_ng.analysis.efficiency.efficiency import Efficiency, RangeTimes
from nsys2prv_ng.analysis.efficiency.times import CLASSES, DeviceTimes, HostTimes, WindowTimes
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.build import build_dataclass
from nsys2prv_ng.summary.efficiency.measure import sum_efficiency, sum_steps
from nsys2prv_ng.summary.efficiency.numbers import (
    DeviceEfficiency,
    EfficiencyNumbers,
    HostEfficiency,
    IdleInRange,
    StepNumbers,
    StepOfRank,
)
from nsys2prv_ng.summary.efficiency.windows import describe_parts, describe_steps, list_windows
from nsys2prv_ng.summary.text import format_efficiency, format_summary
from tests.spans import sum_lengths, unite
from tests.steps.made_steps import make_steps

MS = 10**6
TASKS = [SimpleNamespace(name="rank 0"), SimpleNamespace(name="rank 1")]
STEPS = make_steps(
    "step",
    np.array([4, 5, 6, 7]),
    warmup=1,
    task=np.array([0, 0, 0, 0, 1, 1, 1, 1]),
    row=np.array([0, 0, 0, 0, 9, 9, 9, 9]),
    step=np.array([0, 1, 2, 3, 0, 1, 2, 3]),
    begin=np.array([0, 10, 20, 30, 0, 10, 20, 30]) * MS,
    end=np.array([8, 18, 29, 40, 9, 17, 30, 38]) * MS,
)
"""Steps last 8, 8, 9, 10 ms on rank 0, and 9, 7, 10, 8 ms on rank 1."""


def make_times(window: int, ranges: dict[str, int] | None = None, **by_class: int) -> WindowTimes:
    """Times of two GPUs, one of which has three fifths of each sum, and of two threads outside of MPI half the time."""
    times = {name: by_class.get(name, 0) * MS for name in CLASSES}
    kernels = sum(times[name] for name in ("compute", "waiting", "moving", "not_split"))
    devices = DeviceTimes(
        2,
        times,
        times["compute"] * 3 // 5,
        kernels * 3 // 5,
        (kernels + times["memory"]) * 3 // 5,
        {"GEMM BF16": times["compute"]},
    )
    host = HostTimes(2, window * MS, window * MS * 3 // 4, window * MS // 4, 1, window * MS * 5 // 8)
    return WindowTimes(window * MS, devices, host, {name: ns * MS for name, ns in (ranges or {}).items()})


WHOLE = make_times(100, compute=40, waiting=40, moving=20, host=16, queued=4, before_first=60, after_last=20)
IN_STEPS = make_times(40, {"layer": 6, "": 2}, compute=32, waiting=20, moving=8, memory=4, host=8, queued=8)
SMALL = make_times(10, compute=8, waiting=4, moving=4, not_captured=2)
FOUND = Efficiency(
    windows=[(5 * MS, 105 * MS)],
    whole=WHOLE,
    steps=STEPS,
    in_steps=IN_STEPS,
    at_work=None,
    in_work=None,
    by_step=[SMALL] * 4,
    ranges=[RangeTimes("torch", "layer", 12, 2, SMALL)],
    gpu_times={},
)
JOB: Any = SimpleNamespace(
    scope=SimpleNamespace(origin=5 * MS, windows=[], selection=Selection()),
    tree=SimpleNamespace(ranks=[0, 1], model=SimpleNamespace(tasks=TASKS)),
)
WAITING: Any = SimpleNamespace(measure_threads=lambda row, begin, end: np.where(row == 9, 2 * MS, 0))


def make_rank(rank: int | None, task: str, ns: int, needed: int) -> StepOfRank:
    return StepOfRank(rank=rank, task=task, median_ns=ns, host_median_ns=ns, median_without_waiting_ns=needed)


def rate(found: Efficiency = FOUND) -> EfficiencyNumbers:
    numbers = sum_efficiency(JOB, found)
    assert numbers is not None
    return numbers


def describe_step_numbers() -> StepNumbers:
    numbers = sum_steps(JOB, FOUND, WAITING)
    assert numbers is not None
    return numbers


def test_both_conventions() -> None:
    numbers = rate()
    assert (numbers.length_ns, numbers.windows_ns, numbers.is_chosen) == (100 * MS, [(0, 100 * MS)], False)
    host = HostEfficiency(
        parallel=0.125,
        mpi_parallel=0.5,
        mpi_load_balance=2 / 3,
        mpi_communication=0.75,
        offload=0.25,
        mpi_balance_in_nodes=5 / 6,
        mpi_balance_of_nodes=4 / 5,
    )
    for trees, device in (
        (
            numbers.nccl_as_communication,
            DeviceEfficiency(parallel=0.2, load_balance=5 / 6, communication=0.4, orchestration=0.6),
        ),
        (
            numbers.nccl_as_useful,
            DeviceEfficiency(parallel=0.5, load_balance=5 / 6, communication=1.0, orchestration=0.6),
        ),
    ):
        assert trees.device is not None and trees.host is not None
        assert list(vars(trees.device).values()) == pytest.approx(list(vars(device).values()))
        assert list(vars(trees.host).values()) == pytest.approx(list(vars(host).values()))


def test_losses() -> None:
    numbers = rate()
    assert numbers.losses is not None and numbers.in_steps is not None and numbers.in_steps.losses is not None
    assert (numbers.losses.waiting_ns, numbers.losses.before_first_ns, numbers.losses.outside_ns) == (
        40 * MS,
        60 * MS,
        0,
    )
    assert numbers.in_steps.losses.idle_by_range == [
        IdleInRange(range="layer", ns=6 * MS),
        IdleInRange(range="", ns=2 * MS),
    ]
    assert numbers.losses.compute_by_class == {"GEMM BF16": numbers.losses.compute_ns}
    [row] = numbers.ranges
    assert (row.domain, row.name, row.occurrences, row.tasks) == ("torch", "layer", 12, 2)
    assert row.losses is not None and row.losses.outside_ns == 2 * MS
    assert [step.number for step in numbers.steps] == [4, 5, 6, 7]


def test_numbers_survive_json() -> None:
    for numbers in (rate(), describe_step_numbers()):
        assert build_dataclass(type(numbers), json.loads(json.dumps(asdict(numbers)))) == numbers


def test_numbers_of_steps() -> None:
    """Each step takes as long as on the slower rank: 9, 8, 10 and 10 ms."""
    assert describe_step_numbers() == StepNumbers(
        name="step",
        delimiter="",
        similarity=1.0,
        ends_on="host",
        window_ns=(-5 * MS, 35 * MS),
        host_median_ns=9_500_000,
        count=4,
        warmup=1,
        first=4,
        last=7,
        median_ns=9_500_000,
        min_ns=8 * MS,
        max_ns=10 * MS,
        spread=2 / 9.5,
        slowest=6,
        drift=1.5 / 9.5,
        ranks=[
            StepOfRank(
                rank=0,
                task="rank 0",
                median_ns=8_500_000,
                host_median_ns=8_500_000,
                median_without_waiting_ns=8_500_000,
            ),
            StepOfRank(
                rank=1,
                task="rank 1",
                median_ns=8_500_000,
                host_median_ns=8_500_000,
                median_without_waiting_ns=6_500_000,
            ),
        ],
    )


def test_the_step_in_the_middle_is_in_no_half() -> None:
    """The steps take 9, 8 and 10 ms."""
    steps = sum_steps(JOB, FOUND._replace(steps=STEPS.take(np.array([0, 1, 2]))), WAITING)
    assert steps is not None and steps.drift == 1 / 9


def test_one_step_has_no_drift() -> None:
    steps = sum_steps(JOB, FOUND._replace(steps=STEPS.take(np.array([0]))), WAITING)
    assert steps is not None and (steps.drift, steps.spread, steps.count) == (None, 0.0, 1)
    [_, [line, *_]] = format_efficiency(rate(), steps, 120)
    assert line.startswith("`step` 4: median 9.00 ms; without waiting for others 7.00 ms (rank 1) to 8.00 ms (rank 0)")


# ---- text ------------------------------------------------------------------------------------------------------------


def test_parts_are_those_of_the_steps() -> None:
    assert describe_parts(rate(), describe_step_numbers()) == (
        "Time of 2 GPUs in `step` 4 to 7: 40.0% compute, 25.0% wait time, 10.0% data transfer, 10.0% host-bound, "
        "10.0% queued, 5.0% exposed copies"
    )


def test_parts_without_steps_are_those_of_the_whole_time() -> None:
    assert describe_parts(rate(FOUND._replace(steps=None, in_steps=None, by_step=[])), None) == (
        "Time of 2 GPUs in the capture: 20.0% compute, 30.0% before the first operation, 20.0% wait time, "
        "10.0% data transfer, 10.0% after the last operation, 8.0% host-bound, 2.0% queued"
    )
    chosen = describe_parts(replace(rate(), is_chosen=True, in_steps=None), None)
    assert chosen.startswith("Time of 2 GPUs in the chosen time: 20.0% compute, ")


def test_the_tables() -> None:
    table, steps = format_efficiency(rate(), describe_step_numbers(), 80)
    assert table == [
        "Efficiencies in the capture (100 ms) and `step` 4 to 7 (40.0 ms), with NCCL as",
        "communication (BasicAnalysis) or useful (TALP):",
        "NCCL is                   communication          useful",
        "                                capture  steps  capture  steps",
        "2 GPUs, parallel                  20.0%  40.0%    50.0%  75.0%",
        "  load balance                    83.3%  83.3%    83.3%  83.3%",
        "  communication                   40.0%  50.0%   100.0%  93.8%",
        "  orchestration                   60.0%  96.0%    60.0%  96.0%",
        "2 main threads, parallel          12.5%  12.5%",
        "  MPI parallel                    50.0%  50.0%",
        "    load balance                  66.7%  66.7%",
        "    communication                 75.0%  75.0%",
        "  device offload                  25.0%  25.0%",
        "Time of 2 GPUs in `step` 4 to 7: 40.0% compute, 25.0% wait time, 10.0% data",
        "transfer, 10.0% host-bound, 10.0% queued, 5.0% exposed copies",
    ]
    assert steps == [
        "`step` 4 to 7: median 9.50 ms, 8.00 ms to 10.0 ms (spread 21.1%), slowest 6,",
        "later half 15.8% slower; without waiting for others 6.50 ms (rank 1) to 8.50 ms",
        "(rank 0)",
    ]


def test_without_nccl_there_is_one_convention() -> None:
    alone = make_times(40, compute=32, host=48)
    table, _ = format_efficiency(rate(FOUND._replace(whole=alone, in_steps=alone)), describe_step_numbers(), 80)
    assert table[:3] == [
        "Efficiencies in the capture (40.0 ms) and `step` 4 to 7 (40.0 ms):",
        "                          capture   steps",
        "2 GPUs, parallel            40.0%   40.0%",
    ]


def test_without_gpus_there_is_what_mpi_costs() -> None:
    hosts = WHOLE._replace(devices=None)
    numbers = rate(FOUND._replace(whole=hosts, steps=None, in_steps=None, by_step=[], ranges=[]))
    assert numbers.losses is None and numbers.nccl_as_useful.device is None
    assert describe_parts(numbers, None) == ""
    [table, steps] = format_efficiency(numbers, None, 80)
    assert [line.split("  ")[0] for line in table] == ["Efficiencies in the capture (100 ms):", "", *HOST_NAMES]
    assert steps == []


HOST_NAMES = ["2 main threads, parallel", "", "", "", ""]


def test_nothing_to_rate() -> None:
    nothing = WHOLE._replace(devices=None, host=None)
    assert sum_efficiency(JOB, FOUND._replace(whole=nothing)) is None
    assert sum_steps(JOB, FOUND._replace(steps=None), WAITING) is None
    assert format_efficiency(None, None, 80) == []


@pytest.mark.parametrize("width", [80, 120])
def test_names_of_reports_stay_on_their_line(width: int) -> None:
    hostile = "lay\n\x1b[31mer\t" * 20
    named = IN_STEPS._replace(idle_by_range={hostile: 8 * MS})
    numbers = rate(FOUND._replace(in_steps=named))
    steps = replace(
        describe_step_numbers(), name=hostile, ranks=[make_rank(None, hostile, 1, 1), make_rank(1, "rank 1", 2, 2)]
    )
    assert describe_parts(numbers, steps).isprintable()
    for line in (line for lines in format_efficiency(numbers, steps, width) for line in lines):
        assert line.isprintable() and len(line) <= width


# ---- the pace --------------------------------------------------------------------------------------------------------


def describe_lengths(ms: Sequence[int]) -> StepNumbers:
    """Numbers of steps of these lengths on one task."""
    count = len(ms)
    begin = np.arange(count) * 1000 * MS
    task = np.zeros(count, np.int64)
    steps = make_steps("step", np.arange(count), task, np.arange(count), begin, begin + np.array(ms) * MS)
    numbers = sum_steps(JOB, FOUND._replace(steps=steps), WAITING)
    assert numbers is not None
    return numbers


@pytest.mark.parametrize("ms", [[8, 9], [10, 12, 11, 30, 13], [18, 145] * 29, [5] * 9 + [50], list(range(100, 140))])
def test_drift_is_the_median_of_all_differences_of_the_halves(ms: list[int]) -> None:
    half = len(ms) // 2
    shifts = [later - earlier for later in ms[len(ms) - half :] for earlier in ms[:half]]
    assert describe_lengths(ms).drift == pytest.approx(statistics.median(shifts) / statistics.median(ms))


def test_steps_that_take_turns_are_no_slower_later() -> None:
    """29 steps of each half: their medians are those of a short and of a long step."""
    numbers = describe_lengths([18, 145] * 29)
    assert (numbers.drift, numbers.turns_ns) == (0, (18 * MS, 145 * MS))
    assert describe_steps(numbers).startswith(
        "`step` 0 to 57: median 81.5 ms, alternating between 18.0 ms and 145 ms, 18.0 ms to "
    )


@pytest.mark.parametrize("count", [2_000, 2_002, 3_002, 4_006])
def test_a_sample_of_many_steps_has_short_and_long_ones(count: int) -> None:
    """An odd half begins with a short step, and the other one with a long step."""
    assert describe_lengths([18, 145] * (count // 2)).drift == 0
    slower = describe_lengths(range(10 * count, 11 * count))
    assert slower.drift == pytest.approx(count / 2 / (10.5 * count), rel=1e-3)


# ---- captures without steps ------------------------------------------------------------------------------------------


def test_without_steps_the_time_in_which_gpus_work_counts(samples: Path) -> None:
    """Compared with plain SQL: the capture is 15 times as long as the time in which the GPU works."""
    summary = nsys2prv_ng.summarize(samples / "single-graph.sqlite", jobs=1)
    with closing(sqlite3.connect(samples / "single-graph.sqlite")) as database:
        tables = [f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "GRAPH_TRACE", "MEMCPY", "MEMSET")]
        kernels, graphs, *others = (
            database.execute(f'SELECT start AS begin, "end" FROM {table}').fetchall() for table in tables
        )
    every = [*kernels, *graphs, *(interval for own in others for interval in own)]
    window = max(end for _, end in every) - min(begin for begin, _ in every)
    computing = sum_lengths(unite(pd.DataFrame([*kernels, *graphs], columns=["begin", "end"])))
    busy = sum_lengths(unite(pd.DataFrame(every, columns=["begin", "end"])))

    efficiency = summary.efficiency
    assert efficiency is not None and efficiency.in_work is not None and efficiency.work_ns is not None
    losses = efficiency.in_work.losses
    assert losses is not None
    assert efficiency.in_work.length_ns == efficiency.work_ns[1] - efficiency.work_ns[0] == window
    assert (losses.compute_ns, losses.memory_ns) == (computing, busy - computing)
    idle = losses.host_ns + losses.queued_ns + losses.graph_ns + losses.unknown_ns
    assert (idle, losses.before_first_ns, losses.after_last_ns) == (window - busy, 0, 0)
    share = 100 * computing / window
    text = describe_parts(efficiency, summary.steps)
    assert text.startswith(f"Time of 1 GPU in the time in which GPUs work: {share:.1f}% compute, ")
    assert format_summary(summary).splitlines()[0].endswith(" | the time in which GPUs work (221 ms)")
    doubt = "no steps found (mark them with NVTX): numbers cover the time in which GPUs work"
    assert doubt in " ".join(format_summary(summary).split())


@pytest.mark.all_sets
def test_chosen_steps_are_shown_once(samples: Path) -> None:
    reports = sorted(samples.glob("ddp-2x2.rank*.sqlite"))[:1]
    default = nsys2prv_ng.summarize(reports, jobs=1)
    chosen = nsys2prv_ng.summarize(reports, skip_warmup=True, jobs=1)
    timed = nsys2prv_ng.summarize(reports, time=(0, 700_000_000), jobs=1)
    for summary, titles in ((default, ["steps"]), (chosen, ["steps"]), (timed, ["chosen", "steps"])):
        assert summary.efficiency is not None and summary.efficiency.in_steps is not None
        assert [window.title for window in list_windows(summary.efficiency, summary.steps)] == titles


def test_a_time_that_was_chosen_is_the_window(samples: Path) -> None:
    summary = nsys2prv_ng.summarize(samples / "single-graph.sqlite", time=(0, 3_000_000_000), jobs=1)
    assert summary.efficiency is not None and summary.efficiency.in_work is None
