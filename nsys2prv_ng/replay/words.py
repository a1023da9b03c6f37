"""Sentences of a what-if analysis: what each change saves, and what sets the pace."""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import WhatIfNumbers, name_limit, tabulate_scenarios, tabulate_slack
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.layout import choose_width, format_grid, wrap
from nsys2prv_ng.text.names import quote_name

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


_MOST_NAMED = 8
"""Most changes that a sentence names."""


def describe_steps(numbers: WhatIfNumbers) -> str:
    """Return a sentence on the steps, and on what sets the pace."""
    if not numbers.steps:
        return f"No steps were found: the whole time is {format_time(numbers.step_ns)}."
    steps = f"{count_noun(numbers.steps, 'step')} of {format_time(numbers.step_ns)} on average"
    limit = name_limit(numbers.limited_by)
    pace = f"{limit} sets the pace" if limit else "hosts and GPUs are about equally fast"
    played = describe_replayed(numbers)
    return f"{steps}, which vary by {format_time(numbers.noise_ns)}; {pace}.{f' {played}.' if played else ''}"


def describe_replayed(numbers: WhatIfNumbers) -> str:
    """Return which steps were replayed, and why not all; "" if all were."""
    replayed = numbers.replayed
    if replayed is None:
        return ""
    first, last = replayed.steps
    which = f"Only step {first}" if first == last else f"Only steps {first} to {last}"
    were = "was" if first == last else "were"
    count = replayed.of_operations
    size = f"{count / 1e6:.1f} million" if count >= 1e6 else f"{count:,}"
    return f"{which} of {replayed.of_steps:,} {were} replayed: the whole job has {size} operations and calls"


def describe_best(numbers: WhatIfNumbers) -> str:
    """Return a sentence on the change that saves most; "" if none saves anything measurable."""
    best = numbers.best
    if best is None:
        return "No change saves more than the steps vary by." if numbers.scenarios else ""
    each = "a step" if numbers.steps else "in all"
    saves = f"saves about {format_time(best.saving_ns)} {each} ({format_percent(best.share, 1)})"
    return f"{quote_name(best.change)} {saves}."


def describe_others(numbers: WhatIfNumbers) -> str:
    """Return a sentence on the changes that save nothing measurable."""
    parts = []
    for text, connected in (
        ("Nothing measurable", True),
        ("Not connected to any step, though made ten times longer", False),
    ):
        chosen = [each for each in numbers.scenarios if not each.measurable and each.connected == connected]
        if chosen:
            more = f" and {len(chosen) - _MOST_NAMED:,} more" if len(chosen) > _MOST_NAMED else ""
            names = [quote_name(scenario.change) for scenario in chosen[:_MOST_NAMED]]
            parts.append(f"{text}: {', '.join(names)}{more}.")
    return " ".join(parts)


def describe_unsplit(numbers: WhatIfNumbers) -> str:
    """Return a sentence on NCCL kernels that no change alters; "" if there are none."""
    if not numbers.unsplit_ns:
        return ""
    kept = f"NCCL kernels of {format_time(numbers.unsplit_ns)} a step keep their length in all predictions"
    return f"{kept}: whether they wait or transfer data is not known."
