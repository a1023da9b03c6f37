"""Which cases of a test run when: the quick ones (`-m "not slow"`), those of every push, and all (`--all-sets`)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

Chosen = int | Collection[object] | None
"""Cases of a test: the first so many, those of these names, or all."""


def cases(values: Iterable[Any], push: Chosen = None, quick: Chosen = None) -> list[Any]:
    """Return values as parameters, of which every push and the quick tests take some; those of a push are not slow.

    A tuple is a value of each of several parameters. The name of a case is its id, or else its first value.
    """
    parameters = []
    for number, value in enumerate(values):
        case = value if hasattr(value, "marks") else pytest.param(*(value if isinstance(value, tuple) else (value,)))
        marks = list(case.marks)
        if not _is_chosen(case, number, push):
            marks.append(pytest.mark.all_sets)
        if not _is_chosen(case, number, quick):
            marks.append(pytest.mark.slow)
        parameters.append(pytest.param(*case.values, id=case.id, marks=marks))
    return parameters


def _is_chosen(case: Any, number: int, chosen: Chosen) -> bool:
    if chosen is None:
        return True
    return number < chosen if isinstance(chosen, int) else (case.id or case.values[0]) in chosen
