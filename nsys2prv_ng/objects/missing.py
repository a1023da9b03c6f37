"""Ranks of a job that left no report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsys2prv_ng.report.metadata import Metadata

_MOST_SHOWN = 20


def find_missing_ranks(reports: Sequence[Metadata], ranks_of_tasks: Iterable[int | None]) -> list[str]:
    """A warning for each kind of launcher whose ranks do not all have a report, by what it told those that do.

    `ranks_of_tasks`: those found in the reports by any means, since one report can hold several ranks.
    """
    found: dict[tuple[str, int], set[int]] = {}
    for report in reports:
        launched = report.launched
        if launched is not None and launched.size is not None:
            found.setdefault((launched.variable, launched.size), set()).add(launched.rank)
    of_tasks = {rank for rank in ranks_of_tasks if rank is not None}
    warnings = []
    for (variable, size), ranks in sorted(found.items()):
        # Where what was launched are launchers of ranks themselves, one on each node, their number is no rank.
        if max(of_tasks, default=0) < size:
            ranks |= of_tasks
        gaps = _gaps(ranks, size)
        if gaps:
            many = len(gaps) > 1 or gaps[0][0] != gaps[0][1]
            warnings.append(f"no report of rank{'s' if many else ''} {_text(gaps)} of {size:,} (by {variable})")
    return warnings


def _gaps(ranks: set[int], size: int) -> list[tuple[int, int]]:
    """First and last of each run of ranks below `size` that are not there."""
    gaps, expected = [], 0
    for rank in [*sorted(rank for rank in ranks if rank < size), size]:
        if rank > expected:
            gaps.append((expected, rank - 1))
        expected = rank + 1
    return gaps


def _text(gaps: Sequence[tuple[int, int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in gaps[:_MOST_SHOWN]]
    return ", ".join(shown) + (", and others" if len(gaps) > _MOST_SHOWN else "")
