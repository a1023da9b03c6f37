"""Changes to a job, as text: range 'data loading' = 0; class 'GEMM FP32' * 0.5 on rank 1; network = ideal.

In a name, * and ? are wildcards. A backslash before one of them, a quote or another backslash takes that as it is, and
\\x2a, \\u202e and \\U000e0041 are characters by their numbers; before anything else, a backslash is one. So the text of
each change that the program proposes selects one name, also where it is copied from a terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fnmatch import translate
from functools import lru_cache

from nsys2prv_ng.errors import UsageError, escape_unprintable
from nsys2prv_ng.text.formatting import LONGEST_SHOWN, format_number_ranges, parse_number_ranges, quote_shortened
from nsys2prv_ng.value_class import ValueClass

RANGE, CALL, KERNEL, CLASS = NAMED = ("range", "call", "kernel", "class")
"""Targets that have a name, in which * and ? are wildcards."""
NETWORK, HOST, COPIES, READBACKS, WAITS, RANK = ("network", "host", "copies", "readbacks", "waits", "rank")
REPEATS = "repeats"
"""Sequences of a kind (replay/repeats.py) that a step launches again and again: the launches after the first one."""
RECOMPUTATION = "recomputation"
"""What a backward pass launches as the forward pass did."""
UNKNOWN = ""
"""Target of a saved text that no change of this version has; the name is the text."""
WITHIN, BETWEEN = "within nodes", "between nodes"
SYNTAX = (
    "range|call|kernel|class 'NAME' = 0 or * FACTOR, rank N = median, network [within nodes|between nodes] = ideal or"
    " * SPEED, host = ideal, copies = 0, readbacks = 0, recomputation = 0,"
    " repeats 'KIND' = 0, waits = 0; each but the last with: on rank N"
)


# ---- names -----------------------------------------------------------------------------------------------------------

_PART = re.compile(r"""\\([*?\\'"])|\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U(00[01][0-9a-f]{5}))|([*?])|(.)""", re.DOTALL)
"""A part of a pattern: an escaped character, one by its number (three groups), a wildcard, or any other character."""
_BLANKS = re.compile(r"(?<= ) |(?! )\s|`")
"""What a sentence shows in another form: it joins blanks, and quotes a change by backquotes."""


def _read_part(part: re.Match[str]) -> str:
    """Return the character of a part that is no wildcard."""
    number = part[2] or part[3] or part[4]
    return chr(int(number, 16)) if number else part[1] or part[6]


def escape_name(name: str) -> str:
    """Return the pattern that matches a name alone."""
    return escape_unprintable(_BLANKS.sub(lambda found: _number(found[0]), re.sub(r"([*?\\])", r"\\\1", name)), _number)


def _number(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


@lru_cache(None)
def compile_pattern(pattern: str) -> Callable[[str], object]:
    """Return a function that tells whether a whole name matches a pattern."""
    parts = (part[5] or re.sub(r"[*?[]", r"[\g<0>]", _read_part(part)) for part in _PART.finditer(pattern))
    return re.compile(translate("".join(parts))).match  # many wildcards take no time


def quote_exactly(name: str) -> str:
    """Return what to write for a name alone; if it is too long for an error, its start."""
    return _quote(escape_name(name)) if len(name) <= LONGEST_SHOWN else quote_shortened(name)


def _quote(pattern: str) -> str:
    """Return a pattern in quotes: in those that it lacks, or else with a backslash before each."""
    mark = '"' if "'" in pattern and '"' not in pattern else "'"
    return mark + pattern.replace(mark, f"\\{mark}") + mark


# ---- changes ---------------------------------------------------------------------------------------------------------


class Change(ValueClass, frozen=True):
    """One change: a target takes `factor` times as long as it did.

    `name`: pattern of the names of ranges, calls, kernels or classes; for the network, WITHIN, BETWEEN or "".
    `ranks`: the ranks that change; None for all. For the target RANK, these ranks become like the median of the others.
    """

    target: str
    name: str = ""
    factor: float = 0.0
    ranks: tuple[int, ...] | None = None

    @property
    def label(self) -> str:
        """The one name that the pattern matches, as it is; the pattern if there may be several."""
        parts = list(_PART.finditer(self.name))
        return self.name if any(part[5] for part in parts) else "".join(map(_read_part, parts))

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
            speed = "= ideal" if not self.factor else f"* {_format(1 / self.factor, lambda x: 1 / x == self.factor)}"
            return f"network {self.name} {speed}".replace("  ", " ") + where
        if self.target == HOST and not self.factor:
            return "host = ideal" + where
        subject = self.target if self.target not in (*NAMED, REPEATS) else f"{self.target} {_quote(self.name)}"
        factor = _format(self.factor, lambda x: x == self.factor)
        return f"{subject} {f'* {factor}' if self.factor else '= 0'}{where}"


def _format(number: float, is_same: Callable[[float], bool]) -> str:
    """Return a number without an exponent, with the fewest digits that are still the same."""
    texts = (f"{Decimal(f'{number:.{digits}g}'):f}" for digits in range(1, 18))
    return next((text for text in texts if float(text) and is_same(float(text))), f"{Decimal(number):f}")


_NUMBER = r"[-+.0-9][-+.0-9eE]*"
_FACTOR = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,40})?")
"""Times that are multiplied by larger ones would not fit into 64 bits."""
_RANKS = r"[0-9]{1,6}(?:[-,][0-9]{1,6})*"
_LEAST_SPEED = 1e-6
"""Least speed of a network: one over the largest factor of times (_NUMBER)."""
_CHANGE = re.compile(
    rf"""\s*(?:
    (?P<named>range|call|kernel|class|repeats)\s+(?P<quote>['"])(?P<name>(?s:\\.|[^\\])*?)(?P=quote)\s*(?:=\s*0|\*\s*(?P<factor>{_NUMBER}))
    |(?P<network>network)(?:\s+(?P<where>within\ nodes?|between\ nodes?))?\s*(?:=\s*ideal|\*\s*(?P<speed>{_NUMBER}))
    |rank\s+(?P<rank>{_RANKS})\s*=\s*median
    |(?P<host>host)\s*(?:=\s*ideal|\*\s*(?P<host_factor>{_NUMBER}))
    |(?P<copies>copies)\s*(?:=\s*0|\*\s*(?P<copies_factor>{_NUMBER}))
    |(?P<readbacks>readbacks)\s*=\s*0
    |(?P<recomputation>recomputation)\s*=\s*0
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
        speed = _read_factor(match["speed"])
        if match["speed"] and speed < _LEAST_SPEED:
            raise UsageError(f"a network cannot be less than {Decimal(str(_LEAST_SPEED)):f} times as fast")
        where = "" if not match["where"] else (WITHIN if match["where"].startswith("within") else BETWEEN)
        return Change(NETWORK, where, 1 / speed if speed else 0.0, ranks)
    if match["waits"]:
        if ranks is not None:
            raise UsageError("waits = 0 is for all ranks")
        return Change(WAITS)
    if match["readbacks"]:
        return Change(READBACKS, ranks=ranks)
    if match["named"]:
        name = re.sub(r"(?s)\\(['\"])|(\\.)", r"\1\2", match["name"])
        return Change(match["named"], name, _read_factor(match["factor"]), ranks)
    if match["recomputation"]:
        return Change(RECOMPUTATION, ranks=ranks)
    target = match["host"] or match["copies"]
    return Change(target, factor=_read_factor(match[f"{target}_factor"]), ranks=ranks)


def _read_factor(text: str | None) -> float:
    """Return a factor; 0 if none is given. Raises UsageError."""
    if text is not None and not _FACTOR.fullmatch(text):
        raise UsageError(f"* {text[:60]}: a factor is from 0 to 999999, of at most 40 decimals, like 0.5 or 2")
    return float(text or 0)
