"""Values by key."""

from __future__ import annotations

from nsys2prv_ng.grouping import group_by_key


def test_groups_keep_the_order_of_keys_and_values() -> None:
    groups = group_by_key(iter([("b", 1), ("a", 2), ("b", 1), ("c", 3), ("a", 0)]))
    assert list(groups.items()) == [("b", [1, 1]), ("a", [2, 0]), ("c", [3])]
    assert group_by_key([]) == {}
