"""Estimates the memory and the time that Paraver needs to load a trace, and finds what makes it small enough.

Paraver keeps every record of a trace in memory: one for each type:value pair of an event line, two for a state, eight
for a communication. The constants are fitted to loads by paramedir, which has the same reader as wxParaver
(benchmarks/paraver_load.py; docs/development/programs.md has the measurements). Estimates of memory are within a
tenth of the measurements for traces that need more than 100 MB. Time depends on the machine: on another machine only
its order of magnitude is right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from nsys2prv_ng.source_names import CPU_SAMPLES, CUDA_SYNC, GPU_METRICS, LAUNCH_LINES, OS_RUNTIME, SCHEDULING
from nsys2prv_ng.text.formatting import format_time, format_window
from nsys2prv_ng.value_class import ValueClass

if TYPE_CHECKING:  # it imports libraries that an estimate does not need
    from nsys2prv_ng.records.runs import Run

_PROGRAM_BYTES, _STATE_BYTES, _PAIR_BYTES, _COMMUNICATION_BYTES = 14e6, 100, 45, 420
_PROGRAM_S, _STATE_S, _PAIR_S, _COMMUNICATION_S = 0.06, 0.46e-6, 0.22e-6, 2.0e-6
_EVENT_TEXT, _PAIR_TEXT, _STATE_TEXT, _COMMUNICATION_TEXT = 23, 8, 41, 90
"""Bytes in the .prv of an event line without its pairs, of a pair, and of the two other kinds of line."""

WXPARAVER_LIMIT = 500_000_000
"""Size (bytes) of a .prv above which wxParaver asks whether to cut it, unless the user has set another size."""
WXPARAVER_ASKS = (
    f"wxParaver asks whether to cut a trace above {WXPARAVER_LIMIT // 10**6} MB: answer No to load all of it, or change"
    " Preferences > Maximum loadable trace size"
)

DETAILS = (LAUNCH_LINES, GPU_METRICS, CUDA_SYNC, OS_RUNTIME, SCHEDULING, CPU_SAMPLES)
"""Sources that can be omitted: without them, a trace still shows what the GPUs do and which ranks wait."""
OVERVIEW_BYTES = 100_000_000
"""Size of the largest overview."""
_USEFUL = 0.2
"""Least share of the memory of all records that a remedy must save; a choice: with less, weak ones are listed too."""
_MARGIN = 0.8
"""Share of the limit that a window may need: records are not spread evenly over time. A choice: with more of the limit,
more windows exceed it."""


class LoadCost(ValueClass):
    """The number of records of a trace or of a part of it: lines of states, events and communications, and pairs."""

    states: float = 0
    events: float = 0
    pairs: float = 0
    """Type:value pairs of the event lines."""
    communications: float = 0

    def __add__(self, other: LoadCost) -> LoadCost:
        return LoadCost(*map(add, astuple(self), astuple(other)))

    def __mul__(self, number: float) -> LoadCost:
        return LoadCost(*(records * number for records in astuple(self)))

    @property
    def record_memory(self) -> int:
        """Bytes of memory for the records alone."""
        return round(self.states * _STATE_BYTES + self.pairs * _PAIR_BYTES + self.communications * _COMMUNICATION_BYTES)

    @property
    def memory(self) -> int:
        """Bytes of memory for a trace with these records."""
        return round(_PROGRAM_BYTES) + self.record_memory

    @property
    def seconds(self) -> float:
        """Seconds to load a trace with these records."""
        return _PROGRAM_S + self.states * _STATE_S + self.pairs * _PAIR_S + self.communications * _COMMUNICATION_S

    @property
    def text_bytes(self) -> int:
        """Bytes of the .prv by the usual lengths of lines, for traces that are not yet written."""
        size = self.states * _STATE_TEXT + self.events * _EVENT_TEXT + self.pairs * _PAIR_TEXT
        return round(size + self.communications * _COMMUNICATION_TEXT)


def measure_load(runs: Iterable[Run]) -> LoadCost:
    """Return the number of records in some runs."""
    from nsys2prv_ng.records import columns as rec

    load = LoadCost()
    for run in runs:
        kinds = run.facts.kinds
        load += LoadCost(kinds[rec.STATE], kinds[rec.EVENT], run.facts.pairs, kinds[rec.COMMUNICATION])
    return load


def warn_of_load(load: LoadCost, limit: int) -> list[str]:
    """Return a warning if Paraver needs more than `limit` bytes for a trace; 0 stands for no limit."""
    if not 0 < limit < load.memory:
        return []
    return [
        f"too large a trace: Paraver needs {format_memory(load.memory)} of memory for it, and"
        f" {format_seconds(load.seconds)} to load it; the limit is {format_memory(limit).removeprefix('about ')}"
    ]


def format_seconds(seconds: float) -> str:
    """Return a time as an order of magnitude: one digit, or "less than 1 s"."""
    if seconds < 1:
        return "less than 1 s"
    step = 10 ** max(0, len(str(int(seconds))) - 1)
    rounded = round(seconds / step) * step
    return f"about {rounded} s" if rounded < 120 else f"about {round(seconds / 60)} min"


def format_memory(size: float) -> str:
    """Return a size with as many digits as an estimate has."""
    if size >= 0.95e9:
        return f"about {size / 1e9:,.{1 if size < 9.95e9 else 0}f} GB"
    megabytes = max(1, round(size / 1e6))
    return f"about {megabytes if megabytes < 100 else round(megabytes, -1)} MB"


# ---- what makes a trace small enough --------------------------------------------------------------------------------


class Remedy(NamedTuple):
    """What makes a trace smaller, in words, and the option of a translation that does it, with its value as typed.

    The option is empty if another program does it.
    """

    words: str
    option: str
    value: str


def find_remedies(
    load: LoadCost, details: Mapping[str, LoadCost], limit: int, duration: int, begin: int | None = 0
) -> list[Remedy]:
    """Return the useful remedies for a trace that needs more than `limit` bytes of memory, the strongest first.

    `details`: the records of each source that can be selected. `duration`: length of the trace (ns). `begin`: where it
    begins, as the option `time` counts (ns); None if that is not known, so that only Paraver can cut it. A limit of 0
    means none.
    """
    if not 0 < limit < load.memory:
        return []
    remedies = []
    if load.text_bytes * (1 - _USEFUL) > OVERVIEW_BYTES:
        words = f"an overview of all of it, without single events: a file below {OVERVIEW_BYTES // 10**6} MB"
        remedies.append(Remedy(words, "overview_trace", ""))
    room = _MARGIN * limit + load.record_memory - load.memory
    length = int(duration * room / load.record_memory)
    if length > 0:
        needs = format_memory(load.memory - load.record_memory + load.record_memory * length / duration)
        words = f"a window of {format_time(length)} of {format_time(duration)}"
        if begin is None:
            remedies.append(Remedy(f"{words}, cut by wxParaver's Cut & Filter or paramedir -c: {needs}", "", ""))
        else:
            begin += (duration - length) // 2
            window = format_window(begin, begin + length)
            remedies.append(Remedy(f"{words}, here in the middle: {needs}", "time", window))
    savings = sorted(((details[name].record_memory, name) for name in DETAILS if name in details), reverse=True)
    for saved, name in savings:
        if saved >= _USEFUL * load.record_memory:
            each = ", each of which needs as much as nine pairs of events" if name == LAUNCH_LINES else ""
            words = f"without {name}{each}: {format_memory(load.memory - saved)} instead of"
            words += f" {format_memory(load.memory).removeprefix('about ')}"
            remedies.append(Remedy(words, "sources", ",".join(source for source in details if source != name)))
    return remedies
