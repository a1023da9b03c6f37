"""Quantities in bins of time against unions of intervals, loops over samples and allocations, and planted causes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis import heat_maps as states
from nsys2prv_ng.analysis.efficiency.efficiency import compute_efficiency
from nsys2prv_ng.analysis.efficiency.windows import make_plan
from nsys2prv_ng.analysis.gpus.activity import list_devices
from nsys2prv_ng.analysis.gpus.waiting import WHOLE_GRAPH
from nsys2prv_ng.analysis.heat_maps import Shares, average_metrics, find_lateness
from nsys2prv_ng.analysis.waits.rules import NOBODY, NOT_ALIGNED
from nsys2prv_ng.analysis.waits.waits import Waits, find_waits
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.intervals.states import make_edges
from nsys2prv_ng.job.counted import list_counted_steps
from nsys2prv_ng.job.open_job import Job
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.pictures.measure import METRICS
from nsys2prv_ng.summary.summarize import compute_summary
from tests.analysis.efficiency.efficiency_reports import ALL_TIME, DDP, opened
from tests.analysis.efficiency.efficiency_truth import BETWEEN, COMPUTE, EVERYTHING, KERNELS, Truth, unite
from tests.analysis.waits.test_planted_waits import DELAY, copy_to_one_node, delay, find_late, read_kernels
from tests.analysis.waits.waits_truth import Kernel, find_truth
from tests.conftest import SAMPLES, unpack
from tests.report_truth import Report
from tests.spans import list_report_sets
from tests.tiers import cases

KINDS = {
    "busy": (1, 2, 3, 4, 5, 6, 8, 9),
    "computing": (1, 2, 5, 9),
    "moving": (3,),
    "waiting": (4,),
    "not_split": (8,),
    "memory": (6,),
}
HOST_KINDS = {"own": (1,), "cuda": (2,), "waiting": (3,), "moving": (4,), "not_split": (5,)}
BINS = 211


def select(*names: str) -> list[object]:
    """Return sets of reports for pytest."""
    return list_report_sets(names)


def sum_shares(job: Job, waits: Waits, edges: IntArray) -> Shares:
    rows = states.find_gpu_rows(job, list_devices(job))
    shares = Shares(rows, edges, KINDS, WHOLE_GRAPH + 1)
    for flat in states.list_gpu_states(job, waits):
        shares.add(flat)
    return shares


def cover(spans: np.ndarray, edges: IntArray, base: int) -> IntArray:
    """Return how much of each bin intervals (UTC) cover."""
    covered = unite(spans) - base
    return np.array(
        [
            np.clip(covered, low, high)[:, 1].sum() - np.clip(covered, low, high)[:, 0].sum()
            for low, high in pairs(edges)
        ]
    )


def pairs(edges: IntArray) -> list[tuple[int, int]]:
    return list(pairwise(edges.tolist()))


# ---- GPUs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ddp() -> Iterator[Job]:
    """Reports of two nodes."""
    with opened(DDP, selection=ALL_TIME) as job:
        yield job


@pytest.mark.parametrize(
    "reports", select("samples/single-graph", "gpu/oneproc-4gpu", "gpu/single-node", "exercises/ex2b-manual")
)
def test_shares_of_gpus_are_those_of_unions(reports: Sequence[Path]) -> None:
    reports = [unpack(path) for path in reports]
    with opened(reports, selection=ALL_TIME) as job:
        check_shares(job, Truth(reports))


@pytest.mark.slow
def test_shares_of_gpus_of_two_nodes(ddp: Job) -> None:
    check_shares(ddp, Truth(DDP))


def check_shares(job: Job, truth: Truth) -> None:
    waits, devices = find_waits(job), list_devices(job)
    begin, end = states.find_span(job, find_waits(job), gpus=True)
    edges = make_edges(begin, end, BINS)
    shares = sum_shares(job, waits, edges)
    found = compute_efficiency(job, waits)
    base = job.alignment.utc_base
    operations = np.concatenate([gpu.get(*EVERYTHING) for gpu in truth.gpus.values()])
    assert (begin + base, end + base) == (operations[:, 0].min(), operations[:, 1].max())
    by_key = {(devices.rows[row].node, devices.rows[row].gpu.uuid): n for n, row in enumerate(shares.rows.tolist())}
    assert by_key.keys() == truth.gpus.keys()
    for key, gpu in truth.gpus.items():
        n, every = by_key[key], gpu.get(*EVERYTHING)
        ns = {kind: own[n] for kind, own in shares.ns.items()}
        spans = np.array([[every[:, 0].min(), every[:, 1].max()]])
        assert np.array_equal(shares.known[n], cover(spans, edges, base))
        assert np.array_equal(ns["busy"], cover(every, edges, base))
        compute = cover(gpu.get(COMPUTE), edges, base)
        working = cover(gpu.get(*KERNELS, BETWEEN), edges, base)  # copies between GPUs communicate
        assert np.array_equal(ns["computing"], compute)
        assert np.array_equal(ns["moving"] + ns["waiting"] + ns["not_split"], working - compute)
        assert np.array_equal(ns["memory"], ns["busy"] - working)
    # Over all bins and GPUs they are what the job loses.
    devices_of = found.whole.devices
    assert devices_of is not None
    sums = {kind: int(own.sum()) for kind, own in shares.ns.items()}
    names = {"moving": "moving", "waiting": "waiting", "not_split": "not_split", "memory": "memory"}
    assert {kind: sums[kind] for kind in names} == {kind: devices_of.by_class[name] for kind, name in names.items()}
    assert sums["computing"] == devices_of.by_class["compute"]
    percent = shares.get_percent("busy").value
    assert np.array_equal(np.isnan(percent), shares.known == 0)
    assert np.nanmin(percent) >= 0 and np.nanmax(percent) <= 100


@pytest.mark.parametrize("reports", cases(select("exercises/ex1a-slow", "exercises/ex3a-pp1"), push=1))
def test_exposed_waiting_is_that_of_single_kernels(reports: Sequence[Path]) -> None:
    truth = find_truth(reports)
    gpus = Truth(reports).gpus
    with opened(reports, selection=ALL_TIME) as job:
        waits = find_waits(job)
        edges = make_edges(*states.find_span(job, find_waits(job), gpus=True), BINS)
        shares = sum_shares(job, waits, edges)
        base = job.alignment.utc_base
    for n, (kernels, gpu) in enumerate(zip(truth, sorted_by_rank(gpus, len(truth)), strict=True)):
        compute = gpu.get(COMPUTE)
        moves = np.array([(k.until, k.end) for k in kernels])
        waiting = np.array([(k.begin, k.until) for k in kernels])
        with_moving = cover(np.concatenate([compute, moves]), edges, base)
        assert np.array_equal(shares.ns["moving"][n], with_moving - cover(compute, edges, base))
        with_waiting = cover(np.concatenate([compute, moves, waiting]), edges, base)
        assert np.array_equal(shares.ns["waiting"][n], with_waiting - with_moving)


def sorted_by_rank(gpus: dict, ranks: int) -> list:
    """Return the GPU of each rank, of which each has a report."""
    by_rank = {index: gpu for gpu in gpus.values() for index, _ in gpu.processes}
    return [by_rank[rank] for rank in range(ranks)]


@pytest.mark.slow
def test_only_the_chosen_time_counts(ddp: Job) -> None:
    begin, end = (limit - ddp.scope.first for limit in states.find_span(ddp, find_waits(ddp), gpus=True))
    with opened(DDP, selection=Selection(window=((begin + 5 * end) // 6, end - 10**6))) as job:
        waits = find_waits(job)
        span = states.find_span(job, find_waits(job), gpus=True)
        [(low, high)] = job.scope.windows
        assert low <= span[0] < span[1] <= high
        shares = sum_shares(job, waits, make_edges(*span, BINS))
        whole = compute_efficiency(job, waits).whole.devices
    assert whole is not None
    names = {"computing": "compute", "moving": "moving", "waiting": "waiting", "memory": "memory"}
    sums = {kind: int(shares.ns[kind].sum()) for kind in names}
    assert sums == {kind: whole.by_class[name] for kind, name in names.items()}
    assert sums["computing"] > 0 and sums["moving"] > 0


# ---- main threads ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reports", select("cpu/2024.2.3-2node", "cpu/2024.2.3-ompi_all"))
def test_main_threads_without_gpus(reports: Sequence[Path]) -> None:
    reports = [unpack(path) for path in reports]
    truth = Truth(reports)
    with opened(reports, selection=ALL_TIME) as job:
        waits = find_waits(job)
        plan = make_plan(job, list_counted_steps(job))
        rows = states.find_host_rows(job)
        low, high = truth.capture
        base = job.alignment.utc_base
        edges = make_edges(low - base, high - base, BINS)
        shares = Shares(rows, edges, HOST_KINDS, states.MPI_NOT_SPLIT + 1)
        for flat in states.list_host_states(job, waits, plan):
            shares.add(flat)
        calls = [spans for main in truth.mains for spans in [main.mpi] if len(spans)]
        span = states.find_span(job, find_waits(job), gpus=False)
        names = [job.tree.model.tasks[task].name for task in job.tree.task_of_row[rows].tolist()]
        summary = compute_summary(job, waits)
    every = np.concatenate(calls)
    assert (span[0] + base, span[1] + base) == (every[:, 0].min(), every[:, 1].max())
    expected = sorted(
        (
            cover(np.array([truth.captures[main.process[0]]]), edges, base).tolist(),
            cover(main.mpi, edges, base).tolist(),
        )
        for main in truth.mains
    )
    in_mpi = sum(shares.ns[kind] for kind in ("waiting", "moving", "not_split"))
    assert sorted(zip(shares.known.tolist(), in_mpi.tolist(), strict=True)) == expected
    assert np.array_equal(shares.known, sum(shares.ns.values()))
    assert summary.waits is not None
    of_task = {rank.task: rank.mpi for rank in summary.waits.ranks}
    for n, name in enumerate(names):
        mpi = of_task[name]
        assert mpi is not None
        assert (shares.ns["waiting"][n].sum(), shares.ns["moving"][n].sum()) == (mpi.wait_ns, mpi.transfer_ns)


# ---- lateness --------------------------------------------------------------------------------------------------------


def find_largest_lateness(truth: Sequence[Sequence[Kernel]], edges: IntArray, base: int) -> list[list[float]]:
    """Return the largest lateness of each rank in each bin; NaN where it begins no kernel of NCCL."""
    members = defaultdict(list)
    for kernels in truth:
        for kernel in kernels:
            members[kernel.operation].append(kernel)
    values: dict[tuple[int, int], int] = {}
    for own in members.values():
        *_, second, last = sorted(own, key=lambda kernel: kernel.begin)
        for kernel in own:
            at = next(b for b, (low, high) in enumerate(pairs(edges)) if low <= kernel.begin - base < high)
            late = last.begin - second.begin if kernel is last else 0
            values[kernel.rank, at] = max(late, values.get((kernel.rank, at), 0))
    bins = range(edges.size - 1)
    return [[values.get((rank, b), float("nan")) for b in bins] for rank in range(len(truth))]


@pytest.mark.parametrize("reports", select("exercises/ex1a-slow"))
def test_lateness_is_that_of_the_last_to_begin(reports: Sequence[Path]) -> None:
    truth = find_truth(reports)
    with opened(reports, selection=ALL_TIME) as job:
        edges = make_edges(*states.find_span(job, find_waits(job), gpus=True), BINS)
        found = find_lateness(job, find_waits(job), edges)
        base = job.alignment.utc_base
    assert found.row.tolist() == [0, 1, 2, 3]
    assert np.array_equal(found.value, find_largest_lateness(truth, edges, base), equal_nan=True)


@pytest.mark.slow
def test_a_rank_that_is_late(samples: Path, tmp_path: Path) -> None:
    """All that the other ranks do after a collective is moved, so that only the rank begins it later."""
    rank = 3
    reports = copy_to_one_node([samples / f"ddp-2x2.rank{r}.sqlite" for r in range(4)], tmp_path)
    kernels = [read_kernels(report, "ncclDevKernel_%") for report in reports]
    compute = sorted(set(read_kernels(reports[rank], "%")) - set(kernels[rank]))
    number, time = find_late(kernels[rank], compute, "kernel")
    for other in range(4):
        delay(reports[other], time if other == rank else kernels[other][number][1])
    begins = [own[number][0] + Report(report).utc for own, report in zip(kernels, reports, strict=True)]
    begins[rank] += DELAY
    with opened(reports, selection=ALL_TIME) as job:
        edges = make_edges(*states.find_span(job, find_waits(job), gpus=True), 1000)
        found = find_lateness(job, find_waits(job), edges)
        base = job.alignment.utc_base
    at = int(np.searchsorted(edges, begins[rank] - base, "right")) - 1
    assert found.value[rank, at] == begins[rank] - max(begins[:rank]) > DELAY // 2
    others = np.delete(found.value, rank, axis=0)
    assert not np.nanmax(others[:, at], initial=0)


@pytest.mark.slow
def test_nobody_is_late_where_nothing_could_be_split(ddp: Job) -> None:
    """What is not split is not known to be in time."""
    waits = find_waits(ddp)
    unsplit = waits._replace(
        verdict=np.full(waits.row.size, NOT_ALIGNED), until=waits.begin, culprit=np.full(waits.row.size, NOBODY)
    )
    found = find_lateness(ddp, unsplit, make_edges(ddp.scope.first, ddp.scope.last, 10))
    assert found.value.shape == (4, 10) and np.isnan(found.value).all()


# ---- metrics ---------------------------------------------------------------------------------------------------------

NAMES = {
    "sm": ("SMs Active",),
    "tensor": ("Tensor Active",),
    "dram": ("DRAM Read Bandwidth", "DRAM Write Bandwidth"),
    "nvlink_received": ("NVLink RX Requests User Data", "NVLink RX Responses User Data"),
    "nvlink_transmitted": ("NVLink TX Requests User Data", "NVLink TX Responses User Data"),
}


def average_samples(report: Report, gpu: int, name: str, edges: IntArray, base: int) -> list[float]:
    """Return the mean in each bin of a metric, where each sample holds until the next."""
    weighted, held = sum_samples(report, gpu, name, edges, base)
    return [w / h if h else float("nan") for w, h in zip(weighted, held, strict=True)]


def sum_samples(report: Report, gpu: int, name: str, edges: IntArray, base: int) -> tuple[list[int], list[int]]:
    """Return the sum of value x ns, and the ns, of a metric in each bin."""
    rows = report.connection.execute(
        """SELECT m.timestamp, m.value FROM GPU_METRICS m JOIN TARGET_INFO_GPU_METRICS n
        ON n.typeId = m.typeId AND n.metricId = m.metricId WHERE n.metricName LIKE ? || ' [%' AND m.typeId & 255 = ?
        ORDER BY m.timestamp""",
        (name, gpu),
    ).fetchall()
    limits = pairs(edges)
    weighted, held = [0] * len(limits), [0] * len(limits)
    at = 0
    for (begin, value), (end, _) in pairwise(rows):
        low, high = begin + report.utc - base, end + report.utc - base
        while at > 0 and limits[at][0] > low:
            at -= 1
        for b in range(at, len(limits)):
            inside = min(high, limits[b][1]) - max(low, limits[b][0])
            if inside > 0:
                weighted[b] += inside * value
                held[b] += inside
                at = b
            if limits[b][1] >= high:
                break
    return weighted, held


@pytest.mark.parametrize("reports", select("samples/single-graph"))
def test_metrics_of_one_report_are_the_mean_of_samples(reports: Sequence[Path]) -> None:
    with opened(reports, selection=ALL_TIME) as job:
        check_metrics(job, reports)


@pytest.mark.slow
def test_metrics_are_the_mean_of_samples(ddp: Job) -> None:
    check_metrics(ddp, DDP)


def check_metrics(job: Job, reports: Sequence[Path]) -> None:
    devices, base = list_devices(job), job.alignment.utc_base
    begin, end = states.find_span(job, find_waits(job), gpus=True)
    edges = make_edges((2 * begin + end) // 3, end, BINS)
    found = average_metrics(job, METRICS, edges)
    for key, names in NAMES.items():
        rows = {}
        for report in map(Report, reports):
            if report.has("GPU_METRICS"):
                for gpu in sorted({t & 255 for t in report.sql("SELECT DISTINCT typeId FROM GPU_METRICS")["typeId"]}):
                    means = [average_samples(report, gpu, name, edges, base) for name in names]
                    rows[report.host, gpu] = np.sum(means, axis=0)
        assert [(devices.rows[row].node, devices.rows[row].gpu.number) for row in found[key].row.tolist()] == list(rows)
        assert np.allclose(found[key].value, list(rows.values()), rtol=1e-12, atol=0, equal_nan=True)
        assert np.isfinite(found[key].value).any()


def test_jobs_without_metrics() -> None:
    with opened([SAMPLES / "mpi-4.rank0.sqlite"], selection=ALL_TIME) as job:
        assert average_metrics(job, METRICS, make_edges(job.scope.first, job.scope.last, 5)) == {}
