"""Times and efficiencies of GPUs and main threads, compared with unions of intervals by plain SQL and numpy."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.analysis.efficiency import CLASSES, DeviceTimes, Efficiency, HostTimes, WindowTimes, compute_efficiency
from nsys2prv_ng.analysis.efficiency_windows import Windows, sum_in_windows
from nsys2prv_ng.analysis.idle_pieces import CAUSES
from nsys2prv_ng.analysis.waits import find_waits
from nsys2prv_ng.intervals.step_functions import StepFunction
from nsys2prv_ng.job.open_job import Job, ReadOptions, open_job
from nsys2prv_ng.job.selection import Selection
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.efficiency import rate_devices, rate_host, sum_efficiency
from nsys2prv_ng.summary.efficiency_model import DeviceEfficiency, EfficiencyNumbers, WindowEfficiency
from tests.analysis import efficiency_truth as plain
from tests.analysis.efficiency_truth import Times, Truth
from tests.analysis.waits_truth import find_truth
from tests.conftest import REPOSITORY, Unpacked, slow_but, unpack
from tests.job.repetition_truth import find_repetitions
from tests.job.test_steps import count_warmup
from tests.report_truth import PUSH_POP, Report
from tests.spans import list_report_sets
from tests.translated import changed

_RANKS = {
    "exercises": "ex1a-slow ex1a-fast ex1b-fp32 ex2b-manual ex2b-overlap ex3a-pp1 ex3a-pp2 ex3a-pp2-plain tpgraph-1x4",
    "gpu": "ddp-2x2 mpi-4",
    "bench": "ddplong-2x2",
}
_SINGLE = {
    "gpu": "autograd-1 mpi-one-report oneproc-4gpu sampled-1 single-graph single-node um-1",
    "bench": "torchrun-one-report",
    "public": "h100_2gpu_1s mapf_report1 mfu_2gpu_before pipit_cloverleaf",
    "cpu": "2022.4.2-nvtx_py 2023.4.4-mpich_all 2024.2.3-acc_gcc 2024.2.3-nvtx_py 2024.2.3-omp_clang 2024.2.3-ompi_all",
}
SETS = {
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "samples/single-graph": ["samples/single-graph.sqlite"],
    "cpu/2024.2.3-nccl_mimic": [f"cpu/2024.2.3-nccl_mimic_rank{rank}.sqlite" for rank in range(2)],
    "cpu/2024.2.3-2node": [f"cpu/2024.2.3-2node_rank{rank}.sqlite" for rank in range(4)],
    "cpu/2023.4.4-2node": [f"cpu/2023.4.4-2node_rank{rank}.sqlite" for rank in range(2)],
    "cpu/2022.4.2-ompi": [f"cpu/2022.4.2-ompi_rank{rank}.sqlite" for rank in range(2)],
}
for _folder, _names in _RANKS.items():
    _end = ".xz" if _folder == "bench" else ""
    SETS |= {f"{_folder}/{n}": [f"{_folder}/{n}.rank{r}.sqlite{_end}" for r in range(4)] for n in _names.split()}
for _folder, _names in _SINGLE.items():
    SETS |= {f"{_folder}/{n}": [f"{_folder}/{n}.sqlite{'.xz' * (_folder == 'bench')}"] for n in _names.split()}
DDP = [REPOSITORY / f"samples/ddp-2x2.rank{rank}.sqlite" for rank in range(4)]


@dataclass(frozen=True)
class Made:
    """What the package and what plain loops find. Times of the package are UTC less `base`."""

    found: Efficiency
    numbers: EfficiencyNumbers | None
    base: int
    truth: Truth


@contextmanager
def opened(reports: Sequence[Path], way: str = "utc", selection: Selection | None = None) -> Iterator[Job]:
    """Open reports on UTC, to which plain loops place them."""
    options = ReadOptions(align=way, selection=selection or Selection())
    with tempfile.TemporaryDirectory() as folder, open_job(reports, Path(folder), options, Progress()) as job:
        yield job


def make(reports: Sequence[Path], way: str = "utc") -> Made:
    with opened(reports, way) as job:
        found = compute_efficiency(job, find_waits(job))
        return Made(found, sum_efficiency(job, found), job.alignment.utc_base, Truth(reports))


@pytest.fixture(scope="module", params=[pytest.param(DDP, id="ddp-2x2"), *list_report_sets(SETS)])
def made(request: pytest.FixtureRequest) -> Made:
    return make([unpack(path) for path in request.param])


def get_trees(window: WindowEfficiency) -> list[tuple[float, ...] | None]:
    """Return the numbers of GPUs in both conventions and of main threads."""
    trees = window.nccl_as_communication.device, window.nccl_as_useful.device, window.nccl_as_communication.host
    assert window.nccl_as_useful.host == window.nccl_as_communication.host
    return [None if tree is None else tuple(vars(tree).values()) for tree in trees]


def check_window(window: WindowEfficiency, times: Times) -> None:
    assert window.window_ns == times.window
    expected = [times.rate_devices(nccl_is_useful=False), times.rate_devices(nccl_is_useful=True), times.rate_hosts()]
    for tree, numbers in zip(get_trees(window), expected, strict=True):
        assert tree is numbers is None or tree == pytest.approx(numbers, rel=1e-12, abs=0)


def test_the_whole_time(made: Made) -> None:
    low, high = made.truth.capture
    if made.numbers is None:
        assert not made.truth.gpus and not made.truth.mains
        return
    assert made.found.windows == [(low - made.base, high - made.base)]
    check_window(made.numbers, plain.measure_common(made.truth, [(low, high)]))


def list_all_steps(truth: Truth, found: Efficiency) -> pd.DataFrame:
    """Return process, number, begin and end of the ranges of steps, or of what the kernels repeat."""
    assert found.steps is not None
    ranges = truth.ranges
    named = ranges[(ranges["domain"] == "") & (ranges["name"] == found.steps.name) & (ranges["style"] == PUSH_POP)]
    if not named.empty:
        return named
    repeated = find_repetitions(truth.reports)
    assert repeated is not None and found.steps.name == "repeated kernels"
    rows = [
        (process, number, *limits)
        for process, own in repeated.items()
        for number, limits in enumerate(zip(own.begin, own.end, strict=True), 1)
    ]
    return pd.DataFrame(rows, columns=["process", "number", "begin", "end"])


def count_warm(steps: pd.DataFrame) -> int:
    return count_warmup((steps["end"] - steps["begin"]).groupby(steps["number"]).max().sort_index().tolist())


def list_steps(truth: Truth, found: Efficiency) -> pd.DataFrame:
    """Return the steps that count."""
    steps = list_all_steps(truth, found)
    return steps[steps["number"] >= steps["number"].min() + count_warm(steps)]


def test_steps(made: Made) -> None:
    if made.found.steps is None:
        assert made.numbers is None or (made.numbers.in_steps is None and not made.numbers.steps)
        return
    assert made.numbers is not None and made.numbers.in_steps is not None
    counted = list_steps(made.truth, made.found)
    assert made.found.steps.warmup == count_warm(list_all_steps(made.truth, made.found))
    assert [step.number for step in made.numbers.steps] == sorted(set(counted["number"]))
    for step in made.numbers.steps:
        check_window(step, plain.measure_own(made.truth, counted[counted["number"] == step.number]))
    window = int(counted["begin"].min()), int(counted["end"].max())
    check_window(made.numbers.in_steps, plain.measure_common(made.truth, [window]))


def drop_warmup(truth: Truth, found: Efficiency, ranges: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges that do not begin in the warm-up of their process."""
    if found.steps is None:
        return ranges
    steps = list_all_steps(truth, found)
    steps = steps[steps["number"] < steps["number"].min() + count_warm(steps)]
    warm = {process: (own["begin"].min(), own["end"].max()) for process, own in steps.groupby("process")}
    inside = [
        process in warm and warm[process][0] <= begin < warm[process][1]
        for process, begin, _ in zip(*(ranges[c] for c in LIMITS), strict=True)
    ]
    return ranges[~np.array(inside, np.bool_)]


