"""Why GPUs are idle and how they communicate, in every window, compared with plain loops over gaps and operations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from nsys2prv_ng.analysis.efficiency.efficiency import compute_efficiency
from nsys2prv_ng.analysis.efficiency.times import WindowTimes
from nsys2prv_ng.analysis.gpus.times import CAUSES
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.efficiency.measure import sum_efficiency
from tests.analysis.efficiency import efficiency_truth as plain
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, DDP, check_window, make, opened, select_counted
from tests.analysis.efficiency.efficiency_truth import Truth
from tests.analysis.gpus.kernel_class_truth import list_pieces, sum_pieces
from tests.analysis.waits.waits_truth import find_truth
from tests.conftest import Unpacked
from tests.sources.small_reports import PROCESS, export
from tests.spans import list_report_sets
from tests.tiers import cases
from tests.translated import changed

IDLE_SETS = (
    "samples/mpi-4 samples/single-graph gpu/single-node gpu/um-1 gpu/oneproc-4gpu gpu/autograd-1 "
    "exercises/tpgraph-1x4 public/pipit_cloverleaf exercises/ex3a-pp2"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "reports",
    [
        pytest.param(DDP, id="ddp-2x2"),
        *list_report_sets(IDLE_SETS.split(), push=["samples/mpi-4", "samples/single-graph"]),
    ],
)
def test_idle_time_has_its_causes_in_every_window(reports: list[Path]) -> None:
    made = make(reports)
    pieces = plain.list_idle_pieces(made.truth)
    everywhere = {key: [made.window] for key in made.truth.gpus}
    check_idle(made.found.whole, plain.sum_pieces(pieces, everywhere), has_ranges=True)
    ranges = select_counted(made.steps, made.truth.list_repeated())
    groups = [
        (row.times, ranges[(ranges["domain"] == row.domain) & (ranges["name"] == row.name)])
        for row in made.found.ranges
    ]
    if made.steps is not None and made.steps.on_gpu:
        for times, number in zip(made.found.by_step, made.steps.counted, strict=True):
            windows = {key: [made.steps.get_limits(number)] for key in made.truth.gpus}
            check_idle(times, plain.sum_pieces(pieces, windows), has_ranges=False)
    for times, own in groups:
        windows = {key: plain.unite_ranges(own, gpu.processes) for key, gpu in made.truth.gpus.items()}
        check_idle(times, plain.sum_pieces(pieces, windows), has_ranges=False)


def check_idle(times: WindowTimes, expected: dict[tuple[str, str], int], *, has_ranges: bool) -> None:
    by_cause: Counter[str] = Counter()
    for (cause, _), ns in expected.items():
        by_cause[cause] += ns
    assert times.devices is not None
    assert Counter({cause: times.devices.by_class[cause] for cause in CAUSES}) == by_cause
    if has_ranges:
        assert times.idle_by_range == {name: ns for (cause, name), ns in expected.items() if cause == "host"}


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(["ex1a-slow", "ex1a-fast", "ex3a-pp1"], push=1))
def test_waiting_and_moving_in_every_window(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    """Compared on one node, where times are exact."""
    reports = [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
    kernels = find_truth(reports)
    made = make(reports, "auto")
    gpus = {index: gpu for gpu in made.truth.gpus.values() for index, _ in gpu.processes}
    assert made.steps is not None
    groups = [(row.times, made.truth.ranges[made.truth.ranges["name"] == row.name]) for row in made.found.ranges]
    groups = [(times, select_counted(made.steps, own)) for times, own in groups]
    windows = [(made.found.whole, {rank: [made.window] for rank in gpus})]
    windows += [
        (times, {rank: [made.steps.get_limits(number)] for rank in gpus})
        for times, number in zip(made.found.by_step, made.steps.counted, strict=True)
    ]
    windows += [
        (times, {r: plain.unite_ranges(own, gpu.processes) for r, gpu in gpus.items()}) for times, own in groups
    ]
    assert len(windows) > 5
    for times, by_rank in windows:
        assert times.devices is not None
        split = [
            plain.split_communication(gpus[rank], [(k.begin, k.until, k.end) for k in kernels[rank]], by_rank[rank])
            for rank in gpus
        ]
        found = [times.devices.by_class[part] for part in ("waiting", "moving", "not_split")]
        assert found == [sum(waiting for waiting, _ in split), sum(moving for _, moving in split), 0]


# ---- kernel classes --------------------------------------------------------------------------------------------------

OVERLAPPING = [
    # stream, begin, end, name: elementwise, product, reduction, product of another precision
    (7, 1000, 2000, "void vectorized_elementwise_kernel<4>()"),
    (8, 1200, 2500, "ampere_bf16_s16816gemm_bf16_128x128"),
    (7, 1500, 1600, "void reduce_kernel<512>()"),
    (9, 2500, 3000, "ampere_sgemm_128x64_nn"),
    (7, 2500, 2900, "void vectorized_elementwise_kernel<4>()"),
    (8, 3000, 3000, "void reduce_kernel<512>()"),
    (7, 4000, 4100, "void reduce_kernel<512>()"),
]


def test_kernels_of_several_streams_at_a_time(tmp_path: Path) -> None:
    """Of several classes at a time the one counts that began first, as worked out by hand."""
    names = sorted({name for *_, name in OVERLAPPING})
    tables = {
        "StringIds": (("id", "value"), [(n, name) for n, name in enumerate(names, 1)]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "shortName", "demangledName"),
            [
                (begin, end, PROCESS, 0, 1, stream, names.index(name) + 1, names.index(name) + 1)
                for stream, begin, end, name in OVERLAPPING
            ],
        ),
    }
    made = make([export(tmp_path / "made.sqlite", [], tables)])
    assert made.numbers is not None and made.numbers.losses is not None
    assert list(made.numbers.losses.compute_by_class.items()) == [
        ("Elementwise", 1000),
        ("GEMM BF16", 500),
        ("GEMM FP32", 500),
        ("Reduction", 100),
    ]
    [pieces] = list_pieces(made.truth).values()
    assert sum_pieces(pieces, [made.truth.capture]) == made.numbers.losses.compute_by_class


@pytest.mark.slow
def test_kernels_of_ranks_that_were_not_chosen(tmp_path: Path) -> None:
    """A GPU that two ranks share computes for both, but only the kernels of one have been read."""
    same = ["UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 1 - gpuId WHERE gpuId < 2"]
    reports = [DDP[0], changed(DDP[1], tmp_path / "ddp-2x2.rank1.sqlite", same)]
    with opened(reports, selection=Selection(ranks=frozenset({0}))) as job:
        found = compute_efficiency(job, find_waits(job))
        numbers, base = sum_efficiency(job, found), job.alignment.utc_base
    assert numbers is not None and numbers.losses is not None
    windows = [(low + base, high + base) for low, high in found.windows]
    [shared], [own] = Truth(reports).gpus.values(), Truth(reports[:1]).gpus.values()
    expected = plain.measure(shared.get(plain.COMPUTE), windows) - plain.measure(own.get(plain.COMPUTE), windows)
    assert numbers.losses.compute_by_class["not selected"] == expected > 0
    assert sum(numbers.losses.compute_by_class.values()) == numbers.losses.compute_ns


@pytest.mark.slow
def test_calls_of_cuda_within_mpi_are_mpi(tmp_path: Path, samples: Path) -> None:
    """As MPI makes them for buffers on GPUs."""
    within = """INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", eventClass, globalTid, nameId, returnValue)
        SELECT m.start + 10, m."end" - 10, 0, m.globalTid, (SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1), 0
        FROM MPI_COLLECTIVES_EVENTS m ORDER BY m."end" - m.start DESC LIMIT 5"""
    made = make(
        [changed(samples / "mpi-4.rank0.sqlite", tmp_path / "mpi-4.rank0.sqlite", [within])], selection=ALL_TIME
    )
    before = make([samples / "mpi-4.rank0.sqlite"], selection=ALL_TIME)
    assert made.found.whole.host == before.found.whole.host
    assert made.numbers is not None
    check_window(made.numbers, plain.measure_common(made.truth, [made.truth.capture]))
