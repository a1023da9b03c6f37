"""GPU time by NVTX range, against a projection by plain SQL and loops, NVIDIA's own sums, and planted nesting."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nsys2prv_ng.arrays.groups import Table, make_objects
from nsys2prv_ng.sources.nvtx.events import split_numbers
from nsys2prv_ng.summary.ranges import tree as range_tree
from nsys2prv_ng.summary.ranges.numbers import RangeNode, list_paths
from nsys2prv_ng.summary.ranges.table import tabulate_range_tree
from nsys2prv_ng.summary.ranges.tree import make_range_tree
from nsys2prv_ng.text.layout import format_grid
from tests.conftest import DATA, Unpacked
from tests.report_sets import sets
from tests.report_truth import Report
from tests.summary.made import summarize_reports
from tests.summary.ranges.tree_truth import Own, project

SETS = {
    "samples/single-graph": ["samples/single-graph.sqlite"],
    "samples/mpi-4": [f"samples/mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "gpu/oneproc-4gpu": ["gpu/oneproc-4gpu.sqlite"],
    "gpu/autograd-1": ["gpu/autograd-1.sqlite"],
    "gpu/single-node": ["gpu/single-node.sqlite"],
    "exercises/ex1a-fast": [f"exercises/ex1a-fast.rank{rank}.sqlite" for rank in range(4)],
    "whatif/w-gemm": ["whatif/w-gemm.rank0.sqlite"],
    "whatif/w-shapes": ["whatif/w-shapes.rank0.sqlite"],
    "h100/attn": ["h100/attn.rank0.sqlite.xz"],
    "h100/hand": ["h100/hand.rank0.sqlite.xz"],
}
LINKED = ["whatif/w-shapes", "h100/attn"]
"""Sets with linked backward passes. In autograd-1, the range around the forward operators stays open."""


def locate(name: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> list[Path]:
    return [
        samples / Path(file).name
        if file.startswith("samples/")
        else unpacked((DATA if file.startswith("h100/") else shared_reports) / file)
        for file in SETS[name]
    ]


def read_names(report: Path) -> dict[str, str]:
    """Return the name of each text; tests/sources/nvtx/test_names.py checks the rules."""
    texts = sorted(set(Report(report).nvtx["text"]))
    return dict(zip(texts, split_numbers(pa.array(texts, pa.string()))[0].to_pylist(), strict=True))


def cut_numbers(path: tuple[str, ...], numbered: set[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the path as the tree has it: layer0 to layer7 are layer*, where the tree has that."""
    cut: tuple[str, ...] = ()
    for name in path:
        alike = (*cut, name.rstrip("0123456789") + "*")
        cut = alike if alike in numbered else (*cut, name)
    return cut


@pytest.mark.parametrize("name", sets(SETS))
def test_every_operation_is_in_its_ranges(name: str, samples: Path, shared_reports: Path, unpacked: Unpacked) -> None:
    reports = locate(name, samples, shared_reports, unpacked)
    tree = summarize_reports(reports).range_tree
    paths = [() if path == ("",) else path for path in list_paths(tree)]
    found = {path: (node.own_ns, node.operations) for path, node in zip(paths, tree, strict=True)}
    truth: Own = defaultdict(lambda: (0, 0))
    by_rank: list[Own] = []
    for report in reports:
        own: Own = defaultdict(lambda: (0, 0))
        for path, (ns, count) in project(report, read_names(report)).items():
            cut = cut_numbers(path, set(paths))
            for sums in (own, truth):
                sums[cut] = sums[cut][0] + ns, sums[cut][1] + count
        by_rank.append(own)
    assert {path: ns for path, (ns, _) in found.items() if ns} == {path: ns for path, (ns, _) in truth.items() if ns}
    for path, node in zip(paths, tree, strict=True):
        inside = [each for each in truth if each[: len(path)] == path and (path or not each)]
        assert node.gpu_ns == sum(truth[each][0] for each in inside)
        assert node.operations == sum(truth[each][1] for each in inside)
        assert node.unlisted_ns == 0
        if len(reports) > 1:
            of_ranks = [sum(own[each][0] for each in inside) for own in by_rank]
            assert (node.least_ns, node.most_ns) == (min(of_ranks), max(of_ranks))
    assert sum(node.gpu_ns for node in tree if not node.depth) == sum(ns for ns, _ in truth.values())
    assert any("(backward)" in path for path in paths) == (name in LINKED)


@pytest.mark.slow
def test_operations_of_nvidia_s_projection(shared_reports: Path, unpacked: Unpacked) -> None:
    tree = summarize_reports([unpacked(shared_reports / "gpu/mpi-4.rank0.sqlite")]).range_tree
    truth: dict[str, int] = defaultdict(int)
    with (DATA / "gold/mpi-4.rank0_nvtx_gpu_proj_sum.csv").open() as lines:
        for row in csv.DictReader(lines):
            truth[row["Range"].removeprefix(":").rstrip("0123456789").rstrip()] += int(row["Total GPU Ops"])
    assert truth and {name: sum(node.operations for node in tree if node.name == name) for name in truth} == truth


@pytest.mark.slow
def test_what_a_program_does_more(shared_reports: Path, unpacked: Unpacked) -> None:
    """w-gemm has eight more matrix products a step, in `extra work`: a third of its kernel time."""
    tree = summarize_reports([unpacked(shared_reports / "whatif/w-gemm.rank0.sqlite")]).range_tree
    share = {node.name: node.gpu_ns / sum(each.gpu_ns for each in tree if not each.depth) for node in tree}
    assert 0.33 < share["extra work"] < 0.37