LIMITS = ("process", "begin", "end")


def test_ranges_that_repeat(made: Made) -> None:
    repeated = made.truth.list_repeated()
    ranges = drop_warmup(made.truth, made.found, repeated)
    expected = dict(list(ranges.groupby(["domain", "name"])))
    found = {(row.domain, row.name): row for row in made.found.ranges}
    assert made.numbers is None or len(made.numbers.ranges) == min(100, len(found))
    for row in [] if made.numbers is None else made.numbers.ranges:
        own = expected[row.domain, row.name]
        assert (row.occurrences, row.tasks) == (len(own), own["process"].nunique())
        check_window(row, plain.measure_own(made.truth, own))
    missing = [own for key, own in expected.items() if key not in found]
    assert all(not plain.measure_own(made.truth, own).window for own in missing)


def add_up(times: WindowTimes) -> dict[str, int]:
    """Return the time of GPUs as plain loops know it."""
    assert times.devices is not None
    by_class = Counter(times.devices.by_class)
    idle = sum(by_class.pop(name) for name in ("host", "queued", "graph", "unknown", "cut"))
    communication = sum(by_class.pop(name) for name in ("waiting", "moving", "not_split"))
    return {**by_class, "idle": idle, "communication": communication}


def test_every_ns_of_a_gpu_has_one_class(made: Made) -> None:
    windows = [(made.found.whole, [made.truth.capture])]
    if made.found.in_steps is not None:
        counted = list_steps(made.truth, made.found)
        windows.append((made.found.in_steps, [(int(counted["begin"].min()), int(counted["end"].max()))]))
    for times, window in windows:
        if times.devices is None:
            continue
        split = [plain.split_time(gpu, window) for gpu in made.truth.gpus.values()]
        assert add_up(times) == {name: sum(own[name] for own in split) for name in split[0]}
        assert sum(times.devices.by_class.values()) == times.ns * times.devices.devices
        assert sum(times.idle_by_range.values()) == times.devices.by_class["host"]


