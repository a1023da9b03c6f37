"""Makes mappings from pairs in which a key may have several values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def map_unambiguous(pairs: Iterable[tuple[Key, Value]]) -> dict[Key, Value]:
    """Return the value of each key that has only one distinct value."""
    values: dict[Key, set[Value]] = {}
    for key, value in pairs:
        values.setdefault(key, set()).add(value)
    return {key: found.pop() for key, found in values.items() if len(found) == 1}
