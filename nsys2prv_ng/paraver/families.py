"""Event types without a fixed number: metrics of GPUs and nodes, and the types of NVTX domains.

A family gives its types their numbers once all reports are known, so that the numbers depend neither on the order of
reports nor on that of events.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.text.names import to_one_line

# ---- GPU metrics: 9400 + nsys's id of the metric ---------------------------------------------------------------------
GPU_METRICS = "gpu_metrics"
"""Name of the family, and of its source."""
GPU_METRIC_FIRST = 9400
GPU_METRIC_IDS = 100
GPU_METRIC_OTHERS = 9000000
GPU_METRIC_OTHERS_COUNT = 100000


def make_gpu_metric(name: str, metric_id: int) -> EventType:
    """Return the type of a metric, by nsys's name, which ends in the unit. MHz are held as Hz: Paraver shows MHz."""
    label, unit = split_name_and_unit(name)
    precision = 6 if unit == "MHz" else 0
    return EventType(metric_id, label, GPU_METRICS, unit=unit, precision=precision, family=GPU_METRICS, member=name)


def split_name_and_unit(name: str) -> tuple[str, str]:
    """Split a metric's name into the name and the unit, which stands at the end in brackets."""
    stem, bracket, unit = name.rpartition(" [")
    return (stem, unit[:-1]) if stem and bracket and unit.endswith("]") else (name, "")


def _number_gpu_metrics(types: Iterable[EventType], known: Mapping[str, int]) -> dict[EventType, int]:
    """Number GPU metrics. A type's `number` is nsys's id of the metric, which differs between kinds of GPU.

    A known metric keeps its number. Another gets 9400 + the lowest of its ids below 100 that no other metric has;
    without one, a number of its own from 9000000, which depends on its name.
    """
    return _assign_by_id(
        list(types),
        known,
        range(GPU_METRIC_FIRST, GPU_METRIC_FIRST + GPU_METRIC_IDS),
        range(GPU_METRIC_OTHERS, GPU_METRIC_OTHERS + GPU_METRIC_OTHERS_COUNT),
    )


def _assign_by_id(
    types: Sequence[EventType], known: Mapping[str, int], by_id: range, by_name: range
) -> dict[EventType, int]:
    """Number types with an id as `number`, on which reports may disagree; -1 stands for no id.

    A known type keeps its number, if the number can be its own: titles do not distinguish all types. Another type gets
    the number in `by_id` of its lowest id that no other member has; without one, a number of its own in `by_name`.
    Raises TranslationError if `by_name` is full.
    """
    ids: dict[str, set[int]] = {}
    for event_type in types:
        ids.setdefault(event_type.member, set()).add(event_type.number)
    claims = Counter(number for own_ids in ids.values() for number in own_ids)

    def can_be(member: str, number: int) -> bool:
        """Return whether a member can have this number.

        That is so in the range for ids if the member has an id; in the range for names at the number of its name, or
        behind it by at most the number of types that can have taken the numbers between.
        """
        if number in by_id:
            return max(ids[member]) >= 0
        return number in by_name and (number - by_name[_hash_name(member, by_name)]) % len(by_name) <= len(known)

    numbers: dict[str, int] = {}
    kept: set[int] = set()
    for event_type in sorted(types, key=lambda event_type: event_type.member):
        number = known.get(event_type.title)
        if number is not None and number not in kept and can_be(event_type.member, number):
            numbers[event_type.member] = number
            kept.add(number)
    taken = kept.union(known.values())
    for name in sorted(set(ids) - set(numbers)):
        own = [i for i in sorted(ids[name]) if 0 <= i < len(by_id) and by_id[i] not in taken and claims[i] == 1]
        numbers[name] = by_id[own[0]] if own else _find_free_number(_hash_name(name, by_name), by_name, taken)
        taken.add(numbers[name])
    return {event_type: numbers[event_type.member] for event_type in types}


def _hash_name(name: str, numbers: range) -> int:
    """Return the offset of a name's number in a range, which is used unless another name has it."""
    return zlib.crc32(name.encode("utf-8", "replace")) % len(numbers)


def _find_free_number(offset: int, numbers: range, taken: Collection[int]) -> int:
    """Return the first number from an offset on that is not taken."""
    for i in range(len(numbers)):
        number = numbers[(offset + i) % len(numbers)]
        if number not in taken:
            return number
    raise TranslationError(f"more than {len(numbers):,} metrics have no number of their own: choose fewer sources")


# ---- metrics of a node: raw counters of CPUs have nsys2prv's numbers, others depend on what they are alone -----------
NODE_METRICS = "node_metrics"
"""Name of the family."""
CPU_COUNTER_FIRST = 66600000
CPU_COUNTER_IDS = 100000
NODE_METRIC_FIRST = 9300000
NODE_METRIC_COUNT = 600000
REAL_PRECISION = 6
"""The trace holds real values times 10^6."""


def make_node_metric(source: str, name: str, unit: str = "", *, counter_id: int = -1, real: bool = False) -> EventType:
    """Return the type of a metric of a node's part, by nsys's name and unit; `counter_id` of a raw counter of CPUs."""
    name, unit = to_one_line(name), to_one_line(unit) if unit.strip() else ""
    return EventType(
        counter_id,
        name,
        source,
        unit=unit,
        precision=REAL_PRECISION if real else 0,
        family=NODE_METRICS,
        member="\t".join((source, name, unit, "real" if real else "")),
    )


def _number_node_metrics(types: Iterable[EventType], known: Mapping[str, int]) -> dict[EventType, int]:
    """Number metrics of nodes. A type's `number` is the id of a raw counter, or -1."""
    return _assign_by_id(
        list(types),
        known,
        range(CPU_COUNTER_FIRST, CPU_COUNTER_FIRST + CPU_COUNTER_IDS),
        range(NODE_METRIC_FIRST, NODE_METRIC_FIRST + NODE_METRIC_COUNT),
    )


