"""Declares presets of NVTX ranges on streams: how much GPU time each range launched.

Their files are in the folder `analysis`, where users look for them.
"""

from __future__ import annotations

from cfgs.generate.paraver_cfg import (
    ENUMERATED,
    GRADIENT,
    JOINED,
    MILLISECONDS,
    NESTING,
    Derived,
    Folder,
    Function,
    Histogram,
    View,
    Window,
    at_least,
    below,
    equal_to,
    only,
    product,
    span,
)
from cfgs.generate.shared import MOST_NAMES, NAMES, inside, names
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families

_on_gpu = families.make_nvtx_on_gpu("", 0)
_RANGES = only(_on_gpu, families.NVTX_DEFAULT + _on_gpu.number)


def _show_levels(name: str, *top: Function) -> Window:
    """Show something about the number of ranges that are open on the stream."""
    return Window(name, GRADIENT, events=_RANGES, compose=NESTING, top=top)


def _select_depth(depth: int) -> Derived:
    """Show the range of one depth, also while ranges nested in it are open.

    On a stream, ranges often begin and end with one in them. Then the outer one is on top for no time at all, where it
    opens, and a burst of the control window must begin before. So it lasts from the end of one range to that of the
    next. While the last event is not an end, it is the opening.
    """
    opening = product(
        f"Opening of a range of depth {depth}",
        GRADIENT,
        Window("Last opening or end", GRADIENT, events=_RANGES),
        _show_levels(f"Depth is {depth}", equal_to(depth)),
    )
    to_end = _show_levels(f"Until the end of a range of depth {depth}", below(depth), ENUMERATED, JOINED)
    next_range = Derived(
        f"This or the next range of depth {depth}",
        GRADIENT,
        operation="controlled: maximum",
        first=opening,
        second=to_end,
    )
    within = _show_levels(f"In a range of depth {depth}", at_least(depth))
    return product(f"Range of depth {depth}", NAMES, next_range, within)


_working = inside("In a kernel, graph, copy or set", span(types.MEMORY_OPERATION, types.GRAPH_LAUNCH))


def _while_working(name: str, ranges: View) -> Derived:
    return product(name, NAMES, ranges, _working, units=MILLISECONDS)


def _add_up(name: str, ranges: View) -> Histogram:
    return Histogram(name, ranges, "Time", maximum=MOST_NAMES)


_innermost = _while_working("Innermost range of each operation", names("NVTX ranges on streams", _RANGES))
_outermost, _second = (
    _while_working(f"Range of depth {depth} of each operation", _select_depth(depth)) for depth in (1, 2)
)

RANGES = Folder("analysis")
RANGES.add(
    "gpu_time_by_range",
    "GPU time by NVTX range that launched it: timeline, and time of operations by outermost to innermost range (ms)",
    """
Timeline: while a stream runs a kernel, graph, copy or set, the innermost range of the default domain that launched it.
Histograms, one row per stream and one column per range: time of operations by outermost range (depth 1), such as steps,
by range of depth 2, such as their phases, and by innermost range. The first two include nested ranges, the last one
does not. The totals add up all streams; where two operations run at once, both count. Choose statistic % Time for
shares. A number in a range's name ("layer 3") is cut off. Zoom to a step for its times.
An operation counts for the range that is open on its stream, from the first operation launched in it to the last (see
views/nvtx_on_gpu). What another thread launches between them, such as PyTorch's backward passes, counts for the range
around: nsys2prv-ng summary --details has these under the range that the main thread is in. Operations outside of all
ranges are not shown.
""",
    _innermost,
    _add_up("GPU time by outermost range [ms]", _outermost),
    _add_up("GPU time by range of depth 2 [ms]", _second),
    _add_up("GPU time by innermost range [ms]", _innermost),
    hidden_first=(_working,),
    menu="Which kernels take the time?",
)
