"""What launched operations waited for while their GPU was idle: causes planted in small reports, and loops over ns."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.analysis.gpus.queued import Waiting, _find_functions
from nsys2prv_ng.intervals.states import flatten
from tests.analysis.path.path_reports import STREAM_WAIT, Capture, write_captures
from tests.summary.made import summarize_reports

EVENT, OTHER = "cudaStreamWaitEvent", "another process on the GPU"
Cause = tuple[str, str, int]


def find_causes(captures: list[Capture], folder: Path, gpu: int = 0) -> set[Cause]:
    """Return cause, name and ns of the idle time of a GPU."""
    report = write_captures(captures, folder / "a.sqlite", len(captures))
    causes = summarize_reports([report]).gpus[gpu].idle_causes
    assert causes is not None
    assert all(each.range == "" for each in causes)
    return {(each.cause, each.call, each.ns) for each in causes}


def start(**changes: int) -> Capture:
    """Return a process with a kernel from 1,000 to 2,000 ns."""
    capture = Capture(**changes)
    capture.kernel(capture.call("cudaLaunchKernel", 0, 100), 1_000, 2_000)
    return capture


def launch(capture: Capture, begin: int, end: int, at: int, stream: int = 7, device: int = 0) -> None:
    """Add a kernel of 1,000 ns, by the times of its launch call and its start."""
    capture.kernel(capture.call("cudaLaunchKernel", begin, end), at, at + 1_000, stream=stream, device=device)


def test_the_launch_divides_the_gap(tmp_path: Path) -> None:
    """The host is late until the call returned, whatever delays the start then."""
    capture = start()
    launch(capture, 5_000, 6_000, 9_000)
    launch(capture, 11_000, 13_000, 12_000)  # it starts before its call returned
    launch(capture, 12_500, 12_900, 13_500)  # launched before the gap
    assert find_causes([capture], tmp_path) == {
        ("host", "", 3_000 + 1_000),
        ("host", "cudaLaunchKernel", 1_000 + 1_000),
        ("queued", "", 3_000 + 500),
    }


def test_host_functions_of_the_stream(tmp_path: Path) -> None:
    """Before the launch has returned, the host is late even if a host function runs. Other streams do not matter."""
    capture = start()
    capture.host_function(capture.call("cudaLaunchHostFunc", 200, 300), 2_500, 5_000, "early")
    capture.host_function(capture.call("cudaLaunchHostFunc", 400, 500), 5_200, 7_000, "late")
    capture.host_function(capture.call("cudaLaunchHostFunc", 400, 500), 2_500, 7_500, "elsewhere", stream=9)
    launch(capture, 2_700, 3_000, 8_000)
    assert find_causes([capture], tmp_path) == {
        ("host", "", 700),
        ("host", "cudaLaunchKernel", 300),
        ("queued", "host function early", 2_000),
        ("queued", "host function late", 1_800),
        ("queued", "", 200 + 1_000),
    }


def test_a_host_function_of_another_stream_behind_an_event(tmp_path: Path) -> None:
    capture = start()
    capture.host_function(capture.call("cudaLaunchHostFunc", 200, 300), 3_000, 6_000, "load", stream=9)
    capture.record(5, 310, 320, stream=9)
    capture.sync("cudaStreamWaitEvent", 400, 500, STREAM_WAIT, stream=7, event=5)
    launch(capture, 600, 700, 6_500)
    assert find_causes([capture], tmp_path) == {
        ("queued", EVENT, 1_000),
        ("queued", "host function load", 3_000),
        ("queued", "", 500),
    }


def test_an_event_of_another_gpu(tmp_path: Path) -> None:
    """A kernel of the other GPU that nothing waits for explains nothing."""
    capture = start()
    launch(capture, 200, 300, 4_000, stream=8, device=1)
    capture.record(5, 310, 320, stream=8, device=1)
    launch(capture, 330, 340, 5_000, stream=8, device=1)
    capture.sync("cudaStreamWaitEvent", 400, 500, STREAM_WAIT, stream=7, event=5)
    launch(capture, 600, 2_500, 5_500)
    assert find_causes([capture], tmp_path) == {
        ("host", "cudaLaunchKernel", 500),
        ("queued", EVENT, 2_500),
        ("queued", "", 500),
    }


def test_a_host_node_of_a_graph(tmp_path: Path) -> None:
    """All nodes have the id of the launch: names come from the call within each function."""
    capture = Capture()
    graph = capture.call("cudaGraphLaunch", 0, 100)
    capture.kernel(graph, 1_000, 2_000, node=1)
    capture.host_function(graph, 2_100, 4_000, "first", node=2)
    capture.host_function(graph, 4_100, 5_000, "second", node=3)
    capture.kernel(graph, 5_200, 6_000, node=4)
    assert find_causes([capture], tmp_path) == {
        ("graph", "host function first", 1_900),
        ("graph", "host function second", 900),
        ("graph", "", 100 + 100 + 200),
    }


@pytest.mark.parametrize(("returned", "named"), [(1_500, True), (2_500, False)])
def test_another_process_on_the_gpu(returned: int, named: bool, tmp_path: Path) -> None:
    """It has the GPU if its operation still ran when the other one was launched."""
    other = Capture(rank=1, ranks=2)
    launch(other, 1_200, returned, 4_000)
    launch(other, 1_600, 1_700, 5_500)
    idle = find_causes([start(ranks=2), other], tmp_path)
    host = {("host", "cudaLaunchKernel", 500)} if not named else set()
    taken = {("queued", OTHER, 2_000), ("queued", "", 500)} if named else {("queued", "", 1_500 + 500)}
    assert idle == host | taken


def test_another_process_does_not_explain_a_long_gap(tmp_path: Path) -> None:
    other = Capture(rank=1, ranks=2)
    launch(other, 1_200, 1_500, 57_702_000)
    assert find_causes([start(ranks=2), other], tmp_path) == {("queued", OTHER, 150_000), ("queued", "", 57_550_000)}


@pytest.mark.parametrize("seed", range(15))
def test_host_functions_in_parts_of_gaps(seed: int) -> None:
    """Each ns of a part has the function that runs on its stream."""
    dice = random.Random(seed)
    spans = sorted((dice.randrange(3), dice.randrange(60), dice.randrange(1, 25)) for _ in range(dice.randrange(12)))
    row, begin, length = np.array(spans, np.int64).reshape(-1, 3).T
    flat = flatten(row, begin, begin + length, np.arange(row.size))
    running = {}
    for stream, low, high, name in zip(*(column.tolist() for column in flat), strict=True):
        running.update({(stream, time): name for time in range(low, high)})
    parts = [(dice.randrange(-1, 4), low := dice.randrange(70), low + dice.randrange(1, 30)) for _ in range(20)]
    stream, low, high = np.array(parts, np.int64).T
    found = _find_functions(flat, stream, Waiting(stream, low, high, stream))
    named = {}
    for part, first, last, name in zip(*(column.tolist() for column in found), strict=True):
        assert first < last
        named.update({(part, time): name for time in range(first, last)})
    assert named == {
        (part, time): running[stream, time]
        for part, (stream, low, high) in enumerate(parts)
        for time in range(low, high)
        if (stream, time) in running
    }
