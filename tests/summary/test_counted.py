"""What numbers count by default, against plain SQL and loops: the work launched in the steps, and one window."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nsys2prv_ng.summary.job import JobSummary
from tests.analysis.test_heat_maps import select
from tests.conftest import Unpacked, unpack
from tests.report_truth import PUSH_POP, Report, split_name
from tests.steps.step_truth import StepTruth, list_ranges
from tests.summary.made import IN_STEPS, summarize_reports

pytestmark = pytest.mark.slow


def find_truth(paths: list[Path], name: str) -> tuple[list[Report], StepTruth]:
    reports = [Report(path) for path in paths]
    return reports, StepTruth(reports, list_ranges(reports, name))


def count_operations(reports: list[Report], truth: StepTruth) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return number, time (ns) and bytes of the operations that were launched in the steps that count, by name."""
    count, ns, size = Counter[str](), Counter[str](), Counter[str]()
    for index, report in enumerate(reports):
        sent: dict[tuple[int, int], int] = {}
        for begin, tid, correlation in zip(
            report.calls["begin"], report.calls["tid"], report.calls["correlation"], strict=True
        ):
            sent[tid >> 24, correlation] = min(begin, sent.get((tid >> 24, correlation), begin))
        for row in report.operations.itertuples():
            launched = sent.get((row.process, row.correlation), row.begin) if row.correlation else row.begin
            if truth.counts((index, row.process), launched + report.utc):
                count[row.name] += 1
                ns[row.name] += row.end - row.begin
                size[row.name] += row.bytes
    return count, ns, size


@pytest.mark.parametrize(
    "paths", select("gpu/ddp-2x2", "samples/mpi-4", "gpu/oneproc-4gpu", "exercises/ex1a-fast", "exercises/tpgraph-1x4")
)
def test_operations_count_in_the_step_that_launched_them(paths: list[Path]) -> None:
    paths = [unpack(path) for path in paths]
    found = summarize_reports(paths, IN_STEPS)
    assert found.steps is not None
    reports, truth = find_truth(paths, found.steps.name)
    count, ns, size = count_operations(reports, truth)
    kernels, times = Counter[str](), Counter[str]()
    for kernel in found.kernels:
        kernels[kernel.name] += kernel.count
        times[kernel.name] += kernel.total_ns
    copies = {own.operation: (own.count, own.total_ns, own.bytes) for own in found.memory_operations}
    assert copies == {name: (count[name], ns[name], size[name]) for name in copies}
    assert kernels == +Counter({name: own for name, own in count.items() if name not in copies})
    assert times == +Counter({name: own for name, own in ns.items() if name not in copies})
    check_ranges(found, reports, truth)
    check_window(found, truth)


def check_ranges(found: JobSummary, reports: list[Report], truth: StepTruth) -> None:
    """Ranges count in the step whose range ends next."""
    expected = Counter[str]()
    for index, report in enumerate(reports):
        own = report.nvtx[(report.nvtx["style"] == PUSH_POP) & (report.nvtx["domain"] == "")]
        for begin, tid, text in zip(own["begin"], own["tid"], own["text"], strict=True):
            expected[split_name(text)[0]] += truth.counts((index, tid >> 24), begin + report.utc)
    shown = {own.name: sum(task.count for task in own.tasks) for own in found.ranges if not own.domain}
    assert shown and shown == {name: expected[name] for name in shown}


def check_window(found: JobSummary, truth: StepTruth) -> None:
    """All that is a time is of one window, which the steps add up to."""
    efficiency, steps, path = found.efficiency, found.steps, found.critical_path
    assert efficiency is not None and steps is not None and path is not None and found.start_up is not None
    window = steps.window_ns
    assert window[1] - window[0] == truth.window[1] - truth.window[0] == sum(s.length_ns for s in efficiency.steps)
    assert found.windows_ns == efficiency.windows_ns == path.windows_ns == [window] == [efficiency.steps_ns]
    assert window[1] - window[0] == efficiency.length_ns == path.length_ns == sum(step.ns for step in path.steps)
    assert all(gpu.busy_ns + gpu.idle_ns <= efficiency.length_ns for gpu in found.gpus)
    # The table of GPUs and the efficiencies are of the same time: overlap and copies aside, they agree to the ns.
    losses = efficiency.losses
    assert losses is not None and sum(gpu.compute_ns for gpu in found.gpus) == losses.compute_ns
    assert found.start_up.before_ns + (window[1] - window[0]) + found.start_up.after_ns == pytest.approx(
        found.duration_ns, abs=1
    )


@pytest.mark.all_sets
def test_accumulation_has_as_many_all_reduces_as_without(shared_reports: Path, unpacked: Unpacked) -> None:
    """80 a step over the ranks, and the same bytes: four micro-batches share them."""
    found = {}
    for name in ("ex1a-fast", "ex1c-accum"):
        paths = [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
        summary = summarize_reports(paths, IN_STEPS)
        [nccl] = summary.nccl
        assert summary.steps is not None and summary.waits is not None
        steps = summary.steps.count
        found[name] = nccl.kernels / steps, nccl.calls / steps, (nccl.bytes or 0) / steps
        assert summary.waits.nccl_collectives == 20 * steps
        assert [rank.collectives for rank in summary.waits.ranks] == [20 * steps] * 4
    assert found["ex1a-fast"] == found["ex1c-accum"] and found["ex1a-fast"][:2] == (80, 80)
