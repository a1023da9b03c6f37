"""Says in which traces Paraver shows what a section of a comparison is on."""

from __future__ import annotations

from collections.abc import Sequence

from nsys2prv_ng.comparison.model import SideTraces
from nsys2prv_ng.comparison.side import Side
from nsys2prv_ng.comparison.side_traces import choose_common_steps
from nsys2prv_ng.html.names import quote
from nsys2prv_ng.text.formatting import format_window


def describe_side_traces(sides: Sequence[Side], numbers: Sequence[int], traces: SideTraces | None) -> str:
    """Return the traces of some sides, given by their numbers: their files, or how to make them."""
    if traces is not None:
        return f"on {' and '.join(quote(traces.files[number]) for number in numbers)}"
    chosen = [sides[number] for number in numbers]
    steps = choose_common_steps(chosen)
    if steps is not None:
        return f"in traces of `--steps {steps[0]}:{steps[1]}` of each run, or those of `--traces`"
    same = ", with the same choice of time" if any(side.summary.windows_ns for side in chosen) else ""
    return f"in traces of {' and '.join(quote(side.label) for side in chosen)}{same}"


def describe_windows(labels: Sequence[str], windows: Sequence[Sequence[tuple[int, int]]]) -> str:
    """Return the time (ns) of each run as the option --time takes it; all time where no window or several are given."""
    return ", ".join(
        f"{quote(label)} (`--time {format_window(*own[0])}`)" if len(own) == 1 else quote(label)
        for label, own in zip(labels, windows, strict=True)
    )
