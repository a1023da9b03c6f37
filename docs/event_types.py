"""List every event type, state and tag: python docs/event_types.py > docs/reference/event-types.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nsys2prv_ng.paraver import event_types, families
from nsys2prv_ng.paraver.event_type import EventType

_HEAD = """# Event types

Made by `python docs/event_types.py` from `nsys2prv_ng/paraver/event_types.py` and
`nsys2prv_ng/paraver/families.py`; a test keeps them equal. *Interval*: a value other than 0 begins and
0 ends. *Names*: values are names, numbered from 1 in alphabetical order over all reports, as the .pcf lists them. What
is neither is a quantity or a number of its own. A trace's .pcf declares the types that have events in it, and always
63000007: BSC's BasicAnalysis recognises the traces by it.
"""
_NVTX = """
## NVTX: a block of 100 numbers for each domain

The default domain begins at 9600, NCCL's at 9500 (its first numbers are in the table above), neSmiK's at 81000, all
others at 9700, 9800, ... in the order of their names. A type is the first number of its domain's block and:
"""
_METRICS = """
## GPU metrics

9400 and nsys's number of the metric, where that is below 100 and all GPUs of the job agree on it; else a number from
9000000 that depends on the metric's name alone. The label ends in nsys's unit. MHz is held as Hz, which Paraver shows
as MHz.
"""
_NODE = f"""
## Metrics of nodes

Of network cards and switches, plugins, and CPUs: a number from {families.NODE_METRIC_FIRST} to
{families.NODE_METRIC_FIRST + families.NODE_METRIC_COUNT - 1} that depends on the source, the metric's name and unit and
whether it is real, and on others only where two would have the same; raw counters of CPUs {families.CPU_COUNTER_FIRST}
and nsys's number of the counter, where that is below {families.CPU_COUNTER_IDS} and all nodes agree on it. The label
ends in the unit that nsys gives. Real numbers are held times 10^{families.REAL_PRECISION}. Fields of plugins are
"Plugin: FIELD".
"""
_TAGS = f"""
## Tags of communications

| tag | from and to | size |
|---|---|---|
| {event_types.TAG_LAUNCH} | call on a host thread to its kernel or graph on a stream | 0 |
| {event_types.TAG_COPY} | call to its copy or set | bytes |
| {event_types.TAG_NCCL} | send of NCCL to the receive that it meets | bytes |
| MPI's own | send of MPI to the receive that it meets | the sender's bytes |
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
    families.make_nvtx_lane("D", 0),
)
_LANES = {20: families.NVTX_GPU_LANES, 60: families.NVTX_LANES}
_LEVELS = {
    event_types.SAMPLED_FUNCTIONS[1]: ("Sampled functions (depth n)", event_types.SAMPLED_FUNCTIONS[2:]),
    event_types.SAMPLED_PYTHON[1]: ("Sampled Python functions (depth n)", event_types.SAMPLED_PYTHON[2:]),
    event_types.CALLERS[0]: ("Caller at level n", event_types.CALLERS[1:]),
}
"""Types of which there are many alike: the first is shown for all."""


def text() -> str:
    """The whole page."""
    fixed = sorted(_declared(), key=lambda each: each.number)
    states = [f"| {value} | {name} |" for value, (name, _) in sorted(event_types.STATES.items())]
    parts = [_HEAD, _table((_number(each), each) for each in fixed), _NVTX]
    parts += [
        _table((_offset(each), each) for each in _ON_NVTX),
        _METRICS,
        _NODE,
        _TAGS,
        _STATES + "\n".join(states) + "\n",
    ]
    return "".join(parts)


def _declared() -> Iterator[EventType]:
    """All types with a number of their own, of many that are alike the first."""
    others = {each for _, members in _LEVELS.values() for each in members}
    for value in vars(event_types).values():
        members = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else (value,)
        yield from (each for each in members if isinstance(each, EventType) and each not in others)


def _number(event_type: EventType) -> str:
    _, others = _LEVELS.get(event_type, ("", ()))
    return f"{event_type.number} to {others[-1].number}" if others else str(event_type.number)


def _offset(event_type: EventType) -> str:
    first = event_type.number
    return f"+{first}" if first not in _LANES else f"+{first} to +{first + _LANES[first] - 1}"


def _table(rows: Iterator[tuple[str, EventType]]) -> str:
    lines = ["", "| number | label | what its values are | source |", "|---|---|---|---|"]
    lines += [f"| {number} | {_label(each)} | {_values(each)} | `{each.source}` |" for number, each in rows]
    return "\n".join(lines) + "\n"


def _label(event_type: EventType) -> str:
    if event_type in _LEVELS:
        return _LEVELS[event_type][0]
    label = event_type.label.replace("NVTX D", "NVTX DOMAIN")
    return re.sub(r"lane 1$", "lane n", label) if event_type.family else label


def _values(event_type: EventType) -> str:
    what = []
    if event_type.interval:
        what.append("interval")
    if event_type.values:
        what.append(", ".join(f"{value} {label}" for value, label in sorted(event_type.values.items())))
    elif event_type.names:
        what.append("names")
    if event_type.unit:
        what.append(event_type.unit)
    if event_type.precision:
        what.append(f"times 10^{event_type.precision}")
    return ": ".join(what).replace("|", "\\|")


if __name__ == "__main__":
    print(text(), end="")
