"""Names of communicators: real programs by what they do, grids of ranks, and communicators that must have no name."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.sources.nccl.communicators import AXES, Usage, format_members, name_axes
from nsys2prv_ng.sources.nccl.purposes import ACTIVATIONS, EXPERTS, GRADIENTS, HIDDEN, NO_PURPOSE, SHARDS, STAGES
from tests.conftest import HAS_LARGE_REPORTS, NO_REPORTS
from tests.report_sets import list_sets, sets

DATA = {1: ("data", [0, 1, 2, 3])}
SHARDED = {1: ("sharded data", [0, 1, 2, 3])}
TENSOR = {1: ("tensor", [0, 1, 2, 3])}
TRUTH: dict[str, dict[int, tuple[str, list[int]]]] = {
    "exercises/ex1a-slow": DATA,
    "exercises/ex1a-fast": DATA,
    "exercises/ex1b-fp32": DATA,
    "exercises/ex1c-accum": DATA,
    "exercises/ex2b-manual": DATA,
    "exercises/ex2b-overlap": DATA,
    "exercises/ex2a-zero2": SHARDED,
    "exercises/ex2a-zero3": SHARDED,
    "exercises/ex3a-pp1": TENSOR,
    "exercises/ex3a-pp2": {1: ("pipeline", [0, 1, 2, 3]), 2: ("tensor", [0, 1]), 3: ("tensor", [2, 3])},
    "exercises/ex3a-pp2-plain": {},
    "exercises/tpgraph-1x4": TENSOR,
    "gpu/ddp-2x2": DATA,
    "gpu/oneproc-4gpu": {1: ("", [])},
    "public/h100_2gpu_1s": {},
    "public/mfu_2gpu_before": {},
    "samples/ddp-2x2": DATA,
}
"""Axis and members of the communicators of each set, by what its programs do. Sets without payload have none; a loop of
all-reduces of one process has no name."""


@pytest.mark.parametrize("name", sets(TRUTH))
def test_programs_use_communicators_for_what_they_do(name: str) -> None:
    sets = list_sets()
    if name not in sets:
        (pytest.fail if HAS_LARGE_REPORTS else pytest.skip)(NO_REPORTS)
    with nsys2prv_ng.open(sets[name], jobs=1) as job:
        calls = job.collectives
    found = {}
    for (named, axis), own in calls.groupby(["communicator", "axis"], observed=True, dropna=False):
        number = re.match(r"communicator (\d+)", str(named))
        if number is not None:
            ranks = sorted(int(rank) for rank in own["rank"].dropna().unique() if rank >= 0)
            found[int(number[1])] = (axis if isinstance(axis, str) else "", ranks)
    # Sends and receives of pipelines are messages, not collectives.
    assert found == {number: of for number, of in TRUTH[name].items() if of[0] != "pipeline"}


# ---- members ---------------------------------------------------------------------------------------------------------


def use(members: tuple[int, ...], *purposes: int, complete: bool = True) -> Usage:
    return Usage(frozenset(members), frozenset(purposes), complete)


def stage(members: tuple[int, ...], *routes: tuple[int, int]) -> Usage:
    return Usage(frozenset(members), frozenset({STAGES}), routes=frozenset(routes))


def both(*pairs: tuple[int, int]) -> list[tuple[int, int]]:
    return [*pairs, *((b, a) for a, b in pairs)]


def test_a_grid_of_tensor_and_data() -> None:
    uses = [use((0, 1), ACTIVATIONS), use((2, 3), ACTIVATIONS), use((0, 2), GRADIENTS), use((1, 3), GRADIENTS)]
    assert name_axes([*uses, use((0, 1, 2, 3), NO_PURPOSE)]) == ["tensor", "tensor", "data", "data", ""]
    # With the axes swapped, tensor communicators would not be consecutive.
    swapped = [use((0, 2), ACTIVATIONS), use((1, 3), ACTIVATIONS), use((0, 1), GRADIENTS), use((2, 3), GRADIENTS)]
    assert name_axes(swapped) == ["", "", "data", "data"]


@pytest.mark.parametrize("purpose", [GRADIENTS, SHARDS])
def test_pairs_of_four_ranks_are_a_grid_only_as_the_rows_of_one(purpose: int) -> None:
    """Brute force over all sets of pairs: only parallel pairs that have every rank are two rows of a 2 x 2 grid."""
    pairs = list(combinations(range(4), 2))
    rows = [{(0, 1), (2, 3)}, {(0, 2), (1, 3)}]
    for count in range(1, len(pairs) + 1):
        for chosen in combinations(pairs, count):
            names = name_axes([*(use(pair, purpose) for pair in chosen), use((0, 1, 2, 3), NO_PURPOSE)])
            wanted = AXES[purpose] if set(chosen) in rows else ""
            assert names == [*[wanted] * count, ""]


def test_members_that_disagree_or_are_missing_have_no_name() -> None:
    assert name_axes([use((0, 1), GRADIENTS, NO_PURPOSE)]) == [""]
    assert name_axes([use((0, 1), GRADIENTS, ACTIVATIONS)]) == [""]
    assert name_axes([use((0, 1), GRADIENTS, complete=False)]) == [""]
    assert name_axes([use((0,), GRADIENTS)]) == [""]
    assert name_axes([use((0, 1, 2, 3), NO_PURPOSE)]) == [""]  # barriers only
    # One row of the grid is for something else.
    assert name_axes([use((0, 1), GRADIENTS), use((2, 3), NO_PURPOSE)]) == ["", ""]


def test_one_set_of_members_is_not_along_two_axes() -> None:
    assert name_axes([use((0, 1), GRADIENTS), use((0, 1), ACTIVATIONS)]) == ["", ""]
    assert name_axes([use((0, 1), GRADIENTS), use((0, 1), SHARDS)]) == ["data", "sharded data"]


def test_whole_graphs_leave_it_to_other_members() -> None:
    assert name_axes([use((0, 1), ACTIVATIONS, HIDDEN)]) == ["tensor"]
    assert name_axes([use((0, 1), HIDDEN)]) == [""]
    assert name_axes([use((0, 1), GRADIENTS, HIDDEN)]) == [""]


def test_stages_are_chains_in_one_communicator_or_several() -> None:
    assert name_axes([stage((0, 1, 2, 3), *both((0, 2), (1, 3)))]) == ["pipeline"]
    pairs = [stage(pair, *both(pair)) for pair in ((0, 1), (1, 2), (2, 3))]
    assert name_axes(pairs) == ["pipeline"] * 3
    ring = both((0, 1), (1, 2), (2, 3), (0, 3))
    assert name_axes([stage((0, 1, 2, 3), *ring)]) == ["pipeline"]  # interleaved stages
    for routes in (
        [(0, 1), (1, 2), (2, 3)],  # one direction only
        both((0, 1), (0, 2), (0, 3)),  # a star
        both((0, 1)),  # not all ranks
        both((0, 2), (2, 1), (1, 3)),  # not in order
        both(*combinations(range(4), 2)),
    ):
        assert name_axes([stage((0, 1, 2, 3), *routes)]) == [""]
    assert name_axes([stage((0, 1, 2), *both((0, 1), (1, 2), (0, 2)))]) == [""]


def test_experts_send_to_all() -> None:
    everyone = frozenset((a, b) for a in range(4) for b in range(4))
    for routes, wanted in ((everyone, "expert"), (everyone - {(2, 1)}, "")):
        assert name_axes([Usage(frozenset(range(4)), frozenset({EXPERTS}), routes=routes)]) == [wanted]


def test_members_in_words() -> None:
    assert format_members([0], 1) == "rank 0"
    assert format_members([2, 0], 2) == "ranks 0, 2"
    assert format_members([0, 1], 2) == "ranks 0, 1"
    assert format_members(range(8), 8) == "ranks 0-7"
    assert format_members([0, 2, 5], 3) == "ranks 0, 2, 5"
    assert format_members(range(0, 16, 2), 8) == "ranks 0, 2, .., 14"
    assert format_members([0, 1, 2, 3, 8], 5) == "5 ranks from 0 to 8"
    assert format_members([0, None], 2) == "2 ranks"
    assert format_members([0, 1], 4) == "4 ranks"
    assert format_members([], 1) == "1 rank"


def test_the_reference_has_every_axis() -> None:
    text = (Path(__file__).parents[3] / "docs/reference/sources.md").read_text()
    table = text.split("## Names of communicators")[1].split("\n## ")[0]
    assert re.findall(r"^\| ([a-z ]+) \| [^|]+ \| [^|]+ \|$", table, re.MULTILINE) == ["axis", *AXES.values()]
