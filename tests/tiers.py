"""Which cases of a test run when: the quick ones (`-m "not slow"`), those of every push, and all (`--all-sets`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

Chosen = int | Collection[object] | None
"""Cases of a test: the first so many, those of these names, or all."""


def cases(values: Iterable[Any], push: Chosen = None, quick: Chosen = None) -> list[Any]:
    """Return values as parameters, of which every push takes some, and the quick tests some; the others are marked.

    A tuple is a value of each of several parameters. The name of a case is its id, or else its first value.
    """
    parameters = [
        value if hasattr(value, "marks") else pytest.param(*(value if isinstance(value, tuple) else (value,)))
        for value in values
    ]
    for chosen, mark in ((push, pytest.mark.all_sets), (quick, pytest.mark.slow)):
        if chosen is not None:
            taken = [_is_chosen(case, number, chosen) for number, case in enumerate(parameters)]
            assert any(taken), f"no case is called {chosen}"
            parameters = [
                case if is_taken else pytest.param(*case.values, id=case.id, marks=[*case.marks, mark])
                for case, is_taken in zip(parameters, taken, strict=True)
            ]
    return parameters


def _is_chosen(case: Any, number: int, chosen: int | Collection[object]) -> bool:
    return number < chosen if isinstance(chosen, int) else (case.id or case.values[0]) in chosen
