"""Formats a what-if analysis for people: the answer in a sentence, then the tables."""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import WhatIfNumbers
from nsys2prv_ng.summary.tables.what_if import tabulate_scenarios, tabulate_slack
from nsys2prv_ng.summary.verdicts.what_if import describe_best, describe_others, describe_steps, describe_unsplit
from nsys2prv_ng.text.layout import choose_width, format_grid, wrap

_MOST_SCENARIOS = 12


def format_what_if(numbers: WhatIfNumbers, width: int | None = None) -> str:
    """Return sentences and tables. `width`: most columns; None: as wide as the terminal."""
    width = choose_width() if width is None else width
    sections = [
        wrap(describe_steps(numbers), width),
        wrap(describe_best(numbers), width),
        format_grid(tabulate_scenarios(numbers), width, _MOST_SCENARIOS),
        wrap(describe_others(numbers), width),
        format_grid(tabulate_slack(numbers), width),
        wrap(describe_unsplit(numbers), width),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)
