"""Predictions: only of what differs, and in words for every change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.comparison.compare import compare_sides
from nsys2prv_ng.comparison.model import Pair, Prediction, Side
from nsys2prv_ng.comparison.sentences import state_prediction
from nsys2prv_ng.replay.changes import read_changes
from nsys2prv_ng.replay.numbers import Scenario, WhatIfNumbers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.waits.numbers import NcclNumbers
from nsys2prv_ng.text.names import quote_name
from tests.comparison.made import GPUS, MS
from tests.conftest import Unpacked
from tests.summary.difference.test_changes import FAST, HOST, STEPS, call, in_mpi, in_range, kernel, run
from tests.tiers import cases


def predicted(savings: Mapping[str, float], measurable: bool = True) -> WhatIfNumbers:
    """Predictions with these savings (ms)."""
    scenarios = [
        Scenario(
            changes=read_changes(change),
            predicted_step_ns=0,
            saving_ns=int(ms * MS),
            share=0.0,
            limited_by=None,
            connected=True,
            measurable=measurable,
        )
        for change, ms in savings.items()
    ]
    return WhatIfNumbers(
        steps=STEPS, step_ns=100 * MS, noise_ns=0, limited_by=None, scenarios=scenarios, slack=[], unsplit_ns=0
    )


def pair_of(a: JobSummary, b: JobSummary) -> Pair:
    return compare_sides([Side("a", a), Side("b", b)]).pairs[0]


def choose(
    parts: Mapping[str, int], savings: Mapping[str, float], fast: Mapping[str, int] = FAST, **tables: Any
) -> str:
    """The change that is named if the second run is as fast as `fast`; "" without one. The order does not matter."""
    slow, quick = run("slow", parts, what_if=predicted(savings), **tables), run("quick", fast)
    forward, backward = pair_of(slow, quick).prediction, pair_of(quick, slow).prediction
    if forward is None or backward is None:
        assert forward == backward
        return ""
    assert (forward.label, backward.label) == ("a", "b")
    assert (forward.change, forward.saving_ns) == (backward.change, backward.saving_ns)
    assert forward.saving_ns == savings[forward.change] * MS
    return forward.change


def test_only_what_differs_is_named() -> None:
    """The largest saving of all is that of kernels, which are the same."""
    savings = {"class 'GEMM' * 0.5": 90, "range 'forward' * 0.5": 80, "range 'loading' = 0": 50, "call 'read' = 0": 40}
    assert choose(HOST, savings, ranges=[in_range("loading", 80)]) == "range 'loading' = 0"
    assert choose(HOST, savings, calls=[call("read", 80)]) == "call 'read' = 0"
    assert choose(HOST, savings) == ""
    assert choose(HOST, {}) == ""


def test_nothing_is_predicted_of_runs_that_do_not_differ() -> None:
    summary = run("a", HOST, what_if=predicted({"host = ideal": 50}))
    assert pair_of(summary, run("b", HOST)).prediction is None


def test_what_is_not_measurable_is_not_named() -> None:
    slow = run("slow", HOST, what_if=predicted({"host = ideal": 50}, measurable=False))
    assert pair_of(slow, run("quick", FAST)).prediction is None


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("moving", "network = ideal"),
        ("not_split", "network = ideal"),
        ("waiting", "waits = 0"),
        ("memory", "copies = 0"),
        ("host", "host = ideal"),
    ],
)
def test_the_largest_part_decides(part: str, change: str) -> None:
    savings = {"class 'GEMM' * 0.5": 99, "network = ideal": 4, "waits = 0": 3, "copies = 0": 2, "host = ideal": 1}
    assert choose({"compute": 20, part: 60}, savings) == change


def test_classes_of_kernels() -> None:
    """The class of a kernel that changed, and a class that changed; not another one."""
    savings = {"class 'Copy' * 0.5": 99, "class 'GEMM' * 0.5": 10, "network = ideal": 50}
    kernels = [kernel("sgemm", "GEMM", 60), kernel("copy", "Copy", 20)]
    fast = {"compute": 20, "moving": 10}
    assert choose({"compute": 80, "moving": 10}, savings, fast, kernels=kernels) == "class 'GEMM' * 0.5"


def test_transfers_are_of_the_network_or_copies() -> None:
    function = NcclNumbers(
        function="AllReduce",
        calls=1,
        bytes=1,
        kernels=1,
        kernel_ns=60 * MS * STEPS * GPUS,
        carried_bytes=1,
        carried_ns=1,
        wait_ns=0,
    )
    parts = {"compute": 20, "moving": 30, "waiting": 40}  # waits are the largest part
    savings = {"network = ideal": 30, "waits = 0": 20, "copies = 0": 70}
    assert choose(parts, savings, nccl=[function]) == "network = ideal"


def test_a_rank_that_is_slower_than_others() -> None:
    """A change of it can be made, the median of all ranks cannot."""
    ranges = [in_range("late", 80, ranks=[2])]
    assert choose(HOST, {"rank 2 = median": 70, "rank 1 = median": 90}, ranges=ranges) == "rank 2 = median"
    savings = {"rank 2 = median": 70, "range 'late' = 0": 60, "host = ideal": 80}
    assert choose(HOST, savings, ranges=ranges) == "range 'late' = 0"


def test_hosts_that_wait_in_mpi() -> None:
    """The GPU waits for a host that waits for its network."""
    mpi = in_mpi("MPI_Wait", 60)
    savings = {"network = ideal": 60, "host = ideal": 20}
    assert choose(HOST, savings, mpi=[mpi]) == "network = ideal"
    assert choose(HOST, savings) == "host = ideal"


def test_what_takes_less_in_the_slower_run_is_not_related() -> None:
    slow = run("slow", HOST, what_if=predicted({"range 'loading' = 0": 5, "network = ideal": 4}))
    quick = run("quick", {"compute": 20, "moving": 30}, ranges=[in_range("loading", 30)])
    assert [change.name for change in pair_of(slow, quick).changes] == ["loading"]
    assert pair_of(slow, quick).prediction is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ("range 'it's a `x`' = 0", "removing range `it's a 'x'` from `slow`"),
        ("call 'cudaFree' = 0", "removing call `cudaFree` from `slow`"),
        ("class 'GEMM' * 0.5", "halving the time of `GEMM` kernels in `slow`"),
        ("range 'x' * 0.5", "halving the time of range `x` in `slow`"),
        ("range 'x' * 0.25", "multiplying by 0.25 the time of range `x` in `slow`"),
        ("range 'x' = 0 on rank 3", "removing range `x` from `slow` on rank 3"),
        ("rank 2 = median", "making rank 2 of `slow` as fast as the others"),
        ("network = ideal", "an ideal network in `slow`"),
        ("network between nodes = ideal", "an ideal network between nodes in `slow`"),
        ("network * 2", "a network 2 times as fast in `slow`"),
        ("host = ideal", "an ideal host in `slow`"),
        ("copies = 0", "removing copies from `slow`"),
        ("waits = 0", "removing wait time from `slow`"),
        ("waits = 0 and copies = 0", "removing wait time from `slow` and removing copies from `slow`"),
    ],
)
def test_words(change: str, text: str) -> None:
    pair = compare_sides([Side("slow", run("slow", HOST)), Side("quick", run("quick", FAST))]).pairs[0]
    said = state_prediction(replace(pair, prediction=Prediction("slow", change, 70 * MS)), quote_name)
    assert said == f"{text} would save about 70.0 ms per mean step, 87.5% of what `quick` is faster by"


def test_a_saved_text_that_is_no_change() -> None:
    """Another version may know other changes."""
    assert choose(HOST, {"clocks = ideal": 60, "host = ideal": 20}) == "host = ideal"


# ---- real runs with a known cause ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b", "ranks", "change"),
    cases(
        [
            ("whatif/m-big", "whatif/m-base", 4, "network = ideal"),
            ("whatif/m-late", "whatif/m-base", 4, "range 'late host' = 0"),
            ("whatif/w-load", "whatif/w-base", 1, "range 'data loading' = 0"),
            ("whatif/w-gemm", "whatif/w-base", 1, "class 'GEMM BF16' * 0.5"),
            ("whatif/hf-emptycache", "whatif/hf-base", 1, "call 'cudaFree' = 0"),
            ("exercises/ex1a-slow", "exercises/ex1a-fast", 4, "range 'data loading' = 0"),
        ],
        push=1,
    ),
)
def test_planted_causes(shared_reports: Path, unpacked: Unpacked, a: str, b: str, ranks: int, change: str) -> None:
    """What the programs do otherwise, as their sources say."""
    sides = [[unpacked(shared_reports / f"{name}.rank{rank}.sqlite") for rank in range(ranks)] for name in (a, b)]
    pair = nsys2prv_ng.compare(*sides, labels=["a", "b"], jobs=1).pairs[0]
    assert pair.prediction is not None and (pair.prediction.label, pair.prediction.change) == ("a", change)
