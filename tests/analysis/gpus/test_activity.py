"""What each GPU did and when it was idle, against plain loops over the operations of the reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
import pytest

from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.job import JobSummary
from tests import report_truth as truth
from tests.report_truth import Objects, Report
from tests.spans import find_gaps, list_report_sets, sum_common, sum_lengths, unite
from tests.summary.made import SETS, summarize_reports, summary_and_reports

COMPUTE, COMMUNICATION, MEMORY, WHOLE_GRAPH = KINDS = 1, 2, 4, 16
FURTHER = ("gpu/oneproc-4gpu", "gpu/mpi-one-report", "public/mfu_2gpu_before", "public/pipit_cloverleaf")
"""Left out by every push: large ones, whose kinds of operations the others have."""
_ON_HOST = (0, 1)
_ALLOCATION = 0


@dataclass(frozen=True)
class Made:
    found: JobSummary
    objects: Objects

    @cached_property
    def operations(self) -> pd.DataFrame:
        return truth.list_gpu_operations(self.objects)

    def gpus(self) -> Iterator[tuple[GpuNumbers, pd.DataFrame]]:
        """The numbers of each GPU and its operations, in the order of rows."""
        with_operations = [gpu for gpu in self.found.gpus if gpu.span_ns]
        yield from zip(with_operations, (part for _, part in self.operations.groupby("gpu_row")), strict=True)


@pytest.fixture(scope="module", params=list_report_sets(SETS, push=set(SETS) - set(FURTHER)))
def made(request: pytest.FixtureRequest) -> Made:
    return Made(*summary_and_reports(*request.param))


def test_time_by_activity_is_the_union_of_operations(made: Made) -> None:
    for gpu, operations in made.gpus():
        by_kind = {kind: unite(operations[operations["kind"] & kind > 0]) for kind in KINDS}
        assert gpu.compute_ns == sum_lengths(by_kind[COMPUTE])
        assert gpu.communication_ns == sum_lengths(by_kind[COMMUNICATION])
        assert gpu.whole_graph_ns == sum_lengths(by_kind[WHOLE_GRAPH])
        assert gpu.memory_ns == sum_lengths(by_kind[MEMORY])
        assert gpu.overlap_ns == sum_common(by_kind[COMPUTE], by_kind[COMMUNICATION])
        assert gpu.busy_ns == sum_lengths(unite(operations))
        assert gpu.span_ns == operations["end"].max() - operations["begin"].min()


def test_gaps_are_nvidias(made: Made) -> None:
    for gpu, operations in made.gpus():
        lengths = [end - begin for begin, end in find_gaps(operations)]
        assert (gpu.gaps, gpu.idle_ns, gpu.longest_gap_ns) == (len(lengths), sum(lengths), max(lengths, default=0))
        assert gpu.longest_gap_at_ns is not None
        longest = made.found.start_utc_ns + gpu.longest_gap_at_ns
        assert (longest, longest + gpu.longest_gap_ns) in find_gaps(operations)


def test_each_gpu_is_said_to_be_of_its_tasks(made: Made) -> None:
    ranks = [int(name.split()[1]) if name.startswith("rank ") else None for name in made.objects.tasks]
    for gpu, operations in made.gpus():
        tasks = sorted(set(operations["task"]))
        assert gpu.tasks == [made.objects.tasks[task] for task in tasks]
        assert gpu.ranks == [ranks[task] for task in tasks if ranks[task] is not None]
        assert {gpu.node} == {made.objects.hosts[task] for task in tasks}


def test_each_gap_has_its_causes(made: Made) -> None:
    for gpu, _ in made.gpus():
        assert gpu.idle_causes is not None
        assert sum(each.ns for each in gpu.idle_causes) == gpu.idle_ns
        assert sum(each.gaps for each in gpu.idle_causes if each.cause != "host") <= gpu.gaps


@pytest.mark.parametrize("rank", range(4))
def test_peak_memory_is_that_of_a_running_sum(samples: Path, rank: int) -> None:
    report = Report(samples / f"ddp-2x2.rank{rank}.sqlite")
    events = report.sql(
        """SELECT start, address, bytes, memKind AS kind, memoryOperationType AS operation
        FROM CUDA_GPU_MEMORY_USAGE_EVENTS ORDER BY start, rowid"""
    )
    held: dict[int, int] = {}
    peak = in_use = 0
    for _, at_once in events[~events["kind"].isin(_ON_HOST)].groupby("start"):
        for address, size, operation in zip(at_once["address"], at_once["bytes"], at_once["operation"], strict=True):
            if operation == _ALLOCATION:
                held[address] = size
                in_use += size
            elif address in held:
                in_use -= held.pop(address)
        peak = max(peak, in_use)
    [gpu] = summarize_reports([report.path]).gpus
    assert gpu.peak_memory_bytes == peak > 0
