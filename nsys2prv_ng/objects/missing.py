"""Finds ranks of a job that left no report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nsys2prv_ng.report.metadata import Metadata

_MOST_SHOWN = 20


def find_missing_ranks(reports: Sequence[Metadata], ranks_of_tasks: Iterable[int | None]) -> list[str]:
    """Return a warning for each kind of launcher that started ranks which left no report.

    The environment of ranks with a report gives the number of ranks. `ranks_of_tasks`: the ranks found by any means,
    because one report can contain several ranks.
    """
    launched_ranks: dict[tuple[str, int], set[int]] = {}
    for report in reports:
        launched = report.launched
        if launched is not None and launched.size is not None:
            launched_ranks.setdefault((launched.variable, launched.size), set()).add(launched.rank)
    known = {rank for rank in ranks_of_tasks if rank is not None}
    warnings = []
    for (variable, size), ranks in sorted(launched_ranks.items()):
        # The launched programs may themselves launch ranks, one on each node: then their numbers are not ranks.
        if max(known, default=0) < size:
            ranks |= known
        gaps = _find_gaps(ranks, size)
        if gaps:
            many = len(gaps) > 1 or gaps[0][0] != gaps[0][1]
            warnings.append(f"no report of rank{'s' if many else ''} {_format_gaps(gaps)} of {size:,} (by {variable})")
    return warnings


def _find_gaps(ranks: set[int], size: int) -> list[tuple[int, int]]:
    """Return the first and last rank of each run of missing ranks below `size`."""
    gaps, expected = [], 0
    for rank in [*sorted(rank for rank in ranks if rank < size), size]:
        if rank > expected:
            gaps.append((expected, rank - 1))
        expected = rank + 1
    return gaps


def _format_gaps(gaps: Sequence[tuple[int, int]]) -> str:
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in gaps[:_MOST_SHOWN]]
    return ", ".join(shown) + (", and others" if len(gaps) > _MOST_SHOWN else "")
