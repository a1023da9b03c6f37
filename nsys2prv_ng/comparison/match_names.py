"""Matches the kernels of both sides by name: by the exact name, then without template arguments, then by class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple


class Match(NamedTuple):
    """Names of both sides that form one row."""

    name: str
    a: list[str]
    b: list[str]
    by_class: bool
    """Whether the names have only their class in common."""


def match_names(a: Mapping[str, str], b: Mapping[str, str]) -> list[Match]:
    """Return all names as rows; a name of one side only has an empty list on the other side.

    `a` and `b`: the class of each name of a side.
    """
    matches: list[Match] = []
    left_a, left_b = list(a), list(b)
    for key in (str, strip_arguments):
        for text, (names_a, names_b) in _group_names(left_a, left_b, key).items():
            if names_a and names_b:
                matches.append(Match(text, names_a, names_b, False))
        matched = {name for match in matches for name in (*match.a, *match.b)}
        left_a, left_b = ([name for name in side if name not in matched] for side in (left_a, left_b))
    classes = {**a, **b}
    for kind, (names_a, names_b) in _group_names(left_a, left_b, lambda name: _find_family(classes[name])).items():
        if names_a and names_b:
            matches.append(Match(kind, names_a, names_b, True))
        else:
            matches += [Match(name, [name], [], False) for name in names_a]
            matches += [Match(name, [], [name], False) for name in names_b]
    return matches


def _find_family(kind: str) -> str:
    """Return the class without its number type, in which two runs may differ: GEMM for GEMM FP32."""
    return kind.partition(" ")[0] if kind.startswith("GEMM ") else kind


def _group_names(a: Iterable[str], b: Iterable[str], key: Callable[[str], str]) -> dict[str, tuple[list[str], list[str]]]:
    """Return the names of both sides, grouped by a key of the name."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for side, names in enumerate((a, b)):
        for name in names:
            groups.setdefault(key(name), ([], []))[side].append(name)
    return groups


def strip_arguments(name: str) -> str:
    """Return the name of a function without template arguments, parameters and return type.

    A name with unbalanced brackets stays as it is.
    """
    kept: list[str] = []
    depth, until = 0, None
    for character in name:
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
            if depth < 0:
                return name
        elif not depth:
            kept.append(character)
        if character == "(" and depth == 1 and "".join(kept).strip():
            until = len(kept)  # text after the parameters, such as [clone .x], is not part of the name
    words = "".join(kept[:until]).split()
    return words[-1] if words and not depth else name
