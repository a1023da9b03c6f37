"""Times and efficiencies of GPUs and main threads, compared with unions of intervals by plain SQL and numpy."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.analysis.efficiency.efficiency import compute_efficiency
from nsys2prv_ng.analysis.efficiency.times import CLASSES, DeviceTimes, HostTimes
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.efficiency.measure import rate_devices, rate_host, sum_efficiency
from nsys2prv_ng.summary.efficiency.numbers import DeviceEfficiency, WindowEfficiency
from tests.analysis.efficiency import efficiency_truth as plain
from tests.analysis.efficiency.efficiency_reports import (
    ALL_TIME,
    DDP,
    SETS,
    Made,
    add_up,
    check_window,
    make,
    opened,
    select_counted,
)
from tests.analysis.efficiency.efficiency_truth import Truth
from tests.analysis.gpus.kernel_class_truth import list_pieces, sum_pieces
from tests.conftest import Unpacked, unpack
from tests.report_truth import Report
from tests.spans import list_report_sets
from tests.steps.step_truth import StepTruth, list_ranges
from tests.tiers import cases
from tests.translated import changed

FOR_EVERY_PUSH = (
    *("samples/mpi-4", "samples/single-graph", "gpu/oneproc-4gpu", "gpu/um-1", "gpu/autograd-1"),
    *("cpu/2022.4.2-ompi", "cpu/2022.4.2-nvtx_py", "public/pipit_cloverleaf"),
)
"""Beside DDP: MPI with GPUs and alone, graphs, one process with several GPUs, ranges of all kinds, and none."""


OTHERS = list_report_sets(SETS, push=FOR_EVERY_PUSH)


@pytest.fixture(scope="module", params=[pytest.param(DDP, id="ddp-2x2", marks=pytest.mark.slow), *OTHERS])
def made(request: pytest.FixtureRequest) -> Made:
    return make([unpack(path) for path in request.param])


def test_the_time_that_numbers_cover(made: Made) -> None:
    """The steps after the warm-up, else the capture."""
    low, high = made.window
    if made.numbers is None:
        assert not made.truth.gpus and not made.truth.mains
        return
    assert made.found.windows == [(low - made.base, high - made.base)]
    check_window(made.numbers, plain.measure_common(made.truth, [(low, high)]))


@pytest.mark.slow
def test_all_time() -> None:
    made = make(DDP, selection=ALL_TIME)
    assert made.window == made.truth.capture
    test_the_time_that_numbers_cover(made)
    test_every_ns_of_a_gpu_has_one_class(made)


@pytest.mark.slow
def test_steps(made: Made) -> None:
    if made.found.steps is None:
        assert made.numbers is None or (made.numbers.in_steps is None and not made.numbers.steps)
        return
    assert made.numbers is not None and made.numbers.in_steps is not None
    assert made.steps is not None and made.found.steps.warmup == made.steps.warmup
    assert [step.number for step in made.numbers.steps] == made.steps.counted
    for step in made.numbers.steps:
        check_window(step, made.measure_step(step.number))
        assert step.host_ns == made.steps.host_lengths[made.steps.numbers.index(step.number)]
    check_window(made.numbers.in_steps, plain.measure_common(made.truth, [made.steps.window]))
    if made.steps.on_gpu:
        assert sum(step.length_ns for step in made.numbers.steps) == made.numbers.length_ns


def test_ranges_that_repeat(made: Made) -> None:
    ranges = select_counted(made.steps, made.truth.list_repeated())
    expected = dict(list(ranges.groupby(["domain", "name"])))
    found = {(row.domain, row.name): row for row in made.found.ranges}
    assert made.numbers is None or len(made.numbers.ranges) == min(100, len(found))
    for row in [] if made.numbers is None else made.numbers.ranges:
        own = expected[row.domain, row.name]
        assert (row.occurrences, row.tasks) == (len(own), own["process"].nunique())
        check_window(row, plain.measure_own(made.truth, own))
    missing = [own for key, own in expected.items() if key not in found]
    assert all(not plain.measure_own(made.truth, own).window for own in missing)


def test_every_ns_of_a_gpu_has_one_class(made: Made) -> None:
    windows = [(made.found.whole, [made.window])]
    if made.found.in_steps is not None and made.steps is not None:
        windows.append((made.found.in_steps, [made.steps.window]))
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
            assert sum(parts.values()) == losses.devices * window.length_ns
    for part in CLASSES:
        if numbers.steps and numbers.steps[0].losses is not None:
            by_step = sum(getattr(step.losses, f"{part}_ns") for step in numbers.steps)
            whole = getattr(numbers.in_steps.losses, f"{part}_ns")
            assert by_step == whole or ((made.steps is None or not made.steps.on_gpu) and by_step <= whole)


@pytest.mark.slow
def test_compute_has_the_class_of_the_kernel_that_began_first(made: Made) -> None:
    if made.numbers is None or made.numbers.losses is None:
        return
    numbers, truth = made.numbers, made.truth
    windows: list[tuple[WindowEfficiency, dict[tuple[str, str], plain.WindowList]]]
    windows = [(numbers, {key: [made.window] for key in truth.gpus})]
    if made.steps is not None and made.steps.on_gpu:
        for step in numbers.steps:
            windows.append((step, {key: [made.steps.get_limits(step.number)] for key in truth.gpus}))
    ranges = dict(list(select_counted(made.steps, truth.list_repeated()).groupby(["domain", "name"])))
    own_ranges: list[tuple[WindowEfficiency, pd.DataFrame]]
    own_ranges = [(row, ranges[row.domain, row.name]) for row in numbers.ranges]
    for row, own in own_ranges:
        by_gpu = {key: plain.unite_ranges(own, gpu.processes) for key, gpu in truth.gpus.items()}
        windows.append((row, by_gpu))
    pieces = list_pieces(truth)
    for row, by_gpu in windows:
        if row.losses is None:
            continue
        expected: Counter[str] = Counter()
        for key, own_windows in by_gpu.items():
            expected += sum_pieces(pieces[key], own_windows)
        found = list(row.losses.compute_by_class.items())
        assert found == sorted(expected.items(), key=lambda item: (-item[1], item[0]))
        assert sum(ns for _, ns in found) == row.losses.compute_ns


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
    ("ex2b-manual", "capture"): (1095.7, 77.1, 3.47, 95.1, 99.9, 99.95, 4.28, 81.1, 26.9, 26.9),
    ("ex2b-manual", "own"): (749.2, 90.0, 4.09, 97.8, 98.5, 99.94, 4.51, 92.1, 14.6, 14.6),
    ("ex2b-overlap", "capture"): (853.2, 83.4, 4.69, 92.9, 99.8, 99.97, 5.23, 89.8, 32.6, 32.6),
    ("ex2b-overlap", "own"): (673.8, 87.2, 4.95, 92.2, 99.7, 99.97, 5.24, 94.7, 24.1, 22.3),
}
"""Sums that others made over the same reports, with SQL and numpy, as they printed them."""
EX2B = ("ex2b-manual", "ex2b-overlap")


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(("ddp-2x2", *EX2B), push=1))
def test_numbers_that_others_printed(shared_reports: Path, unpacked: Unpacked, name: str) -> None:
    reports = DDP
    if name != "ddp-2x2":
        reports = [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)]
    in_steps, whole = make(reports).numbers, make(reports, selection=ALL_TIME).numbers
    assert in_steps is not None and whole is not None
    [own] = [row for row in in_steps.ranges if row.name == "step"]  # the sums are without the first step
    windows: dict[str, WindowEfficiency] = {"capture": whole, "own": own}
    for (of_set, kind), (ms, *percents) in TABLE.items():
        if of_set == name:
            window = windows[kind]
            useful, communication = window.nccl_as_useful.device, window.nccl_as_communication.device
            host = window.nccl_as_useful.host
            assert useful is not None and communication is not None and host is not None
            assert useful.orchestration == communication.orchestration
            pairs = [(getattr(tree, part)) for part in PARTS for tree in (useful, communication)]
            values = [100 * value for value in (*pairs, useful.orchestration, host.offload, host.parallel)]
            assert abs(window.length_ns / 1e6 - ms) <= 0.05
            assert [abs(value - percent) <= 0.051 for value, percent in zip(values, percents, strict=True)] == [
                True
            ] * 9


PARTS = ("parallel", "load_balance", "communication")


# ---- other jobs ------------------------------------------------------------------------------------------------------


@pytest.mark.all_sets
@pytest.mark.slow
def test_a_gpu_of_two_processes_is_one_gpu(tmp_path: Path) -> None:
    """Its windows are those of both, and so are its users' operations."""
    same = ["UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 1 - gpuId WHERE gpuId < 2"]
    reports = [DDP[0], changed(DDP[1], tmp_path / "ddp-2x2.rank1.sqlite", same), *DDP[2:]]
    made = make(reports)
    assert made.numbers is not None and made.numbers.losses is not None
    assert made.numbers.losses.devices == len(made.truth.gpus) == 3
    test_the_time_that_numbers_cover(made)
    test_steps(made)
    test_ranges_that_repeat(made)
    test_every_ns_of_a_gpu_has_one_class(made)


