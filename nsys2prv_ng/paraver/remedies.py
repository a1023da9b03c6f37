"""Finds ways to make a trace small enough for Paraver: an overview, a window, or fewer details."""

from __future__ import annotations

from collections.abc import Mapping

from nsys2prv_ng import source_names
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver.load_cost import WXPARAVER_LIMIT, LoadCost, format_memory
from nsys2prv_ng.text.formatting import format_time

DETAILS = (
    source_names.LAUNCH_LINES,
    source_names.GPU_METRICS,
    source_names.CUDA_SYNC,
    source_names.OS_RUNTIME,
    source_names.SCHEDULING,
    source_names.CPU_SAMPLES,
)
"""Sources that can be omitted: without them, a trace still shows what the GPUs do and which ranks wait."""
OVERVIEW_BYTES = 100_000_000
"""Size of the largest overview."""
_USEFUL = 0.2
"""Least share of the memory of all records that a remedy must save."""
_MARGIN = 0.8
"""Share of the limit that a window may need, because records are not spread evenly over time."""

WXPARAVER_ASKS = (
    f"wxParaver asks whether to cut a trace above {WXPARAVER_LIMIT // 10**6} MB: answer No to load all of it, or change"
    " Preferences > Maximum loadable trace size"
)


@dataclass(frozen=True)
class Remedy:
    """A description, and a choice: a window (ns), a source to omit, or, if neither is given, an overview."""

    words: str
    window: tuple[int, int] | None = None
    without: str = ""


def find_remedies(load: LoadCost, details: Mapping[str, LoadCost], limit: int, duration: int) -> list[Remedy]:
    """Return the useful remedies for a trace that needs more than `limit` bytes of memory, the strongest first.

    `details`: the records of each source. `duration`: length of the trace (ns). A limit of 0 means none.
    """
    if not 0 < limit < load.memory:
        return []
    remedies = []
    if load.text_bytes * (1 - _USEFUL) > OVERVIEW_BYTES:
        remedies.append(
            Remedy(f"an overview of all of it, without single events: a file below {OVERVIEW_BYTES // 10**6} MB")
        )
    room = _MARGIN * limit + load.record_memory - load.memory
    length = int(duration * room / load.record_memory)
    if length > 0:
        begin = (duration - length) // 2
        needs = format_memory(load.memory - load.record_memory + load.record_memory * length / duration)
        words = f"a window of {format_time(length)} of {format_time(duration)}, here in the middle: {needs}"
        remedies.append(Remedy(words, window=(begin, begin + length)))
    savings = sorted(((details[name].record_memory, name) for name in DETAILS if name in details), reverse=True)
    for saved, name in savings:
        if saved >= _USEFUL * load.record_memory:
            each = ", each of which needs as much as nine pairs of events" if name == source_names.LAUNCH_LINES else ""
            words = f"without {name}{each}: {format_memory(load.memory - saved)} instead of"
            remedies.append(Remedy(f"{words} {format_memory(load.memory).removeprefix('about ')}", without=name))
    return remedies
