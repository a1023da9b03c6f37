"""FLOPs of operators in a summary, against PyTorch's own counter and plain SQL, and in small reports."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.summary.kernels.numbers import FlopNumbers
from tests.conftest import DATA, Unpacked
from tests.sources.nvtx.test_flops import write
from tests.sources.small_reports import MAIN, PROCESS, WORKER, Rows, export
from tests.summary.made import IN_STEPS, summarize_reports

BY_FLOP_COUNTER = 6_236_292_513_792
"""What torch.utils.flop_counter.FlopCounterMode printed for a step of the program of w-shapes."""
OPERATORS = """
    SELECT n.globalTid, n.start, n."end", n.text FROM NVTX_EVENTS n
    WHERE n.eventType = 59 AND (n.text LIKE 'aten::mm,%' OR n.text LIKE 'aten::addmm,%'
        OR n.text LIKE 'aten::\\_scaled\\_dot\\_product\\_cudnn\\_attention%' ESCAPE '\\')
"""
LAUNCHED = """
    SELECT k."end" - k.start, s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId
    JOIN StringIds s ON s.id = k.shortName
    WHERE r.globalTid = ? AND r.start BETWEEN ? AND ?
"""


def get_flops(report: Path, **options: object) -> FlopNumbers:
    flops = summarize_reports([report], **options).flops  # type: ignore[arg-type]
    assert flops is not None
    return flops


@pytest.mark.slow
def test_a_step_has_the_flops_that_pytorch_counts(shared_reports: Path, unpacked: Unpacked) -> None:
    flops = get_flops(unpacked(shared_reports / "whatif/w-shapes.rank0.sqlite"), selection=IN_STEPS)
    assert (flops.steps, flops.tasks) == (5, 1)
    assert flops.flops == flops.steps * BY_FLOP_COUNTER
    # All matrix products and all attention of this program are operators.
    assert flops.explained_ns == flops.of_ns > 0
    assert {each.number_type for each in flops.operators if "mm" in each.operator} == {"BF16"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "by_flop_counter", "not_counted"),
    [
        # Attention in four shapes and three types, causal and not, forward and backward.
        ("attn", 129_388_077_056, 0),
        # No later operator takes the result of the 3D convolution, and its text has no stride.
        ("hand", 8_365_569_024, 2 * (2 * 4 * 14 * 30 * 30) * (8 * 3 * 3 * 3)),
    ],
)
def test_small_programs(program: str, by_flop_counter: int, not_counted: int, unpacked: Unpacked) -> None:
    """Matrix products of each kind, with known shapes; the programs printed what FlopCounterMode counts."""
    flops = get_flops(unpacked(DATA / f"h100/{program}.rank0.sqlite.xz"), selection=IN_STEPS)
    assert flops.steps > 0
    assert flops.flops == flops.steps * (by_flop_counter - not_counted)


@pytest.mark.slow
def test_kernel_time_is_what_plain_sql_finds(shared_reports: Path, unpacked: Unpacked) -> None:
    report = unpacked(shared_reports / "whatif/w-shapes.rank0.sqlite")
    flops = get_flops(report)
    assert flops.steps == 0 and flops.flops == 6 * BY_FLOP_COUNTER
    counts, time, heavy = Counter[str](), Counter[str](), 0
    with closing(sqlite3.connect(report)) as database:
        for thread, begin, end, text in database.execute(OPERATORS).fetchall():
            name = text.split(",")[0]
            counts[name] += 1
            for ns, kernel in database.execute(LAUNCHED, (thread, begin, end)):
                time[name] += ns
                words = ("nvjet", "sdpa", "gemm", "splitK", "compute_dot_do_o", "convert_dq")
                heavy += ns if any(word in kernel for word in words) else 0
    assert {each.operator: each.count for each in flops.operators} == counts
    assert {each.operator: each.kernel_ns for each in flops.operators} == time
    assert flops.explained_ns == heavy


# ---- small reports ---------------------------------------------------------------------------------------------------

STRINGS = ("", "sgemm_128", "ampere_bf16_gemm", "sort_kernel", "cusparse::csrmm", "cudaLaunchKernel", "splitK_reduce")
FP32, BF16, SORT, SPARSE, LAUNCH, SPLIT = range(1, 7)
PRODUCT = write("aten::mm", 1, [(2, 3), (3, 4)])
FLOPS = 2 * 2 * 3 * 4
OTHER = write("aten::addmm", 2, [(5,), (2, 3), (3, 5), (), ()])
OTHER_FLOPS = 2 * 2 * 3 * 5


def make_report(
    path: Path, ranges: Sequence[tuple[int, int, int, str]], kernels: Sequence[tuple[int, int, int, int, int | None]]
) -> Path:
    """Ranges (start, end, thread, text) and kernels (launch, thread, duration, name, graph node); each runs alone."""
    runs, calls = [], []
    begin = 1000
    for number, (launch, thread, length, name, node) in enumerate(kernels, 1):
        runs.append((begin, begin + length, PROCESS, 0, 1, 7, number, name, name, node))
        calls.append((launch, launch + 1, thread, LAUNCH, number))
        begin += length
    operation = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")
    tables: dict[str, Rows] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": ((*operation, "shortName", "demangledName", "graphNodeId"), runs),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), calls),
        "NVTX_EVENTS": (
            ("start", "end", "globalTid", "eventType", "text"),
            [(begin, end, tid, 59, text) for begin, end, tid, text in ranges],
        ),
    }
    return export(path, STRINGS, tables)


@pytest.mark.slow
def test_each_operator_has_the_kernels_that_its_thread_launched_within(tmp_path: Path) -> None:
    ranges = [(10, 50, MAIN, PRODUCT), (60, 90, MAIN, OTHER), (10, 90, WORKER, PRODUCT)]
    kernels = [
        (20, MAIN, 100, FP32, None),
        (30, MAIN, 10, SORT, None),
        (55, MAIN, 1, FP32, None),
        (70, MAIN, 40, SPLIT, None),
        (71, MAIN, 20, BF16, None),
        (80, WORKER, 300, BF16, None),
    ]
    flops = get_flops(make_report(tmp_path / "a.sqlite", ranges, kernels))
    rows = {(o.operator, o.number_type): (o.count, o.flops, o.kernel_ns) for o in flops.operators}
    # The second step of split-K is longer, but its name has no type.
    assert rows == {
        ("aten::mm", "FP32"): (1, FLOPS, 110),
        ("aten::mm", "BF16"): (1, FLOPS, 300),
        ("aten::addmm", "BF16"): (1, OTHER_FLOPS, 60),
    }
    assert (flops.explained_ns, flops.of_ns) == (460, 461)
    assert (flops.flops, flops.kernel_ns) == (2 * FLOPS + OTHER_FLOPS, 470)


@pytest.mark.slow
def test_without_kernels_an_operator_does_not_count(tmp_path: Path) -> None:
    """One runs on the CPU, one is recorded by a graph that runs later, and one is sparse."""
    ranges = [(10, 20, MAIN, PRODUCT), (30, 40, MAIN, PRODUCT), (50, 60, MAIN, PRODUCT), (70, 80, MAIN, OTHER)]
    kernels = [(35, MAIN, 100, FP32, 9), (55, MAIN, 10, SPARSE, None), (75, MAIN, 50, SORT, None)]
    flops = get_flops(make_report(tmp_path / "a.sqlite", ranges, kernels))
    [only] = flops.operators
    assert (only.operator, only.number_type, only.flops, only.kernel_ns) == ("aten::addmm", "", OTHER_FLOPS, 50)
    assert (flops.explained_ns, flops.of_ns) == (0, 100)


@pytest.mark.slow
def test_sums_beyond_64_bits(tmp_path: Path) -> None:
    k = 2**31
    most = write("aten::mm", 1, [(k, k - 1), (k - 1, 1)])
    ranges = [(10 * n, 10 * n + 9, MAIN, most) for n in range(1, 6)]
    kernels = [(10 * n + 5, MAIN, 10, FP32, None) for n in range(1, 6)]
    flops = get_flops(make_report(tmp_path / "a.sqlite", ranges, kernels))
    assert flops.flops == float(5 * (2**63 - 2**32))


@pytest.mark.slow
def test_without_shapes_there_are_no_flops(tmp_path: Path) -> None:
    report = make_report(tmp_path / "a.sqlite", [(10, 50, MAIN, "aten::mm, op_id = 1")], [(20, MAIN, 100, FP32, None)])
    summary = summarize_reports([report])
    assert (summary.flops, summary.mfu) == (None, None)
