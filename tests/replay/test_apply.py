"""Which names a change is for, and what large factors do."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.replay.apply import apply_changes, equalise_keys, match_names
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.graph import NONE, REMOVED
from nsys2prv_ng.replay.model import Model
from tests.conftest import SAMPLES
from tests.replay.jobs import opened_model

NAMES = ["forward", "backward", "data loading", "layer[0]", "layer[1]", "layer0", "a]b", "[!f]*", "Forward", "x\ny", ""]


@pytest.mark.parametrize(
    ("pattern", "found"),
    {
        "forward": ["forward"],
        "*ward": ["forward", "backward", "Forward"],
        "?orward": ["forward", "Forward"],
        "layer[0]": ["layer[0]"],
        "layer[[]0]": [],
        "layer[01]": [],
        "layer[?]": ["layer[0]", "layer[1]"],
        "layer?": ["layer0"],
        "[df]*": [],
        "[!f]*": ["[!f]*"],
        "*]*": ["layer[0]", "layer[1]", "a]b", "[!f]*"],
        "x*": ["x\ny"],
        "": [""],
        "*": NAMES,
        "FORWARD": [],
        ".*": [],
    }.items(),
)
def test_only_stars_and_question_marks_are_wildcards(pattern: str, found: list[str]) -> None:
    if found:
        assert [NAMES[n] for n in match_names(pattern, NAMES, "range")] == found
    else:
        with pytest.raises(UsageError):
            match_names(pattern, NAMES, "range")


def test_an_unknown_name_is_an_error_with_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match=r"no range is named 'forwad'; the nearest are 'forward'"):
        match_names("forwad", NAMES, "range")
    with pytest.raises(UsageError, match=r"no kernel is named 'zzz'$"):
        match_names("zzz", NAMES, "kernel")


def test_many_wildcards_take_no_time() -> None:
    start = time.process_time()
    with pytest.raises(UsageError):
        match_names("*a" * 200 + "b", ["a" * 2_000], "kernel")
    assert time.process_time() - start < 1


def test_a_long_unknown_name_is_cut() -> None:
    with pytest.raises(UsageError) as error:
        match_names("\x1b[31m" + "x" * 100_000, NAMES, "range")
    assert len(str(error.value)) < 600 and str(error.value).isprintable()


def test_a_long_name_is_shortened_in_the_error() -> None:
    with pytest.raises(UsageError) as raised:
        match_names("y" * 100_000, ["y" * 90_000, "other"], "range")
    line = str(raised.value)
    assert line.startswith("no range is named 'yyy") and len(line) < 600


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with opened_model(sorted(SAMPLES.glob("ddp-2x2*.sqlite")), tmp_path_factory.mktemp("scratch")) as opened:
        yield opened


@pytest.mark.parametrize("text", ["host * 999999", "copies * 999999 and copies * 0.5"])
def test_large_factors_multiply_exactly(model: Model, text: str) -> None:
    changes = parse_changes(text)
    weight = apply_changes(model, changes)
    before = model.graph.weight.tolist()
    for old, new in zip(before, weight.tolist(), strict=True):
        expected = {old}
        for change in changes:
            expected |= {round(value * change.factor) for value in expected}
        assert any(abs(new - one) <= 1 + one // 10**12 for one in expected)


@pytest.mark.parametrize(
    "text",
    [
        "host * 999999 and host * 999999",
        "copies * 999999 and copies * 999999 and copies * 999999 and copies = 0",
        "kernel '*' * 999999.5 and call '*' * 999999 and range '*' * 999999",
    ],
)
def test_times_beyond_64_bits_are_an_error(model: Model, text: str) -> None:
    with pytest.raises(UsageError, match="longer than 64 bits can hold"):
        apply_changes(model, parse_changes(text))


def test_ranks_without_operations_and_calls_change_nothing(model: Model) -> None:
    none = np.zeros(model.graph.to.size, np.bool_)
    weight = model.graph.weight.astype(np.float64)
    equalise_keys(model, none, model.edge_range, ~none, weight)
    assert (weight == model.graph.weight).all()


RANKS, KEYS = 3, 2
WINDOWS = [(100, 200), (240, 260)]
Edge = tuple[int, int, int, int]
"""Rank, key (NONE for none), length (ns), end (ns)."""
EDGES = st.lists(
    st.tuples(st.integers(0, RANKS - 1), st.integers(NONE, KEYS - 1), st.integers(0, 50), st.integers(0, 300)),
    min_size=1,
)


def loop(edges: list[Edge], changed: int) -> list[int]:
    """The new lengths, by plain loops."""
    ranks = {edge[0] for edge in edges}
    others = ranks - {changed} or ranks
    totals: dict[tuple[int, int], int] = defaultdict(int)
    for rank, key, length, end in edges:
        totals[rank, key] += length if any(low <= end <= high for low, high in WINDOWS) else 0
    keys = range(NONE, KEYS)
    cuts = {key: max(totals[changed, key] - median(totals[each, key] for each in others), 0.0) for key in keys}
    sums = {rank: sum(totals[rank, key] for key in keys) for rank in ranks}
    most = max(sums.get(changed, 0) - median(sums[each] for each in others), 0.0)
    part = min(most / max(sum(cuts.values()), 1.0), 1.0)
    new = []
    for rank, key, length, _ in edges:
        own = totals[rank, key]
        new.append(round(length * (1 - cuts[key] * part / own)) if own and rank == changed else length)
    return new


@given(EDGES, st.integers(0, RANKS - 1), st.integers(0, 3), st.integers(0, 3))
def test_only_the_steps_that_count_are_compared(edges: list[Edge], changed: int, hidden: int, removed: int) -> None:
    """An edge that is not marked neither counts nor changes; one that a change removed stays so."""
    rank, key, length, end = np.array(edges, np.int64).T.copy()
    number = np.arange(len(edges), dtype=np.int32)
    model = SimpleNamespace(
        edge_rank=rank.astype(np.int32),
        graph=SimpleNamespace(time=end, to=number, weight=length),
        job=SimpleNamespace(scope=SimpleNamespace(measured=WINDOWS)),
    )
    marks = np.arange(len(edges)) != hidden
    weight = np.where(number == removed, REMOVED, length).astype(np.float64)
    equalise_keys(model, marks, key.astype(np.int32), rank == changed, weight)  # type: ignore[arg-type]
    marked = [edge for edge, is_marked in zip(edges, marks.tolist(), strict=True) if is_marked]
    expected = iter(loop(marked, changed) if marked else [])
    new = [next(expected) if is_marked else edge[2] for edge, is_marked in zip(edges, marks.tolist(), strict=True)]
    assert np.rint(weight).tolist() == [REMOVED if n == removed else length for n, length in enumerate(new)]


def test_work_of_other_names_is_no_excess() -> None:
    """A rank keeps the work that it does under a name of its own, if the others do as much under theirs."""
    edges = [(0, 0, 40, 150), (1, 1, 40, 150), (2, 1, 30, 150)]
    assert loop(edges, 0) == [35, 40, 30]