@pytest.mark.slow
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
    assert host.useful == made.found.whole.ns - plain.measure(np.concatenate(both), [made.window])


@pytest.mark.slow
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
    test_the_time_that_numbers_cover(made)
    test_every_ns_of_a_gpu_has_one_class(made)


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "cut"), [((1_400_000_000, 1_778_000_000), True), ((1_200_000_000, 1_700_000_000), False)]
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
    steps = StepTruth(truth.reports, list_ranges(truth.reports, "step"))
    inside = [
        n for n in steps.numbers if window[0][0] <= steps.get_limits(n)[0] and steps.get_limits(n)[1] < window[0][1]
    ]
    assert found.steps is not None and found.steps.number.tolist() == inside


@pytest.mark.slow
def test_chosen_ranks() -> None:
    with opened(DDP, selection=Selection(window=(None, None), ranks=frozenset({1, 3}))) as job:
        numbers = sum_efficiency(job, compute_efficiency(job, find_waits(job)))
    assert numbers is not None
    truth = Truth([DDP[1], DDP[3]])
    check_window(numbers, plain.measure_common(truth, [truth.capture]))


# ---- small cases -----------------------------------------------------------------------------------------------------

TIMES = st.integers(0, 10**15)


@given(st.integers(1, 9), TIMES, TIMES, TIMES, TIMES, st.none() | st.integers(-(10**15), 10**16))
def test_rates_are_exact(devices: int, useful: int, most: int, active: int, window: int, saved: int | None) -> None:
    """Products hold to the last bit, and are the ratio of the times within 4 units in the last place."""
    active, window = most + active, most + active + window
    useful = min(devices * most, useful)
    times = DeviceTimes(devices, {}, most, most, active, {})
    rate = rate_devices(times, window, useful, most, saved)
    exact = Fraction(useful, devices * window) if window else Fraction(0)
    assert rate.parallel == rate.load_balance * rate.communication * rate.orchestration
    assert abs(Fraction(rate.parallel) - exact) <= 4 * Fraction(math.ulp(rate.parallel))
    host = rate_host(HostTimes(devices, useful, most, useful // 2, devices, useful), window, saved)
    for rates in (rate, host):
        assert all(0 <= value <= 1 for value in vars(rates).values() if value is not None)
    check_split(rate.pop_communication, rate.serialisation, rate.transfer, most, window, saved)
    check_split(host.mpi_communication, host.mpi_serialisation, host.mpi_transfer, most, window, saved)
    assert host.parallel == host.mpi_load_balance * host.mpi_communication * host.offload
    assert host.mpi_balance_in_nodes == host.mpi_load_balance
    assert host.mpi_balance_of_nodes == (1 if useful else 0)
    exact = Fraction(useful // 2, devices * window) if window else Fraction(0)
    assert abs(Fraction(host.parallel) - exact) <= 4 * Fraction(math.ulp(host.parallel))


def check_split(
    whole: float | None, serialisation: float | None, transfer: float | None, most: int, window: int, saved: int | None
) -> None:
    """Compare with exact fractions: the most useful time / ideal window, and ideal window / window."""
    if saved is None:
        assert serialisation is transfer is None
        return
    assert serialisation is not None and transfer is not None
    assert whole == serialisation * transfer
    ideal = sorted([most, window - saved, window])[1]
    for rate, part, of in ((serialisation, most, ideal), (transfer, ideal, window), (whole, most, window)):
        exact = Fraction(part, of) if of else Fraction(0)
        assert abs(Fraction(rate) - exact) <= 4 * Fraction(math.ulp(rate))


def test_gpus_that_do_nothing_useful() -> None:
    assert rate_devices(DeviceTimes(2, {}, 0, 0, 5, {}), 10, 0, 0) == DeviceEfficiency(
        parallel=0.0, load_balance=0.0, communication=0.0, orchestration=0.5
    )
    assert rate_devices(DeviceTimes(2, {}, 0, 0, 0, {}), 0, 0, 0) == DeviceEfficiency(
        parallel=0.0, load_balance=0.0, communication=0.0, orchestration=0.0
    )
