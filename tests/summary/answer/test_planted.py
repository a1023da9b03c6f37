"""The answer on real reports against plain sums: the largest loss, and the rank that others wait for."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import pytest

from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.efficiency.numbers import Losses
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.text import format_summary
from tests.analysis.waits.waits_truth import find_truth
from tests.conftest import Unpacked
from tests.summary.made import IN_STEPS, summarize_reports
from tests.tiers import cases


def read(shared_reports: Path, unpacked: Unpacked, name: str) -> tuple[JobSummary, list[Path]]:
    paths = [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
    return summarize_reports(paths, IN_STEPS), paths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "part", "bottleneck", "place"),
    cases(
        [
            ("ex1a-slow", "host_ns", "host-bound", "data loading"),
            ("ex3a-pp2-plain", "not_split_ns", "unclassified communication", "SendRecv"),
            ("ex1b-fp32", "compute_ns", "compute-bound", "GEMM FP32"),
            ("ex2b-manual", "moving_ns", "exposed transfer", "AllReduce"),
        ],
        push=1,
    ),
)
def test_the_largest_part_of_gpu_time(
    shared_reports: Path, unpacked: Unpacked, name: str, part: str, bottleneck: str, place: str
) -> None:
    found, _ = read(shared_reports, unpacked, name)
    verdict = answer(found)
    assert found.efficiency is not None and found.efficiency.in_steps is not None
    window = found.efficiency.in_steps
    assert window.losses is not None
    times = {field.name: getattr(window.losses, field.name) for field in fields(Losses) if field.name.endswith("_ns")}
    assert max(times, key=times.__getitem__) == part and sum(times.values()) == 4 * window.length_ns
    assert (verdict.bottleneck, verdict.where[0].name) == (bottleneck, place)
    share = times[part] / sum(times.values())
    assert verdict.share == pytest.approx(share)
    assert f"{100 * share:.1f}%" in verdict.statements[0].text


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param("ex1a-fast", marks=pytest.mark.all_sets), "ex3a-pp1"])
def test_the_worst_straggler_against_plain_loops(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    found, paths = read(shared_reports, unpacked, name)
    assert found.efficiency is not None and found.efficiency.steps_ns is not None
    low, high = (found.start_utc_ns + limit for limit in found.efficiency.steps_ns)
    waited: Counter[int] = Counter()
    for kernels in find_truth(paths):
        for kernel in kernels:
            waited[kernel.last] += max(0, min(kernel.until, high) - max(kernel.begin, low))
    waited.pop(-1, None)
    [(worst, ns)] = waited.most_common(1)
    assert 2 * ns >= waited.total() and 50 * ns > 4 * (high - low)
    verdict = answer(found)
    first = verdict.stragglers[0]
    assert first.rank == worst and first.caused_wait_ns == pytest.approx(ns, rel=0.01)
    least = 4 * (high - low) / 50
    assert {each.rank for each in verdict.stragglers} == {rank for rank, ns in waited.items() if ns > least}
    assert 2 * sum(reason.ns for reason in first.reasons) > ns, "its host is late"


@pytest.mark.slow
def test_a_job_of_mpi_and_gpus(samples: Path) -> None:
    """Its GPUs are idle while main threads are in MPI, where they transfer longer than they wait."""
    found = summarize_reports(sorted(samples.glob("mpi-4.rank*.sqlite")), IN_STEPS)
    assert found.waits is not None and found.efficiency is not None and found.efficiency.in_steps is not None
    losses = found.efficiency.in_steps.losses
    assert losses is not None and 2 * losses.idle_by_range[0].ns > losses.host_ns > losses.compute_ns
    assert losses.idle_by_range[0].range == "collectives"
    worst = max(found.waits.ranks, key=lambda rank: rank.mpi.caused_wait_ns if rank.mpi else 0)
    verdict = answer(found)
    calls = [rank.mpi for rank in found.waits.ranks if rank.mpi is not None]
    assert sum(mpi.transfer_ns for mpi in calls) > 2 * sum(mpi.wait_ns for mpi in calls)
    longest = max(found.mpi, key=lambda call: call.total_ns)
    assert (verdict.bottleneck, verdict.where[0].name, verdict.stragglers[0].rank) == (
        "exposed transfer",
        longest.call,
        worst.rank,
    )


@pytest.mark.slow
def test_names_of_reports_are_printable(samples: Path) -> None:
    hostile = "<b>\x1b[31m\nrange\t"
    found = summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))
    waits, path, steps, what_if = found.waits, found.critical_path, found.steps, found.what_if
    assert waits is not None and path is not None and steps is not None and what_if is not None
    ranks = [replace(rank, rank=None, task=hostile + rank.task) for rank in waits.ranks]
    costs = [replace(cost, rank=None, task=hostile + cost.task, range=hostile, call=hostile) for cost in waits.costs]
    culprits = [
        replace(each, rank=None, task=hostile + each.task, range=hostile, call=hostile) for each in waits.culprits
    ]
    parts = [replace(part, name=hostile, range=hostile) for part in path.parts]
    gpus = [
        replace(gpu, idle_causes=[replace(each, range=hostile, call=hostile) for each in gpu.idle_causes or []])
        for gpu in found.gpus
    ]
    scenarios = [replace(part, changes=read_changes(hostile)) for part in what_if.scenarios]
    named = replace(
        found,
        gpus=gpus,
        waits=replace(waits, ranks=ranks, costs=costs, culprits=culprits),
        critical_path=replace(path, parts=parts, step_name=hostile),
        nccl=[replace(nccl, function=hostile) for nccl in found.nccl],
        launched=[replace(each, range=hostile) for each in found.launched],
        steps=replace(steps, name=hostile),
        what_if=replace(what_if, scenarios=scenarios),
    )
    for each in (named, replace(named, what_if=None)):
        statements = answer(each).statements
        assert all(line.text.isprintable() for line in statements)
        assert any("<b>" in line.text for line in statements)
        assert all(line.isprintable() for line in format_summary(each, 80, details=True).splitlines())
