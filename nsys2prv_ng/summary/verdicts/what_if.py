"""Describes in sentences what changes would save."""

from __future__ import annotations

from nsys2prv_ng.replay.numbers import WhatIfNumbers
from nsys2prv_ng.summary.what_if import name_limit
from nsys2prv_ng.text.formatting import count_noun, format_percent, format_time
from nsys2prv_ng.text.names import quote_name

_MOST_NAMED = 8
"""Most changes that a sentence names."""


def describe_steps(numbers: WhatIfNumbers) -> str:
    """Return a sentence on the steps, and on what sets the pace."""
    if not numbers.steps:
        return f"No steps were found: the whole time is {format_time(numbers.step_ns)}."
    steps = f"{count_noun(numbers.steps, 'step')} of {format_time(numbers.step_ns)} on average"
    pace = "hosts and GPUs are about equally fast" if numbers.limited_by is None else ""
    pace = pace or f"{name_limit(numbers.limited_by)} sets the pace"
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
    size = (
        f"{replayed.of_operations / 1e6:.1f} million"
        if replayed.of_operations >= 1e6
        else f"{replayed.of_operations:,}"
    )
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
    scenarios = [scenario for scenario in numbers.scenarios if not scenario.measurable]
    parts = []
    for text, chosen in (
        ("Nothing measurable", [s for s in scenarios if s.connected]),
        ("Not connected to any step, though made ten times longer", [s for s in scenarios if not s.connected]),
    ):
        if chosen:
            parts.append(f"{text}: {_list_first([quote_name(scenario.change) for scenario in chosen])}.")
    return " ".join(parts)


def _list_first(names: list[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def describe_unsplit(numbers: WhatIfNumbers) -> str:
    """Return a sentence on NCCL kernels that no change alters; "" if there are none."""
    if not numbers.unsplit_ns:
        return ""
    return (
        f"NCCL kernels of {format_time(numbers.unsplit_ns)} a step keep their length in all predictions: whether they"
        " wait or transfer data is not known."
    )
