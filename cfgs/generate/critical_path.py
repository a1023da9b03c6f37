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
    "Critical path over all ranks: on which thread or stream it runs and in what, with lines where it changes rows",
    """
The critical path is the chain of operations, calls and host code that decides how long the job takes. What is not on it
does not shorten the job, however fast it gets. The path is on one row at a time; all others are dark then.
Blue is compute, orange is moving data (pale orange: communication that could not be split), purple is memory
operations. Light blue is CUDA calls, pale blue is the latency from a launch call to its operation, light grey is a gap
between operations of the device. Green is host code outside of calls, yellow is MPI, dark grey is system calls. Rust is
waiting for a rank that is not selected, nearly black is unknown.
The path covers the chosen time; else the steps of the program after the warm-up; without steps, all time.
analysis/critical_path_profile adds up the time, views/on_critical_path shows the names of the kernels.
""",
    _show_path("Critical path"),
)

_rank_paths = _show_path("Critical path of each rank", level=TASK, above=MAXIMUM)
CRITICAL_PATH.add(
    "critical_path_profile",
    "Time that the critical path spends on each rank, by kind: compute, moving data, host code, ... (ms)",
    """
Timeline: the path with one row per rank, in the colours of analysis/critical_path. Histograms: time of the path on each
thread and stream, and on each rank, by kind (ms). All cells of a histogram add up to the time that the path covers.
A time is the most that can be gained if that kind of work on that rank took no time at all. The gain is less if another
chain is nearly as long: it then becomes the critical path.
""",
    _rank_paths,
    Histogram(
        "Critical path on each row [ms]", _show_path("Critical path on rows"), "Time", maximum=len(types.PATH_KINDS)
    ),
    Histogram("Critical path on each rank [ms]", _rank_paths, "Time", maximum=len(types.PATH_KINDS)),
)
