"""The task that has most of a sum."""

from __future__ import annotations

import pytest

from nsys2prv_ng.summary.gpus.table import name_largest


@pytest.mark.parametrize(
    ("parts", "count", "name"),
    [
        ({"a": 76, "b": 24}, 2, "a: 76.0%"),
        ({"a": 75, "b": 25}, 2, ""),  # halfway between an even share and all of it
        ({"a": 25, "b": 63, "c": 12}, 4, "b: 63.0%"),
        ({"a": 25, "b": 62, "c": 13}, 4, ""),
        ({"a": 100}, 4, "a: 100.0%"),
        ({"a": 100}, 1, ""),
        ({"a": 0, "b": 0}, 2, ""),
        ({}, 2, ""),
    ],
)
def test_most_is_more_than_halfway_from_even_to_all(parts: dict[str, int], count: int, name: str) -> None:
    assert name_largest(parts, sum(parts.values()), count) == name
