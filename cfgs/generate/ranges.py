"""Declares presets of NVTX ranges on streams: how much GPU time each range launched.

Their files are in the folder `analysis`, where users look for them.
"""

from __future__ import annotations

from cfgs.generate.paraver_cfg import MILLISECONDS, Derived, Folder, Histogram, View, only, product, span
from cfgs.generate.shared import MOST_NAMES, NAMES, inside, names, select_depth
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families

_on_gpu = families.make_nvtx_on_gpu("", 0)
_RANGES = only(_on_gpu, families.NVTX_DEFAULT + _on_gpu.number)
_working = inside("In a kernel, graph, copy or set", span(types.MEMORY_OPERATION, types.GRAPH_LAUNCH))


def _while_working(name: str, ranges: View) -> Derived:
    return product(name, NAMES, ranges, _working, units=MILLISECONDS)


def _add_up(name: str, ranges: View) -> Histogram:
    return Histogram(name, ranges, "Time", maximum=MOST_NAMES)


_innermost = _while_working("Innermost range of each operation", names("NVTX ranges on streams", _RANGES))
_outermost, _second = (
    _while_working(
        f"Range of depth {depth} of each operation", select_depth(f"Ranges of depth {depth}", _RANGES, depth)
    )
    for depth in (1, 2)
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
)
