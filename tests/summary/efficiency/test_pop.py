"""Serialisation and transfer: jobs whose network time is known by hand, and captures whose twin has a small message."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsys2prv_ng.analysis.efficiency.efficiency import compute_efficiency
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.model import load_model
from nsys2prv_ng.replay.what_if import Experiment, Saving, measure_savings
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.summary.efficiency.measure import sum_efficiency
from nsys2prv_ng.summary.efficiency.numbers import DeviceEfficiency, EfficiencyNumbers, HostEfficiency, WindowEfficiency
from tests.analysis.path.path_reports import STREAM_SYNC, Capture
from tests.conftest import REPORTS, SAMPLES, Unpacked
from tests.report_sets import find_set, list_sets, sets
from tests.tiers import cases

pytestmark = pytest.mark.slow

MS, US = 1_000_000, 1_000
STEPS = 6
PHASES = ((4, 2), (1, 5))
"""Compute (ms) of rank 0 and rank 1 before each of the two collectives of a step: the slower one is another rank."""
MOVING = (1, 2)
"""How long (ms) each collective moves data: a step of 12 ms has 9 ms without, and rank 1 computes for 7 of them."""
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"
DDP = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
MPI = [SAMPLES / f"mpi-4.rank{rank}.sqlite" for rank in range(4)]


@contextmanager
def opened(reports: Sequence[Path], selection: Selection | None = None) -> Iterator[Experiment]:
    options = ReadOptions(align="utc", selection=selection or Selection())
    with tempfile.TemporaryDirectory() as folder, open_job(reports, Path(folder), options, Progress()) as job:
        yield Experiment(load_model(job, find_waits(job)))


def rate(reports: Sequence[Path], selection: Selection | None = None) -> EfficiencyNumbers:
    with opened(reports, selection) as experiment:
        job = experiment.model.job
        numbers = sum_efficiency(job, compute_efficiency(job, find_waits(job)), measure_savings(experiment))
    assert numbers is not None
    return numbers


def get_device(window: WindowEfficiency | None) -> DeviceEfficiency:
    assert window is not None and window.nccl_as_communication.device is not None
    return window.nccl_as_communication.device


def get_host(window: WindowEfficiency | None) -> HostEfficiency:
    assert window is not None and window.nccl_as_communication.host is not None
    return window.nccl_as_communication.host


def list_pop(device: DeviceEfficiency) -> list[float | None]:
    return [device.pop_communication, device.serialisation, device.transfer]


def make_mpi(folder: Path, *, extra_ms: float = 0, communicating: int = STEPS) -> list[Path]:
    """Write a job of two ranks without GPUs; a call of rank 0 in its last step has no partner.

    `communicating`: the first steps, of which ranks communicate; in the others, the network has nothing to do.
    """
    captures = [Capture(rank, 2) for rank in range(2)]
    start = MS
    for step in range(STEPS):
        now, begin = [start, start], start
        for compute, moving in zip(PHASES, MOVING, strict=True):
            entered = [time + ms * MS for time, ms in zip(now, compute, strict=True)]
            end = max(entered) + moving * MS
            for capture, time in zip(captures, entered, strict=True):
                if step < communicating:
                    capture.mpi_call(time, end)
            now = [end, end]
        start = now[0]
        is_last = step == STEPS - 1
        if is_last and extra_ms:
            captures[0].mpi_call(start, start + round(extra_ms * MS))
            start += round(extra_ms * MS)
        for capture in captures:
            capture.range(f"step {step}", begin, start)
    return [capture.write(folder / f"mpi.rank{capture.rank}.sqlite") for capture in captures]


def make_nccl(
    folder: Path, *, mpi_ms: int = 0, graph_ms: float = 0, steps: int = STEPS, ranks: int = 2, start: int = MS
) -> list[Path]:
    """Write a job of two ranks with a GPU each, which launch all work of a step at its start, then wait for it.

    `mpi_ms`: length of an MPI collective at the end of each step. `graph_ms`: length of a graph on another stream of
    rank 0, while it waits in the second collective. `ranks`: more of them than two have no report. `start`: of the
    first step (ns).
    """
    captures = [Capture(rank, ranks) for rank in range(2)]
    for step in range(steps):
        begin = [start + 30 * US] * 2
        for phase, (compute, moving) in enumerate(zip(PHASES, MOVING, strict=True)):
            ends = [time + ms * MS for time, ms in zip(begin, compute, strict=True)]
            end = max(ends) + moving * MS
            for capture, since, until in zip(captures, begin, ends, strict=True):
                launch = start + 10 * US + 20 * US * phase
                capture.kernel(
                    capture.call("cudaLaunchKernel", launch, launch + 10 * US), since, until, device=capture.rank
                )
                capture.nccl_call(launch + 10 * US, launch + 20 * US)
                call = capture.call("cudaLaunchKernelExC", launch + 11 * US, launch + 19 * US)
                capture.kernel(call, until, end, name=NCCL, device=capture.rank)
            begin = [end, end]
        if graph_ms:
            call = captures[0].call("cudaGraphLaunch", start + 50 * US, start + 55 * US)
            since = end - 5 * MS
            captures[0].whole_graph(call, since, since + round(graph_ms * MS), stream=9)
        stop = end + 5 * US
        for capture in captures:
            capture.sync("cudaStreamSynchronize", start + 60 * US, stop, STREAM_SYNC, stream=7, device=capture.rank)
            if mpi_ms:
                capture.mpi_call(stop, stop + mpi_ms * MS)
            if steps > 1:
                capture.range(f"step {step}", start, stop + mpi_ms * MS)
        start = stop + mpi_ms * MS
    return [capture.write(folder / f"nccl.rank{capture.rank}.sqlite") for capture in captures]


def test_mpi_by_hand(tmp_path: Path) -> None:
    numbers = rate(make_mpi(tmp_path))
    host = get_host(numbers)
    assert numbers.length_ns % (12 * MS) == 0 and numbers.length_ns >= 12 * MS * (STEPS - 2)
    assert host.mpi_transfer == 9 / 12 and host.mpi_serialisation == 7 / 9
    assert host.mpi_communication == host.mpi_serialisation * host.mpi_transfer == pytest.approx(7 / 12, rel=1e-15)
    assert host.mpi_load_balance == 6 / 7
    assert host.mpi_parallel == host.mpi_load_balance * host.mpi_communication
    assert get_host(numbers.in_steps) == host


def test_nccl_by_hand(tmp_path: Path) -> None:
    numbers = rate(make_nccl(tmp_path))
    device = get_device(numbers)
    assert numbers.length_ns % 12_035_000 == 0
    assert device.transfer == 9_035 / 12_035 and device.serialisation == pytest.approx(7_000 / 9_035, rel=1e-15)
    assert device.pop_communication == device.serialisation * device.transfer
    # The two trees are the same product, divided in other ways.
    assert device.pop_communication == pytest.approx(device.communication * device.orchestration, rel=1e-14)
    assert device.parallel == pytest.approx(device.load_balance * device.pop_communication, rel=1e-14)
    assert get_device(numbers.in_steps) == device
    assert get_host(numbers).mpi_transfer is None
    useful = numbers.nccl_as_useful.device
    assert useful is not None and list_pop(useful) == [None] * 3
    for window in (*numbers.steps, *numbers.ranges):
        assert list_pop(get_device(window)) == [None] * 3


def test_both_by_hand(tmp_path: Path) -> None:
    """An ideal network takes the time from both; one that is ideal for MPI takes only that of MPI."""
    numbers = rate(make_nccl(tmp_path, mpi_ms=1))
    device, host = get_device(numbers), get_host(numbers)
    assert device.transfer == 9_035 / 13_035
    assert host.mpi_transfer == 12_035 / 13_035 and host.mpi_serialisation == 1
    assert host.mpi_communication == host.mpi_transfer


def test_a_chosen_time_has_them_only_in_its_steps(tmp_path: Path) -> None:
    reports = make_nccl(tmp_path)
    numbers = rate(reports, Selection(window=(15 * MS, 60 * MS)))
    assert numbers.is_chosen and list_pop(get_device(numbers)) == [None] * 3
    assert get_device(numbers.in_steps).transfer == 9_035 / 12_035


def test_all_time_of_a_job_without_steps(tmp_path: Path) -> None:
    """One step is none: the time in which GPUs work saves the same 3 ms as the capture."""
    numbers = rate(make_nccl(tmp_path, steps=1, start=100 * MS))
    assert numbers.in_steps is None and numbers.in_work is not None
    assert numbers.in_work.length_ns == 12 * MS and numbers.length_ns > 112 * MS
    for window in (numbers, numbers.in_work):
        ns = window.length_ns
        assert get_device(window).transfer == (ns - 3 * MS) / ns
        assert get_device(window).serialisation == pytest.approx(7 * MS / (ns - 3 * MS), rel=1e-15)


def test_the_time_between_captures_is_of_no_step(tmp_path: Path) -> None:
    """Four steps of 5 ms in each of two captures: a kernel, then an MPI collective that moves data for 1 ms.

    After the steps of each capture, another collective does so: it shortens only what lies between the captures.
    """
    paths, start = [], MS
    for part in range(2):
        captures = [Capture(rank, 2) for rank in range(2)]
        for number in range(4):
            entered = start + 4 * MS
            for capture, compute in zip(captures, (3, 2), strict=True):
                call = capture.call("cudaLaunchKernel", start + 10 * US, start + 20 * US)
                capture.kernel(call, start + 30 * US, start + compute * MS, device=capture.rank)
                capture.sync(
                    *("cudaStreamSynchronize", start + 30 * US, start + compute * MS + 5 * US, STREAM_SYNC),
                    stream=7,
                    device=capture.rank,
                )
                capture.mpi_call(entered, entered + MS)
                capture.range(f"step {4 * part + number}", start, entered + MS)
            start = entered + MS
        for capture in captures:
            capture.mpi_call(start + MS, start + 2 * MS)
        start += 50 * MS
        paths += [capture.write(tmp_path / f"part{part}.rank{capture.rank}.sqlite") for capture in captures]
    numbers, whole = rate(paths), rate(paths, Selection(window=(None, None)))
    assert len(numbers.windows_ns) == 2 and numbers.in_steps is not None and whole.in_steps is not None
    assert numbers.length_ns == numbers.in_steps.length_ns == 7 * 5 * MS
    assert get_device(numbers).transfer == get_device(numbers.in_steps).transfer == (35 - 7) / 35
    # With `--time :`, one window contains the time between the captures: nobody knows what that would be.
    assert whole.in_steps.length_ns == (7 * 5 + 50) * MS
    assert list_pop(get_device(whole.in_steps)) == list_pop(get_device(whole)) == [None] * 3


@pytest.mark.parametrize(("graph_ms", "is_known"), [(1.15, True), (1.25, False)])
def test_time_that_may_be_waiting_or_moving(tmp_path: Path, graph_ms: float, is_known: bool) -> None:
    """A graph that may contain NCCL is 5 % of the time of two GPUs from 1.2035 ms on."""
    device = get_device(rate(make_nccl(tmp_path, graph_ms=graph_ms)))
    assert device.transfer == (9_035 / 12_035 if is_known else None)
    assert (device.serialisation is None) == (device.pop_communication is None) == (not is_known)


@pytest.mark.parametrize(("extra_ms", "is_known"), [(6, True), (7, False)])
def test_mpi_calls_without_partner(tmp_path: Path, extra_ms: float, is_known: bool) -> None:
    """It is half of its part of the window, since it is the call of one of two threads."""
    numbers = rate(make_mpi(tmp_path, extra_ms=extra_ms))
    assert (extra_ms * MS <= 0.1 * numbers.length_ns) == is_known
    host = get_host(numbers)
    assert (host.mpi_transfer is not None) == (host.mpi_serialisation is not None) == is_known
    assert 0 < host.mpi_communication < 1


def test_nothing_moves_in_the_steps(tmp_path: Path) -> None:
    """The ranks communicate only in the warm-up."""
    host = get_host(rate(make_mpi(tmp_path, communicating=1)))
    assert host.mpi_transfer is host.mpi_serialisation is None


def test_nothing_moves_if_a_rank_has_no_report(tmp_path: Path) -> None:
    assert list_pop(get_device(rate(make_nccl(tmp_path, ranks=3)))) == [None] * 3


def test_without_a_replay_they_are_not_known() -> None:
    with opened(MPI) as experiment:
        job = experiment.model.job
        efficiency = compute_efficiency(job, find_waits(job))
        numbers = sum_efficiency(job, efficiency)
        known = sum_efficiency(job, efficiency, measure_savings(experiment))
    assert numbers is not None and known is not None
    assert list_pop(get_device(numbers)) == [None] * 3 and get_host(numbers).mpi_transfer is None
    assert get_host(numbers).mpi_communication == pytest.approx(get_host(known).mpi_communication, rel=1e-15)
    # No NCCL runs: both conventions have the same GPUs.
    assert known.nccl_as_useful == known.nccl_as_communication and None not in list_pop(get_device(known))


@pytest.mark.parametrize("reports", [DDP, MPI], ids=["ddp-2x2", "mpi-4"])
def test_savings_of_samples_are_those_of_an_ideal_network(reports: list[Path]) -> None:
    with opened(reports) as experiment:
        savings = measure_savings(experiment)
        ideal, _ = experiment.play(parse_changes("network = ideal"))
        expected = int(experiment.observed.lengths.sum() - ideal.lengths.sum())
    assert expected > 0
    assert savings.whole == savings.in_steps == Saving(expected, expected if reports is MPI else None)
    assert savings.in_work == Saving()


SETS = list_sets()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sets(SETS, push=["samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "gpu/autograd-1"])
)
def test_products_hold_for_real_reports(name: str) -> None:
    """To the last bit; the ideal window is neither longer than the real one nor shorter than what is useful."""
    with opened(find_set(name)) as experiment:
        job = experiment.model.job
        numbers = sum_efficiency(job, compute_efficiency(job, find_waits(job)), measure_savings(experiment))
    windows = [] if numbers is None else [numbers, numbers.in_steps, numbers.in_work]
    for window in filter(None, windows):
        trees = window.nccl_as_communication
        found = []
        if trees.host is not None:
            host = trees.host
            found.append((host.mpi_communication, host.mpi_serialisation, host.mpi_transfer))
            assert host.mpi_parallel == host.mpi_load_balance * host.mpi_communication
        if trees.device is not None:
            device = trees.device
            found.append((device.pop_communication, device.serialisation, device.transfer))
            if device.pop_communication is not None:
                assert device.load_balance * device.pop_communication == pytest.approx(device.parallel, rel=1e-12)
        for whole, serialisation, transfer in found:
            assert (serialisation is None) == (transfer is None)
            if serialisation is not None and transfer is not None:
                assert whole == serialisation * transfer
                assert 0 <= serialisation <= 1 and 0 < transfer <= 1


WHATIF = REPORTS / "whatif"
EXERCISES = REPORTS / "exercises"
TWINS = {"m-big": (WHATIF, "m-base", 0.01), "ex2b-manual": (EXERCISES, "ex1a-fast", 0.05)}


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(TWINS, push=1))
def test_transfer_is_what_a_twin_with_a_better_network_takes(unpacked: Unpacked, name: str) -> None:
    """Of 32 MB messages against 64 kB, and of two nodes against one: the same program, in two captures."""
    folder, twin, tolerance = TWINS[name]
    found, better = (rate([unpacked(folder / f"{one}.rank{rank}.sqlite") for rank in range(4)]) for one in (name, twin))
    steps = [numbers.length_ns / len(numbers.steps) for numbers in (found, better)]
    transfer, of_twin = get_device(found).transfer, get_device(better).transfer
    assert transfer is not None and of_twin is not None
    assert transfer == pytest.approx(steps[1] * of_twin / steps[0], rel=tolerance)
    assert of_twin > 0.99 > 2 * transfer
