"""Stages and bubbles of pipelines against plain SQL over real reports, and against simulated schedules."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.html.blocks import Table
from nsys2prv_ng.html.page import render_page
from nsys2prv_ng.html.summary_sections.between_ranks import make_pipeline_section
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.links.numbers import PipelineNumbers
from nsys2prv_ng.summary.links.stages import StepMessages, count_micro_batches, find_stages
from nsys2prv_ng.summary.links.table import describe_pipeline
from nsys2prv_ng.summary.text import format_summary
from tests.conftest import Unpacked
from tests.summary.links.links_truth import read_nccl, read_utc
from tests.summary.links.pipeline_simulator import (
    LATENCY,
    MS,
    Pass,
    Stage,
    list_gpipe,
    list_one_forward_one_backward,
    simulate,
    write_reports,
)
from tests.summary.links.pipeline_truth import list_idle, list_steps, list_waits, measure_inside, read_ranks
from tests.summary.made import IN_STEPS, summarize_reports
from tests.tiers import cases

PIPELINE = [f"exercises/ex3a-pp2.rank{rank}.sqlite" for rank in range(4)]
PARTS = ("compute_ns", "receive_wait_ns", "idle_ns", "send_wait_ns", "collective_wait_ns", "transfer_ns", "other_ns")
STEPS = 6


def pipeline_in(found: JobSummary) -> PipelineNumbers:
    assert found.waits is not None and found.waits.pipeline is not None
    return found.waits.pipeline


def check_sums(pipeline: PipelineNumbers) -> None:
    for stage in pipeline.stages:
        assert sum(getattr(stage, part) for part in PARTS) == pipeline.measure_whole(stage)
        assert sum(stage.bubble_by_step) == stage.bubble_ns
        assert len(stage.bubble_by_step) == len(pipeline.steps) == len(pipeline.step_ns)


# ---- a real pipeline -------------------------------------------------------------------------------------------------


def read_begins(reports: Sequence[Path]) -> dict[tuple[int, int], int]:
    begins = {}
    for rank, report in enumerate(reports):
        with closing(sqlite3.connect(report)) as database:
            utc = read_utc(database)
            rows = database.execute("SELECT correlationId, start FROM CUPTI_ACTIVITY_KIND_KERNEL")
            begins |= {(rank, correlation): utc + start for correlation, start in rows}
    return begins


def sum_truth(reports: Sequence[Path]) -> list[dict[str, list[int]]]:
    """Return receive waits, send waits and idle time of each stage by step, and the lengths of the steps."""
    ranks, messages, begins = read_ranks(reports), read_nccl(reports), read_begins(reports)
    steps = list_steps(ranks)
    stages = []
    for stage, others in (((0, 1), (2, 3)), ((2, 3), (0, 1))):
        sums = {name: np.zeros(len(steps), np.int64) for name in ("receive", "send", "idle")}
        for number in stage:
            receives, sends = (list_waits(messages, begins, number, sends=sends) for sends in (False, True))
            sums["receive"] += measure_inside(receives, steps)
            sums["send"] += measure_inside(sends, steps)
            idle = list_idle(ranks[number], receives, steps, [ranks[other] for other in others])
            sums["idle"] += measure_inside(idle, steps)
        stages.append({name: values.tolist() for name, values in sums.items()})
        stages[-1]["steps"] = [end - begin for begin, end in steps]
    return stages


def check_real(pipeline: PipelineNumbers, truth: list[dict[str, list[int]]], error: int) -> None:
    """`error`: how much a time may differ (ns)."""
    check_sums(pipeline)
    assert [[end.rank for end in stage.ends] for stage in pipeline.stages] == [[0, 1], [2, 3]]
    assert (pipeline.micro_batches, pipeline.pipelines, pipeline.backward) == (8, 2, True)
    assert pipeline.steps == [1, 2, 3] and pipeline.step_ns == pytest.approx(truth[0]["steps"], abs=error)
    for stage, sums in zip(pipeline.stages, truth, strict=True):
        assert stage.receive_wait_ns == pytest.approx(sum(sums["receive"]), abs=error)
        assert stage.send_wait_ns == pytest.approx(sum(sums["send"]), abs=error)
        assert stage.idle_ns == pytest.approx(sum(sums["idle"]), abs=error)
        bubble = [a + b for a, b in zip(sums["receive"], sums["idle"], strict=True)]
        assert stage.bubble_by_step == pytest.approx(bubble, abs=error)


@pytest.mark.slow
def test_a_real_pipeline_on_one_clock(shared_reports: Path, unpacked: Unpacked, tmp_path: Path) -> None:
    reports = [Path(shutil.copy(unpacked(shared_reports / name), tmp_path)) for name in PIPELINE]
    for report in reports:
        with closing(sqlite3.connect(report)) as database, database:
            database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = 'one' WHERE name = 'Hostname'")
    pipeline = pipeline_in(summarize_reports(reports, IN_STEPS))
    check_real(pipeline, sum_truth(reports), error=0)
    assert pipeline.clock_error_ns == 0 and all(stage.unclaimed == 0 for stage in pipeline.stages)
    assert pipeline.pace is None  # both stages work equally long


@pytest.mark.all_sets
@pytest.mark.slow
def test_a_real_pipeline_on_two_clocks(shared_reports: Path, unpacked: Unpacked) -> None:
    reports = [unpacked(shared_reports / name) for name in PIPELINE]
    found = summarize_reports(reports, IN_STEPS)
    pipeline = pipeline_in(found)
    messages = 2 * 2 * 8 * 3  # of the ranks of a stage in all steps, in both directions
    assert 0 < pipeline.clock_error_ns < 200_000
    check_real(pipeline, sum_truth(reports), error=messages * pipeline.clock_error_ns)
    text = describe_pipeline(found.pipeline)
    assert text.startswith("2 stages, 8 micro-batches a step; the bubble takes 4.8") and "sets the pace" not in text
    assert "ms a step (6.7%) on stage 0 (ranks 0-1), 5.4" in text and "(7.5%) on stage 1 (ranks 2-3), " in text
    [[first, second]] = re.findall(r", ([0-9.]+)% and ([0-9.]+)% with waits until a neighbour receives", text)
    for stage, share in zip(pipeline.stages, (first, second), strict=True):
        assert float(share) == pytest.approx(
            100 * (stage.bubble_ns + stage.send_wait_ns) / pipeline.measure_whole(stage), abs=0.05
        )
    assert text.endswith(f"({100 / 9:.1f}% if stages were even)")  # (2 - 1) / (8 + 2 - 1)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", cases([pytest.param((0, 1)), pytest.param((0, 2, 3))], push=1))
def test_a_part_of_a_pipeline_is_none(shared_reports: Path, unpacked: Unpacked, ranks: tuple[int, ...]) -> None:
    found = summarize_reports([unpacked(shared_reports / PIPELINE[rank]) for rank in ranks], IN_STEPS)
    assert found.waits is not None and found.waits.pipeline is None


@pytest.mark.slow
@pytest.mark.all_sets
def test_chosen_ranks_are_a_pipeline_with_all_stages(shared_reports: Path, unpacked: Unpacked) -> None:
    reports = [unpacked(shared_reports / name) for name in PIPELINE]
    one_stage = summarize_reports(reports, Selection(ranks=frozenset({0, 1}), cuts_steps=False))
    assert one_stage.waits is not None and one_stage.waits.pipeline is None
    one_pipeline = pipeline_in(summarize_reports(reports, Selection(ranks=frozenset({0, 2}), cuts_steps=False)))
    assert [[end.rank for end in stage.ends] for stage in one_pipeline.stages] == [[0], [2]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    cases(
        [
            "exercises/ex3a-pp1",
            "exercises/ex1a-fast",
            "exercises/ex3a-pp2-plain",
            "exercises/ex2a-zero2",
            "gpu/ddp-2x2",
        ],
        push=2,
    ),
)
def test_other_jobs_have_no_pipeline(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    reports = [unpacked(shared_reports / f"{name}.rank{rank}.sqlite") for rank in range(4)]
    found = summarize_reports(reports, IN_STEPS)
    assert found.waits is not None and found.waits.pipeline is None
    assert describe_pipeline(found.pipeline) == "" and make_pipeline_section(found) is None


# ---- simulated schedules ---------------------------------------------------------------------------------------------

SCHEDULES = {"gpipe": list_gpipe, "1f1b": list_one_forward_one_backward}
Schedule = Callable[[int, int, int], list[Pass]]


def even(stage: int, step: int, kind: str) -> int:
    return MS if kind == "F" else 2 * MS


def list_simulated_steps(stages: Sequence[Stage]) -> list[tuple[int, int]]:
    """Return the steps after the first."""
    ends = [max(stage.ends[step] for stage in stages) for step in range(STEPS)]
    return list(pairwise(ends))


def list_simulated_bubbles(stages: Sequence[Stage]) -> list[list[int]]:
    """Return the bubble of each stage by step: waits without sends, and from its last end to that of the others."""
    steps = list_simulated_steps(stages)
    bubbles = []
    for stage in stages:
        drained = (stage.ends[-1], max(other.ends[-1] for other in stages if other is not stage))
        waits = measure_inside([*stage.waits, drained], steps)
        meanwhile = [
            (max(a, low), min(b, high)) for a, b in stage.waits for low, high in stage.sends if low < b and a < high
        ]
        bubbles.append([a - b for a, b in zip(waits, measure_inside(meanwhile, steps), strict=True)])
    return bubbles


@pytest.mark.parametrize(
    ("stages", "micro_batches", "name"),
    [
        (2, 4, "gpipe"),
        (4, 8, "1f1b"),
        *(pytest.param(*own, marks=pytest.mark.all_sets) for own in [(2, 4, "1f1b"), (4, 8, "gpipe")]),
        *(pytest.param(3, 3, name, marks=pytest.mark.all_sets) for name in SCHEDULES),
    ],
)
def test_the_bubble_of_even_stages(tmp_path: Path, name: str, stages: int, micro_batches: int) -> None:
    simulated = simulate(SCHEDULES[name], stages, micro_batches, STEPS, even)
    pipeline = pipeline_in(summarize_reports(write_reports(tmp_path, simulated), IN_STEPS))
    check_sums(pipeline)
    assert [[end.rank for end in stage.ends] for stage in pipeline.stages] == [[rank] for rank in range(stages)]
    assert pipeline.micro_batches == micro_batches and pipeline.backward and pipeline.pipelines == 1
    assert pipeline.step_ns == [end - begin for begin, end in list_simulated_steps(simulated)]
    assert [stage.bubble_by_step for stage in pipeline.stages] == list_simulated_bubbles(simulated)
    ideal = (stages - 1) / (micro_batches + stages - 1)
    assert pipeline.ideal_share == ideal
    for stage in pipeline.stages:
        assert stage.bubble_ns / pipeline.measure_whole(stage) == pytest.approx(ideal, abs=0.005)
        assert stage.send_wait_ns == 0
        assert stage.unclaimed_ns == stage.unclaimed * LATENCY  # sends that ended before their receives started
    assert pipeline.pace is None and pipeline.lead_ns == 0


@pytest.mark.all_sets
@pytest.mark.parametrize(
    ("slow", "name"),
    [
        (0, "1f1b"),
        (2, "gpipe"),
        *(pytest.param(*own, marks=pytest.mark.all_sets) for own in [(0, "gpipe"), (2, "1f1b")]),
        *(pytest.param(3, name, marks=pytest.mark.all_sets) for name in SCHEDULES),
    ],
)
def test_a_slow_stage_sets_the_pace(tmp_path: Path, name: str, slow: int) -> None:
    def work(stage: int, step: int, kind: str) -> int:
        return even(stage, step, kind) * (3 if stage == slow else 2) // 2

    simulated = simulate(SCHEDULES[name], 4, 8, STEPS, work)
    found = summarize_reports(write_reports(tmp_path, simulated), IN_STEPS)
    pipeline = pipeline_in(found)
    assert [stage.bubble_by_step for stage in pipeline.stages] == list_simulated_bubbles(simulated)
    assert pipeline.pace == slow
    assert pipeline.lead_ns == pytest.approx(8 * 3 * MS // 2, abs=40 * LATENCY)
    assert f"stage {slow} (rank {slow}) sets the pace" in describe_pipeline(found.pipeline)


def test_a_wait_in_a_collective_for_another_stage_is_no_bubble(tmp_path: Path) -> None:
    once = simulate(list_gpipe, 4, 8, 1, even)
    last = max(stage.ends[0] for stage in once)
    reduced = [[*stage.kernels[0], (stage.ends[0], last + LATENCY, "ncclAllReduce", -1)] for stage in once]
    period = last + LATENCY - once[0].kernels[0][0][0]
    stages = [
        Stage(
            [[(begin + n * period, end + n * period, *what) for begin, end, *what in own] for n in range(STEPS)],
            ends=[last + LATENCY + n * period for n in range(STEPS)],
        )
        for own in reduced
    ]
    pipeline = pipeline_in(summarize_reports(write_reports(tmp_path, stages), IN_STEPS))
    check_sums(pipeline)
    assert pipeline.step_ns == [period] * (STEPS - 1) and pipeline.micro_batches == 8 and pipeline.pace is None
    for stage, alone in zip(pipeline.stages, once, strict=True):
        assert stage.collective_wait_ns == (last - alone.ends[0]) * (STEPS - 1)
        assert stage.idle_ns == 0
        waits = sum(end - begin for begin, end in alone.waits)
        assert stage.receive_wait_ns == pytest.approx(waits * (STEPS - 1), abs=60 * STEPS * LATENCY)


def test_a_slow_step_does_not_make_a_slow_stage(tmp_path: Path) -> None:
    def work(stage: int, step: int, kind: str) -> int:
        return even(stage, step, kind) * (4 if (stage, step) == (1, 3) else 1)

    simulated = simulate(list_gpipe, 3, 4, STEPS, work)
    assert pipeline_in(summarize_reports(write_reports(tmp_path, simulated), IN_STEPS)).pace is None


def test_what_is_within_the_clock_error_is_not_claimed(tmp_path: Path) -> None:
    simulated = simulate(list_gpipe, 3, 4, STEPS, even)
    exact = pipeline_in(summarize_reports(write_reports(tmp_path, simulated), IN_STEPS))
    (tmp_path / "nodes").mkdir()
    reports = write_reports(tmp_path / "nodes", simulated, hosts=["n0", "n1", "n2"])
    found = summarize_reports(reports, IN_STEPS)
    pipeline = None if found.waits is None else found.waits.pipeline
    assert pipeline is not None and pipeline.clock_error_ns > 0
    check_sums(pipeline)
    for stage, known in zip(pipeline.stages, exact.stages, strict=True):
        assert stage.bubble_ns == pytest.approx(known.bubble_ns, abs=stage.unclaimed_ns + 200 * pipeline.clock_error_ns)
    assert sum(stage.unclaimed for stage in pipeline.stages) > 0
    assert "not claimed (clock error" in format_summary(found, 120, details=True)


# ---- stages ----------------------------------------------------------------------------------------------------------


def messages_of(*rows: tuple[int, int, int, int], sizes: Sequence[int] = ()) -> StepMessages:
    """Make messages of (sender, receiver, step, time); messages with the same ends, step and time share kernels."""
    sender, receiver, step, time = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    size = np.array(sizes or [1] * len(rows), np.int64)
    kernel = (sender * 100 + receiver) * 10_000 + step * 1000 + time
    return StepMessages(sender, receiver, step, size, kernel, kernel + 10**7, time, time)


def test_stages_are_ordered_by_the_first_messages() -> None:
    forward = [(5, 3, step, 1) for step in range(2)] + [(3, 7, step, 2) for step in range(2)]
    back = [(7, 3, step, 4) for step in range(2)] + [(3, 5, step, 5) for step in range(2)]
    both = messages_of(*forward, *back)
    assert find_stages(both, 2) == [[5], [3], [7]] and count_micro_batches(both, 2) == 1
    assert find_stages(messages_of(*forward), 2) == [[5], [3], [7]]
    assert find_stages(both, 3) is None  # a step without messages


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(0, 1, 0, 1), (1, 2, 0, 2), (2, 0, 0, 3)], id="ring"),
        pytest.param([(0, 1, 0, 1), (0, 2, 0, 2), (0, 3, 0, 3)], id="star"),
        pytest.param([(0, 1, 0, 1), (1, 0, 0, 1)], id="exchange"),
        pytest.param([(0, 1, 0, 1)], id="feeds-another"),
        pytest.param([(0, 1, 0, 1), (2, 1, 0, 2)], id="gathers"),
        pytest.param([(1, 0, 0, 1), (1, 2, 0, 2), (0, 1, 0, 3), (2, 1, 0, 4)], id="starts-in-the-middle"),
        pytest.param([(0, 1, 0, 1), (1, 0, 0, 2), (1, 0, 1, 3), (0, 1, 1, 4)], id="changes-direction"),
        pytest.param([(0, 1, 0, 1), (1, 2, 0, 2), (2, 1, 0, 3)], id="goes-back-in-part"),
        pytest.param([(0, 1, 0, 1), (1, 0, 0, 2), (2, 3, 0, 1), (3, 4, 0, 2), (4, 3, 0, 3), (3, 2, 0, 4)], id="uneven"),
    ],
)
def test_messages_that_are_no_certain_pipeline(rows: list[tuple[int, int, int, int]]) -> None:
    assert find_stages(messages_of(*rows), max(row[2] for row in rows) + 1) is None


def test_micro_batches() -> None:
    rows = [(0, 1, 0, 1), (0, 1, 0, 2), (0, 1, 0, 3), (1, 0, 0, 4), (1, 0, 0, 5), (1, 0, 0, 6)]
    assert count_micro_batches(messages_of(*rows), 1) == 3
    assert count_micro_batches(messages_of(*rows, *rows, sizes=[8] * 6 + [1 << 20] * 6), 1) == 3  # shapes, then data
    assert count_micro_batches(messages_of(*rows, rows[0]), 1) == 3  # two parts in one kernel
    assert count_micro_batches(messages_of(*rows[1:]), 1) is None
    later = [(sender, receiver, 1, time) for sender, receiver, _, time in rows]
    assert count_micro_batches(messages_of(*rows, *later), 2) == 3
    assert count_micro_batches(messages_of(*rows, *later[:-1]), 2) is None


# ---- what is shown ---------------------------------------------------------------------------------------------------


def test_what_is_shown(tmp_path: Path) -> None:
    simulated = simulate(list_one_forward_one_backward, 4, 8, STEPS, even)
    found = summarize_reports(write_reports(tmp_path, simulated), IN_STEPS)
    text = format_summary(found, 120, details=True)
    assert "Pipeline of 4 stages, 8 micro-batches a step, time per GPU and step:" in text
    line = next(line for line in text.splitlines() if line.startswith("3      rank 3"))
    assert line.split()[3:8] == ["24.0", "ms", "9.01", "ms", "27.3%"]
    assert "would have a bubble of 27.3%" in text
    section = make_pipeline_section(found)
    assert section is not None and section.presets == ["analysis/pipeline_bubble"]
    [table] = [block for block in section.blocks if isinstance(block, Table)]
    assert [row[:2] for row in table.rows] == [[str(rank), f"rank {rank}"] for rank in range(4)]
    assert JobSummary.from_dict(json.loads(json.dumps(found.to_dict()))).waits == found.waits

    hostile = "`</script><img src=x onerror=hack()>"
    pipeline = pipeline_in(found)
    stages = [
        replace(stage, ends=[replace(end, rank=None, task=hostile) for end in stage.ends]) for stage in pipeline.stages
    ]
    assert found.waits is not None
    changed = replace(found, waits=replace(found.waits, pipeline=replace(pipeline, stages=stages, pace=1)))
    assert describe_pipeline(changed.pipeline).count("`") == 0
    page = render_page(title="", subtitle="", lines=[], warnings=[], sections=[make_pipeline_section(changed)])
    assert "<img src=x" not in page and page.count("&lt;img src=x") == 4
