"""The page of all event types, states and tags: python docs/event_types.py writes it, `--check` only compares it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping

from page_file import DOCS, write_or_check

from nsys2prv_ng.paraver import event_types, families
from nsys2prv_ng.paraver.event_type import EventType

PAGE = DOCS / "reference/event-types.md"

_HEAD = """# Event types

`python docs/event_types.py` writes this page from `nsys2prv_ng/paraver/event_types.py` and
`nsys2prv_ng/paraver/families.py`; a test keeps them equal.

*Interval*: a value other than 0 starts it and 0 ends it. *Names*: values are names, numbered from 1 in alphabetical
order over all reports; the .pcf lists them. All other values are quantities or plain numbers. The .pcf of a trace
declares the types that have events in it, and always 63000007: BSC's BasicAnalysis recognises the traces by it.
"""
_NVTX = """
## NVTX: a block of 100 numbers for each domain

The block of the default domain starts at 9600, that of NCCL at 9500 (its first numbers are in the table above), that of
neSmiK at 81000, and those of all others at 9700, 9800, ... in the order of their names. A type is the first number of
its domain's block plus:
"""
_METRICS = """
## GPU metrics

The type is 9400 plus nsys's number of the metric, if that is below 100 and all GPUs of the job agree on it; otherwise a
number from 9000000 that depends only on the metric's name. The label ends in nsys's unit. MHz is stored as Hz, which
Paraver shows as MHz.
"""
_NODE = f"""
## Metrics of nodes

The types of network cards and switches, plugins, and CPUs are numbers from {families.NODE_METRIC_FIRST} to
{families.NODE_METRIC_FIRST + families.NODE_METRIC_COUNT - 1}. Each depends on the source, the metric's name and unit,
and whether it is real; on other metrics only if two would get the same number. Raw CPU counters have
{families.CPU_COUNTER_FIRST} plus nsys's number of the counter, if that is below {families.CPU_COUNTER_IDS} and all
nodes agree on it. The label ends in nsys's unit. Real numbers are stored times 10^{families.REAL_PRECISION}. Fields of
plugins are labelled "Plugin: FIELD".
"""
_TAGS = f"""
## Tags of communications

| tag | from and to | size |
|---|---|---|
| {event_types.TAG_LAUNCH} | call on a host thread to its kernel or graph on a stream | 0 |
| {event_types.TAG_COPY} | call to its copy or set | bytes |
| {event_types.TAG_NCCL} | NCCL send to the matching receive | bytes |
| {event_types.TAG_RELEASE} | last rank of a communication to a rank that waited for it | 0 |
| {event_types.TAG_PATH} | row of the critical path to the one where it goes on | 0 |
| MPI's own | MPI send to the matching receive | the sender's bytes |
"""
_STATES = """
## States

| value | state |
|---|---|
"""
_ON_NVTX = (
    families.make_nvtx_range("D"),
    families.make_nvtx_on_gpu("D", 0),
    families.make_nvtx_mark("D"),
    families.make_nvtx_category("D"),
    families.make_nvtx_number("D"),
    families.make_nvtx_end_thread("D"),
    families.make_nvtx_payload("D"),
    families.make_nvtx_real_payload("D"),
    families.make_nvtx_json_payload("D"),
    families.make_nvtx_flops("D"),
    families.make_nvtx_lane("D", 0),
)
_LANES = {20: families.NVTX_GPU_LANES, 60: families.NVTX_LANES}
_LEVELS = {
    event_types.SAMPLED_FUNCTIONS[1]: ("Sampled functions (depth n)", event_types.SAMPLED_FUNCTIONS[2:]),
    event_types.SAMPLED_PYTHON[1]: ("Sampled Python functions (depth n)", event_types.SAMPLED_PYTHON[2:]),
    event_types.CALLERS[0]: ("Caller at level n", event_types.CALLERS[1:]),
}
"""Types that come in numbers, by the first one, which the page shows for all: label, and the other types."""


def describe_types() -> str:
    """Return the whole page."""
    fixed = sorted(_list_types(), key=lambda event_type: event_type.number)
    states = [f"| {value} | {name} |" for value, (name, _) in sorted(event_types.STATES.items())]
    parts = [_HEAD, _format_table((_format_number(kind), kind) for kind in fixed), _NVTX]
    parts += [
        _format_table((_format_offset(kind), kind) for kind in _ON_NVTX),
        _METRICS,
        _NODE,
        _TAGS,
        _STATES + "\n".join(states) + "\n",
    ]
    return "".join(parts)


def _list_types() -> Iterator[EventType]:
    """Yield all types with a number of their own; the first one for types that come in numbers."""
    others = {kind for _, members in _LEVELS.values() for kind in members}
    for value in vars(event_types).values():
        members = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
        yield from (kind for kind in members if isinstance(kind, EventType) and kind not in others)


def _format_number(event_type: EventType) -> str:
    _, others = _LEVELS.get(event_type, ("", ()))
    return f"{event_type.number} to {others[-1].number}" if others else str(event_type.number)


def _format_offset(event_type: EventType) -> str:
    first = event_type.number
    return f"+{first}" if first not in _LANES else f"+{first} to +{first + _LANES[first] - 1}"


def _format_table(rows: Iterator[tuple[str, EventType]]) -> str:
    lines = ["", "| number | label | values | source |", "|---|---|---|---|"]
    lines += [
        f"| {number} | {_format_label(kind)} | {_describe_values(kind)} | `{kind.source}` |" for number, kind in rows
    ]
    return "\n".join(lines) + "\n"


def _format_label(event_type: EventType) -> str:
    if event_type in _LEVELS:
        return _LEVELS[event_type][0]
    label = event_type.label.replace("NVTX D", "NVTX DOMAIN")
    return re.sub(r"lane 1$", "lane n", label) if event_type.family else label


def _describe_values(event_type: EventType) -> str:
    parts = []
    if event_type.interval:
        parts.append("interval")
    if event_type.values:
        parts.append(", ".join(f"{value} {label}" for value, label in sorted(event_type.values.items())))
    elif event_type.names:
        parts.append("names")
    if event_type.unit:
        parts.append(event_type.unit)
    if event_type.precision:
        parts.append(f"times 10^{event_type.precision}")
    return ": ".join(parts).replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, describe_types(), sys.argv[1:], __doc__))
