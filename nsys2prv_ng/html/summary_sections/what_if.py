"""Makes the section on what likely changes would save."""

from __future__ import annotations

from nsys2prv_ng.html.blocks import Block, Paragraph, Section
from nsys2prv_ng.html.tables import show_grid
from nsys2prv_ng.replay.numbers import WhatIfNumbers
from nsys2prv_ng.summary.what_if import (
    describe_best,
    describe_others,
    describe_steps,
    describe_unsplit,
    tabulate_scenarios,
)


def make_what_if_section(numbers: WhatIfNumbers | None) -> Section | None:
    """Return the section on predicted savings, the largest first; None without predictions."""
    if numbers is None or not numbers.scenarios:
        return None
    grid = tabulate_scenarios(numbers)
    blocks: list[Block] = [show_grid(grid)] if grid.rows else []
    sentences = (describe_best(numbers), describe_others(numbers), describe_unsplit(numbers))
    blocks += [Paragraph(text) for text in sentences if text]
    return Section("what-if", "What changes would save", describe_steps(numbers), blocks)
