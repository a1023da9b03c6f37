"""What makes a trace small enough: only what helps by a useful amount."""

from __future__ import annotations

import pytest

from nsys2prv_ng.paraver.load_cost import LoadCost
from nsys2prv_ng.paraver.remedies import DETAILS, find_remedies

GB = 10**9
LINES = LoadCost(communications=4 * 10**6)
METRICS = LoadCost(events=10**6, pairs=2 * 10**7)
KERNELS = LoadCost(events=10**7, pairs=5 * 10**7)
STATES = LoadCost(states=10**6)
LOAD = KERNELS + METRICS + LINES + STATES
LOADS = {"kernels": KERNELS, "launch_lines": LINES, "gpu_metrics": METRICS, "scheduling": LoadCost(pairs=100)}
SECOND = 10**9


def test_nothing_helps_a_trace_below_the_limit() -> None:
    assert find_remedies(LOAD, LOADS, 0, SECOND) == []
    assert find_remedies(LOAD, LOADS, LOAD.memory, SECOND) == []
    assert len(find_remedies(LOAD, LOADS, LOAD.memory - 1, SECOND)) > 1


def test_remedies_are_those_that_save_a_fifth() -> None:
    memory = LOAD.memory
    assert memory == pytest.approx(4.95e9, rel=0.01)
    overview, window, *details = find_remedies(LOAD, LOADS, GB, 10 * SECOND)
    assert (overview.window, overview.without) == (None, "") and "100 MB" in overview.words
    assert [remedy.without for remedy in details] == ["launch_lines"]  # of metrics it is 18 %
    assert "about 3.3 GB instead of 4.9 GB" in details[0].words
    assert window.window is not None
    begin, end = window.window
    assert begin == pytest.approx(10 * SECOND - end, abs=1)
    part = (end - begin) / (10 * SECOND)
    assert (LOAD * part).memory == pytest.approx(0.8 * GB, rel=0.01)


def test_what_shows_the_run_is_never_omitted() -> None:
    assert not {"kernels", "nvtx", "nccl", "mpi", "memory_operations", "cuda_graphs"} & set(DETAILS)
    assert not [r for r in find_remedies(KERNELS, {"kernels": KERNELS}, GB, SECOND) if r.without]


def test_a_small_trace_needs_no_overview() -> None:
    """An overview may have 100 MB itself. A window that the program alone fills is none."""
    small = LoadCost(events=10**6, pairs=2 * 10**6)
    assert small.text_bytes < 100e6
    assert find_remedies(small, {}, 10**7, SECOND) == []
    assert [remedy.window is None for remedy in find_remedies(small, {}, 5 * 10**7, SECOND)] == [False]