def test_losses_add_up_to_the_window_times_the_gpus(made: Made) -> None:
    numbers = made.numbers
    if numbers is None:
        return
    in_steps = [] if numbers.in_steps is None else [numbers.in_steps]
    for window in (numbers, *in_steps, *numbers.steps, *numbers.ranges):
        losses = window.losses
        if losses is not None:
            parts = {name: ns for name, ns in vars(losses).items() if name.endswith("_ns")}
            assert len(parts) == len(CLASSES) + 1 and min(parts.values()) >= 0
            assert sum(parts.values()) == losses.devices * window.window_ns
    for part in CLASSES:
        if numbers.steps and numbers.steps[0].losses is not None:
            assert sum(getattr(step.losses, f"{part}_ns") for step in numbers.steps) <= getattr(
                numbers.in_steps.losses, f"{part}_ns"
            )


def test_products_hold_to_the_last_bit(made: Made) -> None:
    windows = [] if made.numbers is None else [made.numbers, *made.numbers.steps, *made.numbers.ranges]
    for window in windows:
        for trees in (window.nccl_as_communication, window.nccl_as_useful):
            device, host = trees.device, trees.host
            if device is not None:
                assert device.parallel == device.load_balance * device.communication * device.orchestration
            if host is not None:
                assert host.mpi_parallel == host.mpi_load_balance * host.mpi_communication
                assert host.parallel == host.mpi_parallel * host.offload


# ---- literal numbers -------------------------------------------------------------------------------------------------

TABLE = {
    # PE with NCCL useful / communication, load balance, communication, orchestration, offload, host PE (percent)
    ("ddp-2x2", "capture"): (1852.1, 62.5, 2.17, 65.8, 99.8, 99.98, 2.28, 95.0, 41.3, 41.3),
    ("ddp-2x2", "own"): (1756.9, 65.1, 2.02, 65.5, 99.7, 99.98, 2.03, 99.4, 6.4, 4.2),
    ("ddp-2x2", "job"): (1757.3, 65.5, 2.16, 65.9, 94.5, 99.98, 2.30, 99.4, 38.5, 38.5),
    ("ex2b-manual", "capture"): (1095.7, 77.1, 3.47, 95.1, 99.9, 99.95, 4.28, 81.1, 26.9, 26.9),
    ("ex2b-manual", "own"): (749.2, 90.0, 4.09, 97.8, 98.5, 99.94, 4.51, 92.1, 14.6, 14.6),
    ("ex2b-overlap", "capture"): (853.2, 83.4, 4.69, 92.9, 99.8, 99.97, 5.23, 89.8, 32.6, 32.6),
    ("ex2b-overlap", "own"): (673.8, 87.2, 4.95, 92.2, 99.7, 99.97, 5.24, 94.7, 24.1, 22.3),
}
"""Sums that others made over the same reports, with SQL and numpy, as they printed them."""