# ---- all reports -----------------------------------------------------------------------------------------------------


def make_part(sums: dict[tuple[str, ...], int], task: int = 0) -> Table:
    ns = np.array(list(sums.values()), np.int64)
    ones = np.ones_like(ns)
    return {
        "task": ones * task,
        "count": ones,
        "host_ns": 2 * ns,
        "operations": ones,
        "own_ns": ns,
        "unlisted_ns": 0 * ns,
        "path": make_objects(sums),
    }


def test_ranges_that_differ_in_a_number_are_one() -> None:
    """Two are not: fc1 and fc2 are two things. Layers of one name below different ranges stay apart."""
    layers = {("step", f"layer{n}", f"part{n}"): n for n in (1, 2, 10)}
    part = make_part({**layers, ("step", "fc1"): 100, ("step", "fc2"): 200, ("other", "layer1"): 5, (): 7, ("",): 3})
    tree = make_range_tree([part])
    assert [(node.depth, node.name, node.gpu_ns, node.own_ns) for node in tree] == [
        (0, "step", 313, 0),
        (1, "fc2", 200, 200),
        (1, "fc1", 100, 100),
        (1, "layer*", 13, 0),
        (2, "part*", 13, 13),
        (0, "", 7, 7),
        (0, "other", 5, 0),
        (1, "layer1", 5, 5),
        (0, "", 3, 3),
    ]


def test_ranks_are_compared_even_if_one_launches_nothing_there() -> None:
    tree = make_range_tree([make_part({("a",): 5, ("b",): 9}), make_part({("a",): 8}, task=1)])
    assert [(node.name, node.least_ns, node.most_ns) for node in tree] == [("a", 5, 8), ("b", 0, 9)]
    text = "\n".join(format_grid(tabulate_range_tree(tree), 100))
    assert "least" in text and "most" in text


def test_a_tree_has_a_bound_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_tree, "MOST_NODES", 3)
    sums = {("step", "big"): 50, ("step", "a"): 5, ("step", "b"): 4, ("other",): 3, ("step", "big", "part"): 1}
    tree = make_range_tree([make_part(sums)])
    assert [(node.name, node.gpu_ns, node.own_ns, node.unlisted_ns) for node in tree][:3] == [
        ("step", 60, 0, 4),
        ("big", 51, 50, 1),
        ("a", 5, 5, 0),
    ]
    assert sum(node.own_ns + node.unlisted_ns for node in tree) + 3 == sum(sums.values())


@pytest.mark.parametrize("seed", range(5))
def test_sums_of_many_ranks_are_those_of_loops(seed: int) -> None:
    generator = random.Random(seed)
    parts, everything = [], []
    for task in range(9):
        paths = {tuple(generator.choices("abc", k=generator.randrange(5))) for _ in range(generator.randrange(30))}
        sums = {path: generator.randrange(2**54) for path in sorted(paths)}  # floats would round them
        part, launches = make_part(sums, task), int(task > 0)  # the first one launches nothing
        parts.append({**part, "operations": part["operations"] * launches, "own_ns": part["own_ns"] * launches})
        everything += [(path, task, ns if task else 0) for path, ns in sums.items()]
    tree = make_range_tree(parts)
    launching = {task for _, task, _ in everything if task}
    found = [() if path == ("",) else path for path in list_paths(tree)]
    assert set(found) == {path[:n] for path, _, _ in everything for n in range(min(len(path), 1), len(path) + 1)}
    for path, node in zip(found, tree, strict=True):
        inside = [each for each in everything if each[0][: len(path)] == path and (path or not each[0])]
        assert node.gpu_ns == sum(ns for _, _, ns in inside)
        assert node.own_ns == sum(ns for own, _, ns in inside if own == path)
        assert node.operations == sum(task > 0 for _, task, _ in inside)
        assert node.count == sum(own == path for own, _, _ in inside)
        of_tasks = [sum(ns for _, task, ns in inside if task == each) for each in launching]
        assert (node.least_ns, node.most_ns) == (min(of_tasks), max(of_tasks))


def make_node(name: str, depth: int, ns: int) -> RangeNode:
    fields = dict.fromkeys(("count", "host_ns", "operations", "own_ns", "unlisted_ns", "least_ns", "most_ns"), 1)
    return RangeNode(name=name, depth=depth, gpu_ns=ns, **fields)


def test_names_are_shown_clean_and_indented() -> None:
    hostile = "a`\x1b[31m\n"
    tree = [make_node("step", 0, 1000), make_node(hostile, 1, 900), make_node("tiny", 2, 9), make_node("", 0, 20)]
    lines = format_grid(tabulate_range_tree(tree), 100)
    names = [line[:21].rstrip() for line in lines[-4:-1]]
    assert names == ["step", "  a` [31m", "(outside NVTX ranges)"]
    assert (
        not any("\x1b" in line for line in lines)
        and lines[-1].strip() == "1 more range with less than 1.0% of GPU time each"
    )
    assert not tabulate_range_tree([make_node("", 0, 10)]).rows and not tabulate_range_tree([]).rows
    assert list_paths(tree) == [("step",), ("step", hostile), ("step", hostile, "tiny"), ("",)]
