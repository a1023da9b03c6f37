"""The page of all event types, states and tags, and long lists of values: python docs/event_types.py writes both.

`--check` only compares them.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Mapping, Sequence
from itertools import chain

from page_file import DOCS, write_or_check

from nsys2prv_ng.paraver import event_types, families
from nsys2prv_ng.paraver.event_type import EventType

PAGE = DOCS / "reference/event-types.md"
VALUES = PAGE.with_name("event-values.csv")
_MANY = 6
"""Most values of a type that the page lists: longer lists are in a file of their own."""

_HEAD = f"""# Event types

Find the number, label and values of what you look for, to write a cfg of your own.

A star: a value other than 0 starts an interval and 0 ends it. *Names*: the .pcf lists the values, numbered from 1 in
alphabetical order over all reports. In brackets: the unit, and the factor of stored values. The .pcf declares the types
that occur in the trace, and always 63000007, by which BSC's BasicAnalysis recognises it.
[{VALUES.name}]({VALUES.name}) has the values of types with more than {_MANY}, such as MPI's calls.
"""
_NVTX = """
## NVTX: a block of 100 numbers for each domain

The block of the default domain starts at 9600, that of NCCL at 9500 (its first numbers are in the table above), that of
neSmiK at 81000, and those of all others at 9700, 9800, ... in the order of their names. A type is the first number of
its domain's block plus:
"""
_METRICS = """
## GPU metrics

The type is 9400 plus nsys's number of the metric, if that is below 100 and all GPUs agree on it; otherwise a number
from 9000000 that depends only on the metric's name. Labels end in nsys's unit; MHz is stored as Hz.
"""
_NODE = f"""
## Metrics of nodes

The types of network cards and switches, plugins, and CPUs are numbers from {families.NODE_METRIC_FIRST} to
{families.NODE_METRIC_FIRST + families.NODE_METRIC_COUNT - 1}. Each depends on the source, the metric's name and unit,
and whether it is real; on other metrics only if two would get the same number. Raw CPU counters have
{families.CPU_COUNTER_FIRST} plus nsys's number of the counter, if that is below {families.CPU_COUNTER_IDS} and all
nodes agree on it. Labels end in nsys's unit. Real numbers are stored times 10^{families.REAL_PRECISION}. Fields of
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


def describe_types() -> str:
    """Return the whole page."""
    states = [f"{value} {name}" for value, (name, _) in sorted(event_types.STATES.items())]
    parts = [_HEAD, _format_table(_list_types()), _NVTX]
    parts += [_format_table(_ON_NVTX), _METRICS, _NODE, _TAGS, _STATES + ", ".join(states) + ".\n"]
    return "".join(parts)


def list_values() -> str:
    """Return the values that the page leaves out, as CSV."""
    rows = [
        (kind.number, *each)
        for kind in _list_types()
        if _has_many(kind)
        for each in sorted((kind.values or {}).items())
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("type", "value", "label"), *rows])
    return text.getvalue()


def _list_types() -> list[EventType]:
    """Return all types with a number of their own, by number."""
    values = [*vars(event_types).values()]
    members = [
        *chain.from_iterable(each.values() if isinstance(each, Mapping) else _make_tuple(each) for each in values)
    ]
    return sorted({kind for kind in members if isinstance(kind, EventType)}, key=lambda kind: kind.number)


def _make_tuple(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else (value,)


def _has_many(event_type: EventType) -> bool:
    return len(event_type.values or ()) > _MANY


def _format_table(kinds: Sequence[EventType]) -> str:
    """Return a row for each source, with a line for each type, or for several that differ only by a last number."""
    by_source: dict[str, list[list[EventType]]] = {}
    for kind in kinds:
        groups = by_source.setdefault(kind.source, [])
        if groups and _format_label(groups[-1][-1], "n") == _format_label(kind, "n"):
            groups[-1].append(kind)
        else:
            groups.append([kind])
    seen: dict[str, int] = {}
    rows = [
        f"| {_quote(source)} | {'<br>'.join(_describe(each, seen) for each in all_of_it)} |"
        for source, all_of_it in by_source.items()
    ]
    return "\n".join(["", "| source | types |", "|---|---|", *rows]) + "\n"


def _quote(sources: str) -> str:
    return ", ".join(f"`{source}`" for source in sources.split(", "))


def _describe(kinds: Sequence[EventType], seen: dict[str, int]) -> str:
    """Return a line for types with the same values; values that a type before has are named by its number."""
    first = kinds[0]
    label = _format_label(first, "n") if len(kinds) > 1 or first.family else _format_label(first)
    units = [first.unit] * bool(first.unit) + [f"x 10^{first.precision}"] * bool(first.precision)
    star = "\\*" if first.interval else ""
    unit = f" [{', '.join(units)}]" if units else ""
    text = f"{_format_number(kinds)}{star} {label}{unit}"
    values = _describe_values(first)
    if len(values.split()) > 3 and values in seen:
        values = f"as {seen[values]}"
    seen.setdefault(values, first.number)
    return text + re.sub(r"([|*])", r"\\\1", f": {values}" if values else "")


def _format_number(kinds: Sequence[EventType]) -> str:
    first, last = kinds[0].number, kinds[-1].number
    if kinds[0].family:
        return f"+{first}" if first not in _LANES else f"+{first} to +{first + _LANES[first] - 1}"
    return str(first) if first == last else f"{first} to {last}"


def _format_label(event_type: EventType, number: str = "") -> str:
    """Return the label of a type, with another text in place of a number at its end."""
    label = event_type.label.replace("NVTX D", "NVTX DOMAIN")
    return re.sub(r"\d+(?=\)?$)", number, label) if number else label


def _describe_values(event_type: EventType) -> str:
    if _has_many(event_type):
        return f"[values]({VALUES.name})"
    if event_type.values:
        return ", ".join(f"{value} {label}" for value, label in sorted(event_type.values.items()))
    return "names" if event_type.names else ""


if __name__ == "__main__":
    pages = ((PAGE, describe_types()), (VALUES, list_values()))
    sys.exit(max(write_or_check(page, text, sys.argv[1:], __doc__) for page, text in pages))
