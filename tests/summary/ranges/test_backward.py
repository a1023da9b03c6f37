"""Links of backward passes to forward ranges: random ranges against loops over texts, and small reports by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import nsys2prv_ng
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.reading.opened_events import ABSENT
from nsys2prv_ng.sources.nvtx.events import read_sequence_numbers, split_numbers
from nsys2prv_ng.summary.ranges.backward import TimedRanges, link_backward
from nsys2prv_ng.summary.ranges.numbers import list_paths
from tests.conftest import DATA, Unpacked
from tests.examples import examples
from tests.sources.small_reports import MAIN, PROCESS, UTC, WORKER, Rows, export
from tests.summary.made import IN_STEPS, summarize_reports
from tests.summary.ranges.tree_truth import Range, find_path, link

ENGINE = "autograd::engine::evaluate_function: "
PROGRAM, OPERATORS = ("layer0", "layer1", "loss", "Backward"), ("aten::mm", "aten::add", "MyFunction", "CopySlices")
NODES = ("MmBackward0", "torch::autograd::CopyBackwards", "CopySlices", "MyFunctionBackward")
THREADS = (MAIN, WORKER, WORKER + 1, 1 << 48 | 99 << 24 | 99)
STEP = 60
"""Length of a step in random ranges (ns)."""


def make_ranges(seed: int) -> dict[int, list[Range]]:
    """Make ranges that nest on each thread, no two with a limit in common, with a few numbers that repeat."""
    generator = random.Random(seed)
    made: dict[int, list[Range]] = {thread: [] for thread in THREADS}
    times = iter(range(1_000))

    def add(thread: int, depth: int, around: str) -> None:
        texts = [*PROGRAM * 2, *(f"{name}, seq = {generator.randrange(4)}" for name in OPERATORS), "aten::empty"]
        if generator.random() < len(turns) / 6 + sum(map(len, made.values())) / 15:  # mostly later
            texts = [ENGINE + name for name in NODES] * 2
            texts += [f"{name}, seq = {generator.randrange(4)}" for name in NODES]
        text = generator.choice(texts)
        if around.startswith(ENGINE) and generator.random() < 0.8:
            text = f"{around.removeprefix(ENGINE)}, seq = {generator.randrange(4)}, op_id = 7"
        begin = next(times)
        turns.append([thread, depth, text, begin])

    turns: list[list[int | str]] = []
    for _ in range(generator.randrange(4, 60)):
        thread = generator.choice(THREADS[: generator.randrange(1, 5)])
        mine = [each for each in turns if each[0] == thread]
        if mine and (len(mine) > 4 or generator.random() < 0.45):
            turns.remove(mine[-1])
            _, _, text, begin = mine[-1]
            made[thread].append(make_range(int(begin), next(times), thread, str(text)))
        else:
            add(thread, len(mine), str(mine[-1][2]) if mine else "")
    for thread, _, text, begin in reversed(turns):
        made[int(thread)].append(make_range(int(begin), next(times), int(thread), str(text)))
    for own in made.values():
        own.sort(key=lambda each: each[:2])
    return made


def make_range(begin: int, end: int, thread: int, text: str) -> Range:
    return Range(begin, -end, thread, text, text.partition(", seq")[0])


@pytest.mark.parametrize("first", range(4))
def test_links_are_those_of_loops_over_texts(first: int) -> None:
    linked = 0
    for seed in range(first * 10_000, first * 10_000 + examples(1_000)):
        ranges = make_ranges(seed)
        truth = link(ranges, lambda begin: begin // STEP)
        every = [each for thread in THREADS for each in ranges[thread]]
        outer = [find_path(ranges, each.begin, each.thread) for each in every]
        around = [
            path[path.index(each) - 1] if path.index(each) else None for path, each in zip(outer, every, strict=True)
        ]
        names = sorted({each.name for each in every})
        columns = TimedRanges(
            place=np.array([THREADS.index(each.thread) for each in every], np.int64),
            begin=np.array([each.begin for each in every], np.int64),
            end=np.array([-each.minus_end for each in every], np.int64),
            parent=np.array([-1 if each is None else every.index(each) for each in around], np.int64),
            process=np.array([each.thread >> 24 for each in every], np.int64),
            step=np.array([each.begin // STEP for each in every], np.int64),
            sequence=np.array([ABSENT if each.sequence is None else each.sequence for each in every], np.int64),
        )
        key = np.array([names.index(each.name) for each in every], np.int64)
        found = link_backward(columns, key, names)
        pairs = {every[head]: every[target] for head, target in zip(*(side.tolist() for side in found), strict=True)}
        assert pairs == truth
        linked += len(truth)
    assert linked > examples(1_000) / 30


# ---- small reports ---------------------------------------------------------------------------------------------------

STRINGS = ("", "kernel", "cudaLaunchKernel")
Ranges = Sequence[tuple[int, int, int, str]]
"""Start, end, thread and text of each."""
Launches = Sequence[tuple[int, int, int]]
"""Time and thread of each call, and how long the kernel runs, alone."""


def write_report(path: Path, ranges: Ranges, launches: Launches, utc: int = UTC, host: str = "host") -> Path:
    """Write a report; the times of hosts are in ns, and kernels run after all of them."""
    runs, calls, begin = [], [], 1_000_000
    for number, (time, thread, length) in enumerate(launches, 1):
        runs.append((begin, begin + length, PROCESS, 0, 1, 7, number, 1, 1))
        calls.append((time, time + 1, thread, 2, number))
        begin += length
    operation = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "correlationId")
    tables: dict[str, Rows] = {
        "CUPTI_ACTIVITY_KIND_KERNEL": ((*operation, "shortName", "demangledName"), runs),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (("start", "end", "globalTid", "nameId", "correlationId"), calls),
        "NVTX_EVENTS": (
            ("start", "end", "globalTid", "eventType", "text"),
            [(begin, end, thread, 59, text) for begin, end, thread, text in ranges],
        ),
    }
    return export(path, STRINGS, tables, utc, host)


def sum_own(*reports: Path, selection: Selection | None = None) -> dict[str, int]:
    """Return the time of the kernels launched in each range and in no range within it, if there are any."""
    tree = summarize_reports(reports, selection).range_tree
    return {" > ".join(path): node.own_ns for path, node in zip(list_paths(tree), tree, strict=True) if node.own_ns}


def run_node(begin: int, thread: int, node: str, text: str = "") -> list[tuple[int, int, int, str]]:
    """Return the ranges of a node of the graph and of its only operator, which take 60 ns."""
    own = text or f"{node}, seq = {begin}"
    return [
        (begin, begin + 60, thread, ENGINE + node),
        (begin + 10, begin + 50, thread, own),
        (begin + 20, begin + 40, thread, "aten::mm, op_id = 3, sizes = [[2, 3], [3, 4]]"),
    ]


def test_a_step_by_hand(tmp_path: Path) -> None:
    """Two layers and a loss; the node of a parameter has no number; a thread launches outside of all ranges."""
    ranges = [
        (0, 2000, MAIN, "step 0"),
        (10, 500, MAIN, "forward"),
        (20, 100, MAIN, "first layer"),
        (30, 90, MAIN, "aten::linear, seq = 7, op_id = 1, sizes = [[2, 3], [4, 3]]"),
        (40, 50, MAIN, "aten::t, seq = 7, op_id = 2, sizes = [[4, 3]]"),
        (60, 80, MAIN, "aten::mm, seq = 8, op_id = 3, sizes = [[2, 3], [3, 4]]"),
        (110, 200, MAIN, "second layer"),
        (120, 190, MAIN, "MyFunction, seq = 9"),
        (210, 250, MAIN, "aten::mean, seq = 10"),
        (510, 1900, MAIN, "backward"),
        *run_node(600, WORKER, "MeanBackward0", "MeanBackward0, seq = 10, op_id = 9"),
        *run_node(700, WORKER, "MyFunctionBackward", "MyFunctionBackward, seq = 9"),
        *run_node(800, WORKER, "MmBackward0", "MmBackward0, seq = 8, op_id = 9, sizes = [[2, 4]]"),
        (850, 859, WORKER, "aten::sum, op_id = 5"),
        *run_node(900, WORKER, "torch::autograd::AccumulateGrad", "torch::autograd::AccumulateGrad, op_id = 4"),
        (1000, 1100, WORKER, "TBackward0, seq = 7"),
        *run_node(1200, MAIN, "MmBackward0", "MmBackward0, seq = 8"),
    ]
    launches = [
        *[(70, MAIN, 1), (130, MAIN, 2), (220, MAIN, 4), (630, WORKER, 8), (730, WORKER, 16), (830, WORKER, 32)],
        *[(855, WORKER, 64), (930, WORKER, 128), (1050, WORKER, 256), (1150, WORKER, 512), (1230, MAIN, 1024)],
        *[(1950, MAIN, 2048), (860, WORKER, 4096)],
    ]
    layers = "step > forward > first layer", "step > forward > second layer"
    linked = f"{layers[0]} > (backward) > {ENGINE}MmBackward0"
    assert sum_own(write_report(tmp_path / "x.sqlite", ranges, launches)) == {
        f"{layers[0]} > aten::linear > aten::mm": 1,
        f"{layers[1]} > MyFunction": 2,
        "step > forward > aten::mean": 4,
        f"step > forward > (backward) > {ENGINE}MeanBackward0 > MeanBackward0 > aten::mm": 8,
        f"{layers[1]} > (backward) > {ENGINE}MyFunctionBackward > MyFunctionBackward > aten::mm": 16,
        f"{linked} > MmBackward0 > aten::mm": 32 + 1024,  # a node that the main thread runs
        f"{linked} > aten::sum": 64,
        f"{linked}": 4096,
        f"step > backward > {ENGINE}torch::autograd::AccumulateGrad > torch::autograd::AccumulateGrad > aten::mm": 128,
        f"{layers[0]} > (backward) > TBackward0": 256,
        "step > backward": 512,
        "step": 2048,
    }


def make_steps(
    forward: Sequence[Sequence[tuple[str, int]]], backward: Sequence[Sequence[int]]
) -> tuple[Ranges, Launches]:
    """Make steps of 1,000 ns: operators (layer, number) by step on the main thread, nodes (numbers) on the worker.

    The kernel of the n-th node takes 2 ** n ns.
    """
    ranges: list[tuple[int, int, int, str]] = []
    launches: list[tuple[int, int, int]] = []
    for step, (operators, nodes) in enumerate(zip(forward, backward, strict=True)):
        begin = 1000 * step
        ranges += [(begin, begin + 990, MAIN, f"step {step}"), (begin + 500, begin + 980, MAIN, "backward")]
        for number, (layer, sequence) in enumerate(operators):
            at = begin + 40 * number + 10
            ranges += [(at, at + 30, MAIN, layer), (at + 5, at + 20, MAIN, f"aten::mm, seq = {sequence}, op_id = 1")]
        for number, sequence in enumerate(nodes):
            at = begin + 70 * number + 510
            ranges += run_node(at, WORKER, "MmBackward0", f"MmBackward0, seq = {sequence}, op_id = 1")
            launches.append((at + 30, WORKER, 2 ** len(launches)))
    return ranges, launches


def sum_linked(*reports: Path, selection: Selection | None = None) -> dict[str, int]:
    """Return the time of all backward passes by the range that they are in."""
    sums: dict[str, int] = {}
    for path, ns in sum_own(*reports, selection=selection).items():
        name = path.split(" > ")[1]
        sums[name] = sums.get(name, 0) + ns
    return sums


def test_numbers_that_start_anew_with_each_step(tmp_path: Path) -> None:
    """As those of a thread that each step makes: the last operator with a number before the node counts."""
    forward = [[("a", 0), ("b", 1)], [("b", 0), ("a", 1)]] * 3
    report = write_report(tmp_path / "x.sqlite", *make_steps(forward, [[1, 0]] * 6))
    b, a = ((1 << 0) + (1 << 3), (1 << 1) + (1 << 2))
    thrice = 1 + (1 << 4) + (1 << 8)
    assert sum_linked(report) == {"a": a * thrice, "b": b * thrice}


def test_a_number_of_one_step_says_nothing_in_the_next(tmp_path: Path) -> None:
    forward = [[("a", 7), ("b", 7)], *[[("a", 2 * step), ("b", 2 * step + 1)] for step in range(50, 55)]]
    backward = [[7], *[[2 * step + 1, 2 * step, 2 * step - 2] for step in range(50, 55)]]
    report = write_report(tmp_path / "x.sqlite", *make_steps(forward, backward))
    found = sum_linked(report, selection=IN_STEPS)
    counted = found["backward"].bit_count()
    assert 3 <= counted <= 5
    steps = [(1 << 3 * step + 1, 1 << 3 * step + 2, 1 << 3 * step + 3) for step in range(5)][5 - counted :]
    assert found == dict(zip(("b", "a", "backward"), map(sum, zip(*steps, strict=True)), strict=True))
    assert sum_linked(report)["b"] == 1 + sum(1 << 3 * step + 1 for step in range(5))


def test_two_threads_with_the_same_numbers(tmp_path: Path) -> None:
    """What one of them has only before its backward pass, and what has one thread only, is linked."""
    ranges, launches = make_steps([[("a", 1), ("b", 2), ("c", 3)]], [[3, 2, 1]])
    other = [(20, 30, WORKER + 1, "aten::add, seq = 2"), (700, 800, WORKER + 1, "aten::add, seq = 1")]
    elsewhere = [(20, 30, 1 << 48 | 99 << 24 | 99, "aten::add, seq = 3")]  # of another process
    report = write_report(tmp_path / "x.sqlite", [*ranges, *other, *elsewhere], launches)
    assert sum_linked(report) == {"c": 1, "backward": 2, "a": 4}


def test_a_range_that_is_open_already_has_its_backward_pass(tmp_path: Path) -> None:
    ranges, launches = make_steps([[("a", 1)]], [[2, 1]])
    report = write_report(tmp_path / "x.sqlite", [*ranges, (400, 410, MAIN, "aten::mean, seq = 2")], launches)
    assert sum_linked(report) == {"backward": 1, "a": 2}


def test_two_nodes_whose_clocks_start_apart(tmp_path: Path) -> None:
    ranges, launches = make_steps([[("a", 1), ("b", 2)]], [[2, 1]])
    reports = [
        write_report(tmp_path / f"rank{rank}.sqlite", ranges, launches, UTC + 5_000 * rank, f"node{rank}")
        for rank in range(2)
    ]
    assert sum_linked(*reports) == {"a": 4, "b": 2}


def test_operators_with_the_same_limits(tmp_path: Path) -> None:
    """One calls the other within the resolution of the clock."""
    ranges, launches = make_steps([[("a", 1)]], [[1]])
    twice = [
        (begin, end, MAIN, text.replace("mm", "_mm")) for begin, end, _, text in ranges if "seq = 1, op_id" in text
    ]
    assert sum_linked(write_report(tmp_path / "x.sqlite", [*ranges, *twice], launches)) == {"a": 1}


@pytest.mark.slow
def test_numbers_are_in_shards_too(tmp_path: Path, unpacked: Unpacked) -> None:
    reports = [unpacked(DATA / "h100/attn.rank0.sqlite.xz")]
    nsys2prv_ng.shard(reports, tmp_path / "parts")
    found = nsys2prv_ng.summarize([tmp_path / "parts"]).range_tree
    assert found == nsys2prv_ng.summarize(reports).range_tree
    assert any(node.name == "(backward)" and node.gpu_ns for node in found)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("aten::mm, seq = 12", 12),
        ("aten::mm, seq = 12, op_id = 7, sizes = [[1]]", 12),
        ("aten::mm, op_id = 7, seq = 12", 12),
        (f"aten::mm, seq = {2**63 - 1}", 2**63 - 1),
        (f"aten::mm, seq = {2**63}", None),
        ("aten::mm, seq = -1", None),
        ("aten::mm, op_id = 7", None),
        ("aten::mm, seq = 12x", None),
        ("seq = 12", None),
        ("step 12", None),
        ("", None),
    ],
)
def test_sequence_numbers_in_texts(text: str, number: int | None) -> None:
    texts = pa.array([text, "aten::add, seq = 3"], pa.string())
    assert read_sequence_numbers(texts).tolist() == [ABSENT if number is None else number, 3]
    assert len(split_numbers(texts)[0]) == 2
    assert read_sequence_numbers(pa.array([], pa.string())).size == 0
