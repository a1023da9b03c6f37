"""Names of sides, from the paths of their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.comparison.sides import label_sides


@pytest.mark.parametrize(
    ("sides", "labels"),
    [
        (
            (["r/slow.rank0.sqlite", "r/slow.rank1.sqlite"], ["r/fast.rank0.sqlite", "r/fast.rank1.sqlite"]),
            ["slow", "fast"],
        ),
        ((["before.json"], ["after.json"]), ["before", "after"]),
        ((["b/rank0.nsys-rep", "b/rank1.nsys-rep"], ["a/rank0.nsys-rep", "a/rank1.nsys-rep"]), ["b", "a"]),
        ((["v1/nsys/rank0.sqlite"], ["v2/nsys/rank0.sqlite"]), ["v1", "v2"]),
        ((["n2_rank_0_pqtdir"], ["n4_rank_0_pqtdir"]), ["n2", "n4"]),
        ((["x.sqlite"], ["x.sqlite"]), ["A", "B"]),
        (([], ["x.sqlite"]), ["A", "B"]),
        (([], []), ["A", "B"]),
    ],
)
def test_labels(sides: tuple[list[str], ...], labels: list[str]) -> None:
    assert label_sides([[Path(path) for path in side] for side in sides]) == labels
