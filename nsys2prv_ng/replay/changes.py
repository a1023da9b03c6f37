"""Changes to a job, as text: range 'data loading' = 0; class 'GEMM FP32' * 0.5 on rank 1; network = ideal."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.text.formatting import format_number_ranges, parse_number_ranges
from nsys2prv_ng.value_class import ValueClass

RANGE, CALL, KERNEL, CLASS = NAMED = ("range", "call", "kernel", "class")
"""Targets that have a name, in which * and ? are wildcards."""
NETWORK, HOST, COPIES, WAITS, RANK = ("network", "host", "copies", "waits", "rank")
UNKNOWN = ""
"""Target of a saved text that no change of this version has; the name is the text."""
WITHIN, BETWEEN = "within nodes", "between nodes"
SYNTAX = (
    "range|call|kernel|class 'NAME' = 0 or * FACTOR, rank N = median, network [within nodes|between nodes] = ideal or"
    " * SPEED, host = ideal, copies = 0, waits = 0; each but the last with: on rank N"
)


@dataclass(frozen=True, eq=False, repr=False)
class Change(ValueClass):
    """One change: a target takes `factor` times as long as it did.

    `name`: pattern of the names of ranges, calls, kernels or classes; for the network, WITHIN, BETWEEN or "".
    `ranks`: the ranks that change; None for all. For the target RANK, these ranks become like the median of the others.
    """

    target: str
    name: str = ""
    factor: float = 0.0
    ranks: tuple[int, ...] | None = None

    @property
    def is_bound(self) -> bool:
        """Whether nobody can make this change as such: it bounds what others may save."""
        return self.target in (WAITS, RANK) or (self.target == HOST and not self.factor)

    def __str__(self) -> str:
        if self.target == UNKNOWN:
            return self.name
        ranks = format_number_ranges(self.ranks or ())
        where = "" if self.ranks is None else f" on rank{'s' * (len(self.ranks) > 1)} {ranks}"
        if self.target == RANK:
            return f"rank {ranks} = median"
        if self.target == NETWORK:
            speed = "= ideal" if not self.factor else f"* {1 / self.factor:g}"
            return f"network {self.name} {speed}".replace("  ", " ") + where
        if self.target == HOST and not self.factor:
            return "host = ideal" + where
        subject = self.target if self.target not in NAMED else f"{self.target} '{self.name}'"
        return f"{subject} {'= 0' if not self.factor else f'* {self.factor:g}'}{where}"


_NUMBER = r"[0-9]{1,6}(?:\.[0-9]{1,18})?"
"""A factor: times that are multiplied by larger ones would not fit into 64 bits."""
_RANKS = r"[0-9]{1,6}(?:[-,][0-9]{1,6})*"
_LEAST_SPEED = 1e-6
"""Least speed of a network: one over the largest factor of times (_NUMBER)."""
_CHANGE = re.compile(
    rf"""\s*(?:
    (?P<named>range|call|kernel|class)\s+(?P<quote>['"])(?P<name>.*?)(?P=quote)\s*(?:=\s*0|\*\s*(?P<factor>{_NUMBER}))
    |(?P<network>network)(?:\s+(?P<where>within\ nodes?|between\ nodes?))?\s*(?:=\s*ideal|\*\s*(?P<speed>{_NUMBER}))
    |rank\s+(?P<rank>{_RANKS})\s*=\s*median
    |(?P<host>host)\s*(?:=\s*ideal|\*\s*(?P<host_factor>{_NUMBER}))
    |(?P<copies>copies)\s*(?:=\s*0|\*\s*(?P<copies_factor>{_NUMBER}))
    |(?P<waits>waits)\s*=\s*0
    )(?:\s+on\s+ranks?\s+(?P<ranks>{_RANKS}))?\s*""",
    re.VERBOSE,
)
_MOST = 64
"""Most changes of one text."""


def parse_changes(text: str) -> tuple[Change, ...]:
    """Return the changes of a text, which "and" or a semicolon separate. Raises UsageError."""
    changes: list[Change] = []
    at = 0
    while True:
        match = _CHANGE.match(text, at)
        if match is None or len(changes) == _MOST:
            raise UsageError(f"cannot be read from {text[at:][:60]!r}; write {SYNTAX}")
        changes.append(_make_change(match))
        at = match.end()
        if at == len(text):
            return tuple(changes)
        joint = re.compile(r";|and\b").match(text, at)
        if joint is None:
            raise UsageError(f"cannot be read from {text[at:][:60]!r}; write 'and' between two changes")
        at = joint.end()


def read_changes(text: str) -> tuple[Change, ...]:
    """Return the changes of a text from a saved summary; one that is UNKNOWN if it is none."""
    try:
        return parse_changes(text)
    except UsageError:
        return (Change(UNKNOWN, text),)


def _make_change(match: re.Match[str]) -> Change:
    ranks = None if match["ranks"] is None else tuple(parse_number_ranges(match["ranks"]))
    if match["rank"]:
        if ranks is not None:
            raise UsageError("'rank N = median' names its rank already")
        return Change(RANK, ranks=tuple(parse_number_ranges(match["rank"])))
    if match["network"]:
        speed = float(match["speed"] or 0)
        if match["speed"] and speed < _LEAST_SPEED:
            raise UsageError(f"a network cannot be less than {_LEAST_SPEED:g} times as fast")
        where = "" if not match["where"] else (WITHIN if match["where"].startswith("within") else BETWEEN)
        return Change(NETWORK, where, 1 / speed if speed else 0.0, ranks)
    if match["waits"]:
        if ranks is not None:
            raise UsageError("waits = 0 is for all ranks")
        return Change(WAITS)
    if match["named"]:
        return Change(match["named"], match["name"], float(match["factor"] or 0), ranks)
    target = match["host"] or match["copies"]
    return Change(target, factor=float(match[f"{target}_factor"] or 0), ranks=ranks)
