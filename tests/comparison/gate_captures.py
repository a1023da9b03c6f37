"""Saved summaries of programs that benchmarks/gate captured often, with planted slowdowns (tests/data/gate).

`apart`: unchanged captures before all others; `turns`: all states in turns, on another machine; `network`: two GPUs.
"""

from __future__ import annotations

import io
import json
import tarfile
from functools import cache
from itertools import combinations
from pathlib import Path

from nsys2prv_ng.comparison.evidence import find_evidence
from nsys2prv_ng.comparison.gate import rule
from nsys2prv_ng.comparison.model import Verdict
from nsys2prv_ng.comparison.sides import make_side, measure_capture
from nsys2prv_ng.summary.job import JobSummary

FILE = Path(__file__).parents[1] / "data/gate/captures.tar.xz"
_MOST = 200
"""Most choices of captures of two states to judge."""


@cache
def read_captures() -> dict[str, list[JobSummary]]:
    """Return the captures of each state, by `FOLDER/KIND-WHERE-PERCENT`."""
    found: dict[str, list[JobSummary]] = {}
    with tarfile.open(FILE) as archive:
        for member in archive.getmembers():
            if member.isfile():
                text = archive.extractfile(member)
                assert text is not None
                fields = json.load(io.TextIOWrapper(text))
                found.setdefault(member.name.rsplit(".", 2)[0], []).append(JobSummary.from_dict(fields))
    return found


def judge(a: list[JobSummary], b: list[JobSummary], limit: float) -> int:
    """Return the exit code for captures of two sides."""
    sides = make_side("a", a), make_side("b", b)
    times = [sorted(map(measure_capture, side)) for side in (a, b)]
    a_ns, b_ns = (round((of[(len(of) - 1) // 2] + of[len(of) // 2]) / 2) for of in times)
    samples = "captures" if len(a) > 1 else "steps"
    verdict = Verdict("slower", "step", samples, "median", a_ns, b_ns, b_ns - a_ns, b_ns / a_ns - 1, None)
    evidence = find_evidence(*sides, verdict)
    assert evidence is not None
    return rule(evidence, limit)


def count_codes(before: str, after: str, limit: float, size: int) -> dict[int, float]:
    """Return the share of each code over choices of `size` captures of both states; disjoint ones of one state."""
    a, b = read_captures()[before], read_captures()[after]
    pairs = [
        (one, other)
        for one in combinations(range(len(a)), size)
        for other in combinations(range(len(b)), size)
        if before != after or not {*one} & {*other}
    ]
    pairs = pairs[:: max(1, len(pairs) // _MOST)]
    codes = [judge([a[n] for n in one], [b[n] for n in other], limit) for one, other in pairs]
    return {code: codes.count(code) / len(codes) for code in (0, 3, 4)}
