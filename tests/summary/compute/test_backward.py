"""Links of backward passes to forward ranges: random ranges against loops over texts, and small reports by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nsys2prv_ng.job.opened_events import ABSENT
from nsys2prv_ng.job.selection import Selection
from nsys2prv_ng.sources.nvtx.names import read_sequence_numbers, split_numbers
from nsys2prv_ng.summary.compute.backward import TimedRanges, link_backward
from nsys2prv_ng.summary.numbers.range_tree import list_paths
from tests.examples import examples
from tests.sources.small_reports import MAIN, PROCESS, WORKER, Rows, export
from tests.summary.compute.range_tree_truth import Range, find_path, link
from tests.summary.made import IN_STEPS, summarize_reports

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
        around = [path[path.index(each) - 1] if path.index(each) else None for path, each in zip(outer, every)]
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
