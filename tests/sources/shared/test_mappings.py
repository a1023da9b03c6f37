"""Keys with several values are in no mapping of one value for each key."""

from __future__ import annotations

from nsys2prv_ng.sources.shared.mappings import map_unambiguous


def test_only_keys_with_one_distinct_value_are_mapped() -> None:
    assert map_unambiguous([("a", 1), ("b", 2), ("a", 1), ("b", 3), ("c", 4)]) == {"a": 1, "c": 4}
