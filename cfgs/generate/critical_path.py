"""Declares presets of the critical path: what must get faster for the job to get faster.

Their files are in the folder `analysis`. At any time the path is on one row; all other rows are empty.
"""

from __future__ import annotations

from typing import Any

from cfgs.generate.paraver_cfg import (
    ANY_DRAW,
    MAXIMUM,
    MILLISECONDS,
    TASK,
    Folder,
    Histogram,
    Messages,
    Window,
    codes,
    only,
)
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import palette


def _show_path(name: str, **properties: Any) -> Window:
    """Show the kind of the path's segment on its row, with lines to the next row of the path."""
    return Window(
        name,
        codes(palette.PATH_KINDS, ANY_DRAW),
        events=only(types.CRITICAL_PATH),
        units=MILLISECONDS,
        messages=Messages((types.TAG_PATH,)),
        **properties,
    )


CRITICAL_PATH = Folder("analysis")
CRITICAL_PATH.add(
    "critical_path",
    "Critical path over all ranks: its thread or stream and its activity, with a line wherever it changes rows",
    """
The critical path is the chain of operations, calls and CPU code that determines the run time of the job. Speeding up
anything else does not shorten the job. The path is on one row at a time; all other rows are dark then.
Blue: compute. Orange: data transfer. Pale orange: unclassified communication. Purple: memory operations. Light blue:
CUDA API calls. Pale blue: launch latency, from the launch call to its operation. Light grey: gap between GPU
operations. Green: CPU code outside of calls. Yellow: MPI. Dark grey: OS calls. Rust: wait for an unselected rank.
Nearly black: unknown.
The path covers the chosen time, or else the steps of the program after the warm-up. Without steps, it covers all time.
analysis/critical_path_profile adds up the time, views/on_critical_path shows the kernels by name.
""",
    _show_path("Critical path"),
    menu="What is on the critical path?",
)

_rank_paths = _show_path("Critical path of each rank", level=TASK, above=MAXIMUM)
CRITICAL_PATH.add(
    "critical_path_profile",
    "Time of the critical path on each rank, by activity: compute, data transfer, CPU code, ... (ms)",
    """
Timeline: the path with one row per rank, in the colours of analysis/critical_path. Histograms: time of the path on each
thread and stream, and on each rank, by activity (ms). All cells of a histogram add up to the time that the path covers.
Each time is an upper bound of the gain if that activity on that rank took no time at all. The gain is smaller if
another chain is nearly as long and becomes the critical path.
""",
    _rank_paths,
    Histogram(
        "Critical path on each row [ms]", _show_path("Critical path on rows"), "Time", maximum=len(types.PATH_KINDS)
    ),
    Histogram("Critical path on each rank [ms]", _rank_paths, "Time", maximum=len(types.PATH_KINDS)),
    menu="What is on the critical path?",
)