@pytest.mark.parametrize("name", slow_but("ddp-2x2", ("ddp-2x2", "ex2b-manual", "ex2b-overlap")))
def test_numbers_that_others_printed(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    reports = DDP
    if name != "ddp-2x2":
        reports = [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
    with opened(reports) as job:
        assert job.steps is not None
        job = replace(job, steps=job.steps._replace(warmup=1))  # the sums are without the first step
        numbers = sum_efficiency(job, compute_efficiency(job, find_waits(job)))
    assert numbers is not None
    [own] = [row for row in numbers.ranges if row.name == "step"]
    windows = {"capture": numbers, "own": own, "job": numbers.in_steps}
    for (of_set, kind), (ms, *percents) in TABLE.items():
        if of_set == name:
            window = windows[kind]
            assert window is not None
            useful, communication = window.nccl_as_useful.device, window.nccl_as_communication.device
            host = window.nccl_as_useful.host
            assert useful is not None and communication is not None and host is not None
            assert useful.orchestration == communication.orchestration
            pairs = [(getattr(tree, part)) for part in PARTS for tree in (useful, communication)]
            values = [100 * value for value in (*pairs, useful.orchestration, host.offload, host.parallel)]
            assert abs(window.window_ns / 1e6 - ms) <= 0.05
            assert [abs(value - percent) <= 0.051 for value, percent in zip(values, percents, strict=True)] == [
                True
            ] * 9


PARTS = ("parallel", "load_balance", "communication")


# ---- losses ----------------------------------------------------------------------------------------------------------

IDLE_SETS = (
    "samples/mpi-4 samples/single-graph gpu/single-node gpu/um-1 gpu/oneproc-4gpu gpu/autograd-1 "
    "exercises/tpgraph-1x4 exercises/ex3a-pp2 public/pipit_cloverleaf"
)


@pytest.mark.parametrize(
    "reports", [pytest.param(DDP, id="ddp-2x2"), *list_report_sets({n: SETS[n] for n in IDLE_SETS.split()})]
)
def test_idle_time_has_its_causes_in_every_window(reports: list[Path]) -> None:
    made = make(reports)
    pieces = plain.list_idle_pieces(made.truth)
    everywhere = {key: [made.truth.capture] for key in made.truth.gpus}
    check_idle(made.found.whole, plain.sum_pieces(pieces, everywhere), has_ranges=True)
    ranges = drop_warmup(made.truth, made.found, made.truth.list_repeated())
    groups = [
        (row.times, ranges[(ranges["domain"] == row.domain) & (ranges["name"] == row.name)])
        for row in made.found.ranges
    ]
    if made.found.in_steps is not None and made.found.steps is not None:
        counted = list_steps(made.truth, made.found)
        window = int(counted["begin"].min()), int(counted["end"].max())
        check_idle(
            made.found.in_steps, plain.sum_pieces(pieces, {key: [window] for key in made.truth.gpus}), has_ranges=True
        )
        steps = zip(made.found.by_step, made.found.steps.number.tolist(), strict=True)
        groups += [(times, counted[counted["number"] == number]) for times, number in steps]
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


@pytest.mark.parametrize("name", slow_but("ex1a-slow", ("ex1a-slow", "ex1a-fast", "ex3a-pp1")))
def test_waiting_and_moving_in_every_window(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    """Compared on one node, where times are exact."""
    reports = [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
    kernels = find_truth(reports)
    made = make(reports, "auto")
    gpus = {index: gpu for gpu in made.truth.gpus.values() for index, _ in gpu.processes}
    counted = list_steps(made.truth, made.found)
    groups = [(row.times, made.truth.ranges[made.truth.ranges["name"] == row.name]) for row in made.found.ranges]
    groups = [(times, drop_warmup(made.truth, made.found, own)) for times, own in groups]
    groups += [
        (times, counted[counted["number"] == number])
        for times, number in zip(made.found.by_step, sorted(set(counted["number"])), strict=True)
    ]
    windows = [(made.found.whole, {rank: [made.truth.capture] for rank in gpus})]
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


# ---- other jobs ------------------------------------------------------------------------------------------------------


def test_a_gpu_of_two_processes_is_one_gpu(tmp_path: Path) -> None:
    """Its windows are those of both, and so are its users' operations."""
    same = ["UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 1 - gpuId WHERE gpuId < 2"]
    reports = [DDP[0], changed(DDP[1], tmp_path / "ddp-2x2.rank1.sqlite", same), *DDP[2:]]
    made = make(reports)
    assert made.numbers is not None and made.numbers.losses is not None
    assert made.numbers.losses.devices == len(made.truth.gpus) == 3
    test_the_whole_time(made)
    test_steps(made)
    test_ranges_that_repeat(made)
    test_every_ns_of_a_gpu_has_one_class(made)


def test_time_between_captures_is_not_captured(tmp_path: Path, samples: Path) -> None:
    """A process with two capture ranges, ten seconds apart, is one task with one GPU."""
    first = samples / "single-graph.sqlite"
    later = changed(
        first,
        tmp_path / "later.sqlite",
        ["UPDATE TARGET_INFO_SESSION_START_TIME SET utcEpochNs = utcEpochNs + 10000000000"],
    )
    made = make([first, later])
    devices, host = made.found.whole.devices, made.found.whole.host
    assert devices is not None and host is not None and (devices.devices, host.threads) == (1, 1)
    assert devices.by_class["not_captured"] == 10**10 - Report(first).duration
    test_every_ns_of_a_gpu_has_one_class(made)
    both = [part for main in made.truth.mains for part in (main.cuda, main.mpi)]
    assert host.useful == made.found.whole.ns - plain.measure(np.concatenate(both), [made.truth.capture])


def test_calls_of_cuda_within_mpi_are_mpi(tmp_path: Path, samples: Path) -> None:
    """As MPI makes them for buffers on GPUs."""
    within = """INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", eventClass, globalTid, nameId, returnValue)
        SELECT m.start + 10, m."end" - 10, 0, m.globalTid, (SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME LIMIT 1), 0
        FROM MPI_COLLECTIVES_EVENTS m ORDER BY m."end" - m.start DESC LIMIT 5"""
    made = make([changed(samples / "mpi-4.rank0.sqlite", tmp_path / "mpi-4.rank0.sqlite", [within])])
    before = make([samples / "mpi-4.rank0.sqlite"])
    assert made.found.whole.host == before.found.whole.host
    test_the_whole_time(made)


def test_a_graph_after_the_capture_is_in_the_whole_time(tmp_path: Path, samples: Path) -> None:
    copy = changed(
        samples / "single-graph.sqlite",
        tmp_path / "single-graph.sqlite",
        [
            """CREATE TEMP TABLE last AS SELECT * FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE ORDER BY start DESC LIMIT 1""",
            """UPDATE last SET start = (SELECT duration FROM ANALYSIS_DETAILS) + 1000000, correlationId = 0""",
            """UPDATE last SET "end" = start + 2000000""",
            """INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT * FROM last""",
        ],
    )
    made = make([copy])
    assert made.found.whole.ns == Report(copy).duration + 3_000_000
    test_the_whole_time(made)
    test_every_ns_of_a_gpu_has_one_class(made)


@pytest.mark.parametrize(
    ("limits", "cut"), [((1_200_000_000, 1_700_000_000), False), ((1_400_000_000, 1_778_000_000), True)]
)
def test_a_chosen_time_is_the_window(limits: tuple[int, int], cut: bool) -> None:
    with opened(DDP, selection=Selection(window=limits)) as job:
        found = compute_efficiency(job, find_waits(job))
        numbers, base = sum_efficiency(job, found), job.alignment.utc_base
    truth = Truth(DDP)
    [(low, high)] = found.windows
    assert high - low == limits[1] - limits[0] == found.whole.ns
    window = [(low + base, high + base)]
    assert numbers is not None and numbers.is_chosen
    check_window(numbers, plain.measure_common(truth, window))
    split = [plain.split_time(gpu, window) for gpu in truth.gpus.values()]
    assert add_up(found.whole) == {name: sum(own[name] for own in split) for name in split[0]}
    beyond = [piece for piece in plain.list_idle_gaps(truth) if piece[0] < window[0][1] < piece[1]]
    assert found.whole.devices is not None and (len(beyond) == 4 or not cut)
    assert found.whole.devices.by_class["cut"] == sum(window[0][1] - max(low, window[0][0]) for low, _ in beyond)
    inside = truth.ranges[(truth.ranges["begin"] > window[0][0]) & (truth.ranges["end"] < window[0][1])]
    steps = inside[inside["name"] == "step"].groupby("number")["process"].nunique()
    whole = sorted(steps.index[steps == 4])
    assert found.steps is not None
    assert (found.steps.number.tolist(), found.steps.warmup) == (whole, 0)


def test_chosen_ranks() -> None:
    with opened(DDP, selection=Selection(ranks=frozenset({1, 3}))) as job:
        numbers = sum_efficiency(job, compute_efficiency(job, find_waits(job)))
    assert numbers is not None
    truth = Truth([DDP[1], DDP[3]])
    check_window(numbers, plain.measure_common(truth, [truth.capture]))


# ---- small cases -----------------------------------------------------------------------------------------------------

TIMES = st.integers(0, 10**15)


@given(st.integers(1, 9), TIMES, TIMES, TIMES, TIMES)
def test_rates_are_exact(devices: int, useful: int, most: int, active: int, window: int) -> None:
    """Products hold to the last bit, and are the ratio of the times within 4 units in the last place."""
    active, window = most + active, most + active + window
    useful = min(devices * most, useful)
    times = DeviceTimes(devices, {}, most, most, active)
    rate = rate_devices(times, window, useful, most)
    exact = Fraction(useful, devices * window) if window else Fraction(0)
    assert rate.parallel == rate.load_balance * rate.communication * rate.orchestration
    assert abs(Fraction(rate.parallel) - exact) <= 4 * Fraction(math.ulp(rate.parallel))
    assert all(0 <= value <= 1 for value in vars(rate).values())
    host = rate_host(HostTimes(devices, useful, most, useful // 2, devices, useful), window)
    assert host.parallel == host.mpi_load_balance * host.mpi_communication * host.offload
    assert host.mpi_balance_in_nodes == host.mpi_load_balance
    assert host.mpi_balance_of_nodes == (1 if useful else 0)
    exact = Fraction(useful // 2, devices * window) if window else Fraction(0)
    assert abs(Fraction(host.parallel) - exact) <= 4 * Fraction(math.ulp(host.parallel))


def test_gpus_that_do_nothing_useful() -> None:
    assert rate_devices(DeviceTimes(2, {}, 0, 0, 5), 10, 0, 0) == DeviceEfficiency(0.0, 0.0, 0.0, 0.5)
    assert rate_devices(DeviceTimes(2, {}, 0, 0, 0), 0, 0, 0) == DeviceEfficiency(0.0, 0.0, 0.0, 0.0)


LIMITS_OF_WINDOWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)), max_size=6)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=8), LIMITS_OF_WINDOWS)
def test_sums_in_windows_are_those_of_single_ns(
    changes: list[tuple[int, int]], limits: list[tuple[int, int, int]]
) -> None:
    at = dict(sorted(changes))
    steps = StepFunction(np.array(list(at), np.int64), np.array(list(at.values()), np.int64))
    expected = np.zeros((3, 4), np.int64)
    for number, low, high in limits:
        for ns in range(low, high):
            expected[number, next((at[t] for t in sorted(at, reverse=True) if t <= ns), 3)] += 1
    kept = [(number, low, high) for number, low, high in limits if low < high]
    windows = Windows(*np.array(kept, np.int64).reshape(-1, 3).T)
    assert sum_in_windows(steps, 3, windows, 3, 4).tolist() == expected.tolist()
