"""What presets call communication: the NCCL kernels of a sample under other names, or as copies, are it as before.

The GPUs of the changed reports do the same at the same times, so each preset must show what it shows of the unchanged
sample; only names and kinds of copies differ.
"""

from __future__ import annotations

import pytest

from nsys2prv_ng import translate
from tests.cfgs.recorded import Window, show
from tests.sources.cuda.test_communication import (
    BETWEEN,
    DEVICE_TO_DEVICE,
    NO_RANGES,
    PEER_TO_PEER,
    RENAMED,
    as_copies,
    change_reports,
)
from tests.trace_reader import Trace, read_trace

pytestmark = pytest.mark.slow  # translates whole jobs

CHANGES = {
    "unchanged": [],
    "another library": RENAMED,
    "peer to peer": [*as_copies(PEER_TO_PEER, *BETWEEN), *NO_RANGES],
    "copy engines of NCCL": as_copies(DEVICE_TO_DEVICE),
}
TIME = "1.5s:1.52s"
NCCL_KERNEL = 63000007


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    made = {}
    for name, statements in CHANGES.items():
        folder = tmp_path_factory.mktemp("changed")
        translate(change_reports(folder, statements), folder / "x.prv", time=TIME, align="utc")
        made[name] = read_trace(folder / "x.prv")
    return made


def list_bursts(window: Window, *, is_flag: bool = False) -> list[tuple[int, int, int, float]]:
    """Return row, start, end and value of each longest stretch with one value; `is_flag`: with any but 0."""
    stretches: list[tuple[int, int, int, float]] = []
    for row, begin, end, value in window.bursts[window.bursts["value"] != 0].itertuples(index=False):
        value = 1.0 if is_flag else value
        if stretches and (row, begin, value) == (stretches[-1][0], *stretches[-1][2:]):
            begin = stretches.pop()[1]
        stretches.append((row, begin, end, value))
    return stretches


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "unchanged"])
@pytest.mark.parametrize("preset", ["analysis/concurrency_of_computation_during_nccl", "analysis/in_useful_kernel"])
def test_communication_is_told_from_compute(traces: dict[str, Trace], preset: str, change: str) -> None:
    shown, before = (list_bursts(show(preset, traces[name]).windows[-1]) for name in (change, "unchanged"))
    assert shown == before and len(shown) > 10


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "unchanged"])
def test_exposed_communication(traces: dict[str, Trace], change: str) -> None:
    """Which part of it is waiting shows only for NCCL's operations."""
    shown, before = (show("analysis/exposed_communication", traces[name]).windows[0] for name in (change, "unchanged"))
    exposed = list_bursts(shown, is_flag=True)
    assert exposed == list_bursts(before, is_flag=True) and len(exposed) > 10


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "unchanged"])
def test_activities_have_the_colour_of_communication(traces: dict[str, Trace], change: str) -> None:
    windows = [show("views/cuda_activities", traces[name]).windows[-1] for name in (change, "unchanged")]
    ours, theirs = ([burst for burst in list_bursts(window) if burst[3] == NCCL_KERNEL] for window in windows)
    assert ours == theirs and len(ours) > 10


def test_names_of_kernels_by_what_they_do(traces: dict[str, Trace]) -> None:
    changed, unchanged = (show("basics/kernels", traces[name]).windows for name in ("another library", "unchanged"))
    assert sum_time(changed[5]) == sum_time(unchanged[5]) > 0
    (nccl,) = (window for window in show("basics/nccl", traces["unchanged"]).windows if window.name == "NCCL kernels")
    assert sum_time(changed[2]) == sum_time(nccl) > 0 == sum_time(unchanged[2])


def sum_time(window: Window) -> int:
    return sum(end - begin for _, begin, end, _ in list_bursts(window))
