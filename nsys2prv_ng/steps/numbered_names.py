"""Finds the number of a step anywhere in the name of its NVTX range: `train_step_3`, `step=3, loss=0.9`.

A number that is the last word is cut where ranges are read (sources/nvtx/events.py). Any other leaves each step another
name. Such names are one *template*: it has `{n}` for the number that counts the steps, and `*` for all other numbers.
`--step` takes templates, too.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nsys2prv_ng.arrays.types import IntArray

OTHER_WORK = "other work"
"""Name of what lies between steps that kernels show, and is no step."""
_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)*)")
_MOST_DIGITS = 18
"""Numbers with more digits may not fit 64 bits."""
_MOST_NUMBERS = 8
"""Numbers in a name that are tried, from the left. A choice: each makes a template of all ranges of the name."""
_EPOCH = re.compile(r"epoch[\s:=#_/-]*(?:\{n\}|$)", re.IGNORECASE)
_LAST_WORD = re.compile(r"(?<=.)[ :=#]+\{n\}$")


class Numbered(NamedTuple):
    """m numbers in names: the index of the name (ascending), the template for this number, and the number."""

    name: IntArray
    template: npt.NDArray[np.object_]
    number: IntArray


def find_templates(names: Sequence[str], fewest: int) -> Numbered:
    """Return the numbers in names whose templates fit at least `fewest` of the names."""
    alike: defaultdict[tuple[str, ...], list[tuple[int, list[str]]]] = defaultdict(list)
    for index, name in enumerate(names):
        parts = _NUMBER.split(name)
        if len(parts) > 1:
            alike[tuple(parts[::2])].append((index, parts[1::2]))
    found: list[tuple[int, str, int]] = []
    for texts, members in alike.items():
        if len(members) >= fewest:
            for at, column in enumerate(islice(zip(*(numbers for _, numbers in members), strict=True), _MOST_NUMBERS)):
                if all(number.isdecimal() and len(number) <= _MOST_DIGITS for number in column):
                    marks = ["*"] * (len(texts) - 1)
                    marks[at] = "{n}"
                    text = "".join(text + mark for text, mark in zip(texts, [*marks, ""], strict=True))
                    found += [(n, text, int(number)) for (n, _), number in zip(members, column, strict=True)]
    found.sort()
    columns = [np.array([each[at] for each in found], object) for at in range(3)]
    return Numbered(columns[0].astype(np.int64), columns[1], columns[2].astype(np.int64))


def cut_last_word(template: str) -> str:
    """Return a template without a number that is its last word, as names of ranges are."""
    return _LAST_WORD.sub("", template)


def is_epoch(name: str) -> bool:
    """Return whether the numbers of a name, or of a template, count epochs, which contain steps."""
    return _EPOCH.search(name) is not None


@lru_cache
def compile_template(template: str) -> Callable[[str], re.Match[str] | None]:
    """Return a function that matches a whole name; its group `n` is the number at the first `{n}`, if there is one."""
    # One number, and wildcards as fnmatch has them: nothing that a template contains takes long to match.
    pattern = translate(re.sub(r"[?[]", r"[\g<0>]", template).replace("{n}", "\0", 1))
    return re.compile(pattern.replace("\0", "(?P<n>[0-9]{1,18})", 1)).match


def number_step(step: str, numbers: str) -> str:
    """Return the name or the template of steps with the numbers of some of them."""
    return step.replace("{n}", numbers, 1) if "{n}" in step else f"{step} {numbers}"


def is_step(name: str, step: str) -> bool:
    """Return whether a range of this name marks a step, given the name of the steps or their template."""
    return name == step or (("{n}" in step or "*" in step) and compile_template(step)(name) is not None)
