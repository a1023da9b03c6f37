"""Formats a what-if analysis for people: the answer in a sentence, then the tables."""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import Scenario, WhatIfNumbers
from nsys2prv_ng.summary.tables.what_if import name_limit, tabulate_scenarios, tabulate_slack
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.layout import choose_width, format_grid, wrap
from nsys2prv_ng.text.names import clean_name

_MOST_SCENARIOS = 12


def format_what_if(numbers: WhatIfNumbers, width: int | None = None) -> str:
    """Return sentences and tables. `width`: most columns; None: as wide as the terminal."""
    width = choose_width() if width is None else width
    named = [scenario for scenario in numbers.scenarios if scenario.measurable]
    others = [scenario for scenario in numbers.scenarios if not scenario.measurable]
    sections = [
        wrap(_describe_steps(numbers), width),
        wrap(describe_best(numbers), width),
        format_grid(tabulate_scenarios(numbers, named), width, _MOST_SCENARIOS),
        wrap(_describe_others(others), width),
        format_grid(tabulate_slack(numbers), width),
        wrap(_describe_unsplit(numbers), width),
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _describe_steps(numbers: WhatIfNumbers) -> str:
    if not numbers.steps:
        return f"No steps were found: the whole time is {format_time(numbers.step_ns)}."
    steps = f"{count_noun(numbers.steps, 'step')} of {format_time(numbers.step_ns)} on average"
    pace = "hosts and GPUs are about equally fast" if numbers.limited_by is None else ""
    pace = pace or f"{name_limit(numbers.limited_by)} sets the pace"
    return f"{steps}, which vary by {format_time(numbers.noise_ns)}; {pace}."


def describe_best(numbers: WhatIfNumbers) -> str:
    """Return a sentence on the change that saves most; "" if none saves anything measurable."""
    best = numbers.best
    if best is None:
        return "No change saves more than the steps vary by." if numbers.scenarios else ""
    each = "a step" if numbers.steps else "in all"
    saving = f"{format_time(best.saving_ns)} {each} ({format_percent(best.share, 1)})"
    return f"{clean_name(best.change)}: saves about {saving}."


def _describe_others(scenarios: list[Scenario]) -> str:
    """Return a sentence on the changes that save nothing measurable."""
    parts = []
    for text, chosen in (
        ("Nothing measurable", [s for s in scenarios if s.connected]),
        ("Not connected to any step, though made ten times longer", [s for s in scenarios if not s.connected]),
    ):
        if chosen:
            parts.append(f"{text}: {', '.join(clean_name(scenario.change) for scenario in chosen)}.")
    return " ".join(parts)


def _describe_unsplit(numbers: WhatIfNumbers) -> str:
    if not numbers.unsplit_ns:
        return ""
    return (
        f"NCCL kernels of {format_time(numbers.unsplit_ns)} a step keep their length in all predictions: whether they"
        " wait or move data is not known."
    )