# ---- NVTX: a block of 100 numbers for each domain -------------------------------------------------------------------
NVTX = "nvtx"
"""Name of the family, and of its source."""
NVTX_BLOCK = 100
NVTX_DEFAULT = 9600
NVTX_NCCL = 9500
NVTX_FIRST_NAMED = 9700
NCCL_DOMAIN = "NCCL"
NVTX_RESERVED = {"": NVTX_DEFAULT, NCCL_DOMAIN: NVTX_NCCL, "neSmiK": 81000}
NVTX_LANES = 40
NVTX_GPU_LANES = 16
_PUSH_POP = 0
_FIRST_LANE = 60


def format_nvtx_label(domain: str) -> str:
    """Return the label of a domain's ranges; the default domain has an empty name."""
    return f"NVTX {domain}" if domain else "NVTX"


def _make_nvtx_type(domain: str, offset: int, kind: str, source: str = NVTX, **properties: Any) -> EventType:
    label = f"{format_nvtx_label(domain)} {kind}".strip()
    return EventType(offset, label, source, family=NVTX, member=domain, **properties)


def make_nvtx_range(domain: str) -> EventType:
    """Return the type of push/pop ranges, which nest as in the program."""
    return _make_nvtx_type(domain, _PUSH_POP, "range", interval=True, names=f"nvtx {domain}")


def make_nvtx_lane(domain: str, lane: int) -> EventType:
    """Return the type of start/end ranges of a lane (0 .. NVTX_LANES - 1).

    Such ranges need not nest; those of one lane do not overlap.
    """
    return _make_nvtx_type(
        domain, _FIRST_LANE + lane, f"start/end range, lane {lane + 1}", interval=True, names=f"nvtx {domain}"
    )


def is_push_pop(event_type: EventType) -> bool:
    """Return whether a type is that of a domain's push/pop ranges."""
    return event_type.family == NVTX and event_type.number == _PUSH_POP


def is_start_end(event_type: EventType) -> bool:
    """Return whether a type is that of a lane of a domain's start/end ranges."""
    return event_type.family == NVTX and 0 <= event_type.number - _FIRST_LANE < NVTX_LANES


def make_nvtx_mark(domain: str) -> EventType:
    """Return the type of marks."""
    return _make_nvtx_type(domain, 50, "mark", names=f"nvtx {domain}")


def make_nvtx_category(domain: str) -> EventType:
    """Return the type of the category of a range or mark."""
    return _make_nvtx_type(domain, 51, "category", names=f"nvtx category {domain}")


def make_nvtx_number(domain: str) -> EventType:
    """Return the type of the number that was cut from a text: op_id, seq, or a final integer."""
    return _make_nvtx_type(domain, 52, "number")


def make_nvtx_end_thread(domain: str) -> EventType:
    """Return the type of the system's id of the thread that ended a start/end range which another thread started."""
    return _make_nvtx_type(domain, 53, "ended by thread")


def make_nvtx_payload(domain: str) -> EventType:
    """Return the type of integer payloads of ranges and marks."""
    return _make_nvtx_type(domain, 54, "payload")


def make_nvtx_real_payload(domain: str) -> EventType:
    """Return the type of floating point payloads."""
    return _make_nvtx_type(domain, 55, "payload (real)", precision=6)


def make_nvtx_json_payload(domain: str) -> EventType:
    """Return the type of extended payloads, as their JSON text."""
    return _make_nvtx_type(domain, 56, "payload (JSON)", names=f"nvtx payload {domain}")


def make_nvtx_on_gpu(domain: str, lane: int) -> EventType:
    """Return the type of ranges on the streams that they launched work on, from the first operation to the last.

    Push/pop ranges of one host thread nest. Ranges of another thread, start/end ranges, and ranges that overlap on the
    device without nesting are on other lanes.
    """
    return _make_nvtx_type(
        domain, 20 + lane, f"range on GPU, lane {lane + 1}", interval=True, names=f"nvtx {domain}", source="nvtx_on_gpu"
    )


def assign_nvtx_bases(domains: Iterable[str], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the first number of each domain's block. The same set of domain names gives the same numbers.

    The default domain, NCCL and neSmiK keep nsys2prv's numbers, and `known` domains their own; the others follow from
    9700 in name order and step over numbers that are taken.
    """
    bases = {**(known or {}), **NVTX_RESERVED}
    taken = set(bases.values())
    number = NVTX_FIRST_NAMED
    wanted = sorted(set(domains))
    for domain in wanted:
        if domain not in bases:
            while number in taken:
                number += NVTX_BLOCK
            bases[domain] = number
            taken.add(number)
    return {domain: bases[domain] for domain in wanted}


def _number_nvtx(types: Iterable[EventType], known: Mapping[str, int]) -> dict[EventType, int]:
    """Number NVTX types. A type's `number` is its offset in its domain's block."""
    types = list(types)
    known_bases = {
        event_type.member: known[event_type.title] - event_type.number
        for event_type in types
        if event_type.title in known
    }
    bases = assign_nvtx_bases((event_type.member for event_type in types), known_bases)
    return {event_type: bases[event_type.member] + event_type.number for event_type in types}


FAMILIES: dict[str, Callable[[Iterable[EventType], Mapping[str, int]], dict[EventType, int]]] = {
    NVTX: _number_nvtx,
    GPU_METRICS: _number_gpu_metrics,
    NODE_METRICS: _number_node_metrics,
}
"""Functions that number the types of a family: of all types that any report has, and the numbers to keep by title."""
