"""The text of a summary with all tables: units, widths, many GPUs."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from nsys2prv_ng import summarize
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.memory.numbers import GpuMemory, KeptMemory, MemoryNumbers
from nsys2prv_ng.summary.text import format_summary
from nsys2prv_ng.summary.waits.numbers import MpiNumbers
from nsys2prv_ng.text.formatting import format_time
from tests.summary.made import summarize_reports
from tests.tiers import cases

T = TypeVar("T")


@pytest.fixture(scope="module")
def found(samples: Path) -> JobSummary:
    return summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))


@pytest.mark.slow
@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_is_wider(found: JobSummary, width: int) -> None:
    long = "x" * 300
    kernels = [replace(kernel, name=f"{kernel.name}\n{long}") for kernel in found.kernels]
    ranges = [replace(each, name=long) for each in found.ranges]
    gpus = [replace(gpu, node=f"a-node-with-a-rather-long-name{i}") for i, gpu in enumerate(found.gpus)]
    for each in (found, replace(found, kernels=kernels, ranges=ranges, gpus=gpus)):
        assert max(map(len, format_summary(each, width, details=True).splitlines())) <= width


@pytest.mark.slow
def test_of_many_gpus_outliers_are_shown(found: JobSummary) -> None:
    span = 10**9
    idle = [500_000_000 + n for n in range(100)]  # ns; the median is that of n = 49.5
    idle[3], idle[70] = 0, 900_000_000
    one = replace(found.gpus[0], span_ns=span, compute_ns=0)
    gpus = [replace(one, gpu=n, busy_ns=span - ns, idle_ns=ns) for n, ns in enumerate(idle)]
    bare = replace(found, gpus=gpus, waits=None, critical_path=None, efficiency=None, steps=None, what_if=None)
    sections = format_summary(bare, details=True).split("\n\n")
    [shown] = (section.splitlines() for section in sections if section.startswith("GPU activity from"))
    furthest = sorted(range(100), key=lambda n: -abs(idle[n] - 500_000_049.5))[:16]
    listed = [int(line.split()[2]) for line in shown if line.startswith("gpunode")]
    assert listed == sorted(furthest) and {3, 70} < set(listed)
    assert shown[-1] == "  and 84 more closer to the median idle time (the JSON has all)"
    [line] = [line for line in shown if line.startswith("all GPUs")]
    assert format_time(sum(idle)) in line


@pytest.mark.slow
@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_whatever_the_numbers(found: JobSummary, width: int) -> None:
    """The largest numbers of a long job, in tasks without a rank."""
    big, count, long = 99_999 * 10**9, 12_345_678, "a name that is longer than most " * 4
    ranges = [
        replace(each, name=long, slowest_task=long, tasks=[make_large(t) for t in each.tasks]) for each in found.ranges
    ]
    gpus = [replace(gpu, gaps=count, peak_memory_bytes=big, node=long, longest_gap_at_ns=big) for gpu in found.gpus]
    mpi = [
        MpiNumbers(
            call="MPI_File_write_at_all",
            count=count,
            total_ns=big,
            max_ns=big,
            sent_bytes=big,
            received_bytes=big,
            rated_ns=big,
        )
    ]
    kernels = [replace(kernel, name=long, count=count, total_ns=big) for kernel in found.kernels]
    assert found.waits is not None
    waits = replace(found.waits, ranks=[make_large(replace(rank, rank=None, task=long)) for rank in found.waits.ranks])
    large = replace(
        found,
        memory=make_large_memory(),
        ranges=ranges,
        gpus=gpus,
        mpi=mpi,
        kernels=kernels,
        waits=waits,
        critical_path=None,
        efficiency=None,
        steps=None,
    )
    assert max(map(len, format_summary(large, width, details=True).splitlines())) <= width


def make_large_memory() -> MemoryNumbers:
    """Device memory with large numbers, which leaks."""
    long = "a name that is longer than most " * 4
    sizes = ("begin_bytes", "end_bytes", "peak_bytes", "growth_per_step")
    gpu = GpuMemory(
        node=long,
        gpu=123,
        ranks=[],
        tasks=[long, long],
        steps=1,
        peak_at_ns=99_999 * 10**9,
        peak_step=12_345,
        leak=True,
        kept=[KeptMemory(range=long, call=long, count=12_345_678, bytes=999 * 10**9)],
        **dict.fromkeys(sizes, 999 * 10**9),
    )
    return MemoryNumbers(steps=1, step_numbers=[12_345], gpus=[gpu])


def make_large(numbers: T) -> T:
    """The same with large numbers."""
    large = {"ns": 99_999 * 10**9, "count": 12_345_678, "last": 123_456}
    names = [field.name for field in fields(numbers)]  # type: ignore[arg-type]
    return replace(numbers, **{name: large[kind] for name in names for kind in large if name.split("_")[-1] == kind})  # type: ignore[type-var]


@pytest.mark.slow
def test_what_is_absent_is_so_in_what_was_chosen(found: JobSummary) -> None:
    for chosen, where in (
        ([], "these reports"),
        (["ranks"], "these reports and the chosen ranks"),
        (["time"], "the chosen time"),
        (["time", "ranks"], "the chosen time and the chosen ranks"),
    ):
        assert found.efficiency is not None
        efficiency = replace(found.efficiency, is_chosen="time" in chosen)
        text = format_summary(replace(found, chosen=chosen, efficiency=efficiency), details=True)
        assert text.endswith(f"\nNot in {where}: MPI")


def test_memory_stands_with_the_gpu_and_not_with_its_gaps(found: JobSummary) -> None:
    [title] = (line for line in format_summary(found, details=True).splitlines() if "peak memory" in line)
    assert title.split("  ")[0] == "GPU" and title.index("peak memory") < title.index("gaps") < title.index("starts at")


def test_ranks_are_shown_as_spans(found: JobSummary) -> None:
    shown = format_summary(replace(found, gpus=[replace(found.gpus[0], ranks=[0, 1, 2, 5, 7, 8])]), details=True)
    assert "\n  ranks 0-2,5,7-8, NVIDIA H200 " in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    cases(
        [
            ("single-graph.*", {}),
            ("ddp-2x2.rank0.*", {"time": "50ms:70ms"}),  # in which there are samples only
            ("ddp-2x2.*", {"steps": "2:4"}),
            ("ddp-2x2.*", {}),
            ("ddp-2x2.*", {"ranks": [1]}),
        ],
        push=3,
    ),
)
def test_a_summary_without_samples_is_that_with_a_page(
    name: str, options: dict[str, Any], samples: Path, tmp_path: Path
) -> None:
    """GPUs are sampled before and after everything else, so the samples do limit what was captured."""
    reports = sorted(samples.glob(name))
    assert summarize(reports, **options) == summarize(reports, html=tmp_path / "page.html", **options)
