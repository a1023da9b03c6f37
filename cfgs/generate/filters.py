"""Makes files for Paraver's own cutter, filter and software counters, which reduce a trace that is too large.

paramedir applies them without loading the trace; wxParaver's dialog Cut & Filter loads them. Both use the same parser,
which has its own rules: each element is on a line of its own, the first child of a list is a blank, no element is
empty, a filter has at most 20 types or ranges, and software counters have at most 15 types of a kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.event_type import EventType

Types = Sequence[EventType | range]
"""Event types: single numbers, and ranges of numbers."""

_LAST_NVTX = families.NVTX_RESERVED["neSmiK"] + families.NVTX_BLOCK - 1
_NVTX = range(families.NVTX_DEFAULT, _LAST_NVTX + 1)
"""The blocks of all domains except NCCL."""
_NCCL = range(families.NVTX_NCCL, families.NVTX_NCCL + families.NVTX_BLOCK)
_INTERVAL_NS = 10_000_000


@dataclass(frozen=True)
class EventFilter:
    """Filter that keeps these types, optionally states, and no communications."""

    types: Types
    states: bool

    option = "-f"

    def format(self) -> list[str]:
        """Return the elements of the file."""
        return [
            "  <filter>",
            f"    <discard_states>{int(not self.states)}</discard_states>",
            "    <discard_events>0</discard_events>",
            "    <discard_communications>1</discard_communications>",
            "    <states>All</states>",
            "    <types>",
            *(f"      <type>{_format_types(kept)}</type>" for kept in self.types),
            "    </types>",
            "  </filter>",
        ]


@dataclass(frozen=True)
class Counters:
    """Counters that count events of some types in each interval (ns), add up the values of others, and keep a few.

    Paraver writes the counters of a row when its state Running first starts after an interval, and at the end of the
    trace.
    """

    counted: Sequence[EventType]
    added_up: Sequence[EventType]
    kept: Sequence[EventType]
    interval: int

    option = "-s"

    def format(self) -> list[str]:
        """Return the elements of the file."""
        return [
            "  <software_counters>",
            "    <range>",
            "      <by_intervals_vs_by_states>1</by_intervals_vs_by_states>",
            f"      <sampling_interval>{self.interval}</sampling_interval>",
            f"      <count_events>{_join(self.counted)}</count_events>",
            f"      <accum_events>{_join(self.added_up)}</accum_events>",
            "    </range>",
            "    <algorithm>",
            "      <remove_states>0</remove_states>",
            "      <summarize_useful_states>0</summarize_useful_states>",
            "      <global_counters>1</global_counters>",
            "      <only_in_burst_counting>0</only_in_burst_counting>",
            f"      <keep_events>{_join(self.kept)}</keep_events>",
            "    </algorithm>",
            "  </software_counters>",
        ]


@dataclass(frozen=True)
class FilterFile:
    """A file: its name, the contents of the new trace in one line, and the steps that paramedir applies."""

    name: str
    summary: str
    tools: tuple[EventFilter | Counters, ...]
    """Steps that paramedir applies, in this order."""

    @property
    def options(self) -> str:
        """The options of paramedir for it."""
        return " ".join(tool.option for tool in self.tools)

    @property
    def path(self) -> str:
        """Path from cfgs/."""
        return f"filters/{self.name}.xml"

    def format(self) -> str:
        """Return the text of the file."""
        head = ['<?xml version="1.0" encoding="UTF-8"?>', f"<!-- {escape(self.summary)} -->"]
        use = f"<!-- paramedir {self.options} -o SMALL.prv TRACE.prv {self.name}.xml, or wxParaver: Cut & Filter -->"
        elements = [element for tool in self.tools for element in tool.format()]
        return "\n".join([*head, use, "<config>", *elements, "</config>", ""])


def _format_types(kept: EventType | range) -> str:
    return f"{kept.start}-{kept.stop - 1}" if isinstance(kept, range) else str(kept.number)


def _join(chosen: Sequence[EventType]) -> str:
    return ";".join(str(event_type.number) for event_type in chosen)


_COUNTED, _ADDED_UP, _KEPT = (types.KERNEL, types.NCCL_KERNEL), (types.MEMORY_BYTES,), (types.STEP,)

FILTERS = (
    FilterFile("overview", "States, steps and NVTX ranges", (EventFilter((types.STEP, _NVTX), states=True),)),
    FilterFile(
        "nccl",
        "NCCL only: kernels, calls, payloads, waits and stragglers",
        (
            EventFilter(
                (types.NCCL_KERNEL, _NCCL, types.OPERATION_PART, types.WAITED_FOR, types.WAIT_REASON, types.LATENESS),
                states=False,
            ),
        ),
    ),
    FilterFile(
        "kernels_per_10ms",
        "Number of kernels and bytes copied every 10 ms, steps, and the state Running of each row",
        (EventFilter((*_COUNTED, *_ADDED_UP, *_KEPT), states=True), Counters(_COUNTED, _ADDED_UP, _KEPT, _INTERVAL_NS)),
    ),
)
