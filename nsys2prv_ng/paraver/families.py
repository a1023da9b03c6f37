"""Makes event types without a fixed number: metrics of GPUs and nodes, and the types of NVTX domains.

A family numbers its types once all reports are known. So the numbers depend neither on the order of reports nor on the
order of events.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain, count
from typing import Any

from nsys2prv_ng import source_names
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.event_type import EventType
from nsys2prv_ng.text.names import to_one_line

# ---- GPU metrics: 9400 + nsys's id of the metric ---------------------------------------------------------------------
GPU_METRICS = source_names.GPU_METRICS
"""Name of the family, and of its source."""
GPU_METRIC_NUMBERS = range(9400, 9500)
OTHER_GPU_METRIC_NUMBERS = range(9000000, 9100000)
"""Numbers that depend on the name, for metrics without an id below 100 that no other metric has."""


def make_gpu_metric(name: str, metric_id: int) -> EventType:
    """Return the type of a metric by nsys's name, which ends in the unit. MHz are stored as Hz; Paraver shows MHz."""
    label, unit = split_name_and_unit(name)
    precision = 6 if unit == "MHz" else 0
    return EventType(metric_id, label, GPU_METRICS, unit=unit, precision=precision, family=GPU_METRICS, member=name)


def split_name_and_unit(name: str) -> tuple[str, str]:
    """Split a metric's name into the name and the unit, which is at the end in brackets."""
    stem, bracket, unit = name.rpartition(" [")
    return (stem, unit[:-1]) if stem and bracket and unit.endswith("]") else (name, "")


def _assign_by_id(
    types: Iterable[EventType], known: Mapping[str, int], *, by_id: range, by_name: range
) -> dict[EventType, int]:
    """Number types whose `number` is an id, on which reports may disagree; -1 stands for no id.

    A type in `known` keeps its number if the number can belong to it, because titles do not distinguish all types.
    Another type gets the number in `by_id` of its lowest id that no other member has. If there is none, it gets a
    number in `by_name`, which depends on its name. Raises TranslationError if `by_name` is full.
    """
    types = list(types)
    ids: dict[str, set[int]] = {}
    for event_type in types:
        ids.setdefault(event_type.member, set()).add(event_type.number)
    claims = Counter(number for member_ids in ids.values() for number in member_ids)

    def can_be(member: str, number: int) -> bool:
        """Return whether a member can have this number.

        In the range for ids it can if it has an id. In the range for names, the number must be the number of its name,
        or follow it by at most the number of types that can have taken the numbers between.
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
        usable = [i for i in sorted(ids[name]) if 0 <= i < len(by_id) and by_id[i] not in taken and claims[i] == 1]
        numbers[name] = by_id[usable[0]] if usable else _find_free_number(_hash_name(name, by_name), by_name, taken)
        taken.add(numbers[name])
    return {event_type: numbers[event_type.member] for event_type in types}


def _hash_name(name: str, numbers: range) -> int:
    """Return the offset in a range of the number of a name, which it gets unless another name has it."""
    return zlib.crc32(name.encode("utf-8", "replace")) % len(numbers)


def _find_free_number(offset: int, numbers: range, taken: Collection[int]) -> int:
    """Return the first free number, starting at an offset."""
    for number in chain(numbers[offset:], numbers[:offset]):
        if number not in taken:
            return number
    raise TranslationError(f"more than {len(numbers):,} metrics have no number of their own: choose fewer sources")


# Patterns of labels, of GPUs from Turing on, that say how busy a unit is. A quantity with several is the sum of these.
SMS_ACTIVE = ("SM* Active [*%]",)
SM_ISSUE = ("SM Issue* [*%]",)
TENSOR_ACTIVE = ("Tensor Active* [*%]",)
DRAM_READS = ("*RAM Read Bandwidth [*%]",)
DRAM_WRITES = ("*RAM Write Bandwidth [*%]",)
NVLINK_RECEIVED = ("NVLink RX Requests User Data [*%]", "NVLink RX Responses User Data [*%]")
NVLINK_TRANSMITTED = ("NVLink TX Requests User Data [*%]", "NVLink TX Responses User Data [*%]")
PCIE_RECEIVED = ("PCIe RX Throughput [*%]",)
PCIE_TRANSMITTED = ("PCIe TX Throughput [*%]",)

# ---- node metrics: raw CPU counters have nsys2prv's numbers, others depend on their identity alone -------------------
NODE_METRICS = "node_metrics"
"""Name of the family."""
CPU_COUNTER_FIRST = 66600000
CPU_COUNTER_IDS = 100000
NODE_METRIC_FIRST = 9300000
NODE_METRIC_COUNT = 600000
CPU_COUNTER_NUMBERS = range(CPU_COUNTER_FIRST, CPU_COUNTER_FIRST + CPU_COUNTER_IDS)
OTHER_NODE_METRIC_NUMBERS = range(NODE_METRIC_FIRST, NODE_METRIC_FIRST + NODE_METRIC_COUNT)
REAL_PRECISION = 6
"""The trace contains real values times 10^6."""


def make_node_metric(source: str, name: str, unit: str = "", *, counter_id: int = -1, real: bool = False) -> EventType:
    """Return the type of a metric of a node's part, by nsys's name and unit; `counter_id`: the id of a raw CPU
    counter."""
    name, unit = to_one_line(name), to_one_line(unit) if unit.strip() else ""
    precision, member = REAL_PRECISION if real else 0, "\t".join((source, name, unit, "real" if real else ""))
    return EventType(counter_id, name, source, unit=unit, precision=precision, family=NODE_METRICS, member=member)


# ---- NVTX: a block of 100 numbers for each domain -------------------------------------------------------------------
NVTX = source_names.NVTX
"""Name of the family, and of its source."""
NVTX_BLOCK = 100
NVTX_DEFAULT = 9600
NVTX_NCCL = 9500
NVTX_FIRST_NAMED = 9700
NVTX_GIL = 81100
NCCL_DOMAIN = "NCCL"
GIL_DOMAIN, GIL_WAIT = "GIL Trace", "Waiting for GIL"
"""What nsys calls the domain of `--trace=python-gil`, and its ranges in which a thread of Python waits for the lock."""
NVTX_RESERVED = {"": NVTX_DEFAULT, NCCL_DOMAIN: NVTX_NCCL, "neSmiK": 81000, GIL_DOMAIN: NVTX_GIL}
NVTX_LANES = 40
NVTX_GPU_LANES = 16
_PUSH_POP = 0
_FIRST_LANE = 60


def _make_nvtx_type(domain: str, offset: int, kind: str, source: str = NVTX, **properties: Any) -> EventType:
    label = " ".join(filter(None, ("NVTX", domain, kind)))  # the name of the default domain is empty
    return EventType(offset, label, source, family=NVTX, member=domain, **properties)


def make_nvtx_range(domain: str) -> EventType:
    """Return the type of push/pop ranges, which nest as in the program."""
    return _make_nvtx_type(domain, _PUSH_POP, "range", interval=True, names=f"nvtx {domain}")


def make_nvtx_lane(domain: str, lane: int) -> EventType:
    """Return the type of start/end ranges of a lane (0 .. NVTX_LANES - 1).

    Such ranges need not nest; the ranges of one lane do not overlap.
    """
    kind = f"start/end range, lane {lane + 1}"
    return _make_nvtx_type(domain, _FIRST_LANE + lane, kind, interval=True, names=f"nvtx {domain}")


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
    """Return the type of the number that was removed from a text: op_id, seq, or a final integer."""
    return _make_nvtx_type(domain, 52, "number")


def make_nvtx_end_thread(domain: str) -> EventType:
    """Return the type of the system id of the thread that ended a start/end range of another thread."""
    return _make_nvtx_type(domain, 53, "ended by thread")


def make_nvtx_payload(domain: str) -> EventType:
    """Return the type of integer payloads of ranges and marks."""
    return _make_nvtx_type(domain, 54, "payload")


def make_nvtx_real_payload(domain: str) -> EventType:
    """Return the type of floating-point payloads."""
    return _make_nvtx_type(domain, 55, "payload (real)", precision=6)


def make_nvtx_json_payload(domain: str) -> EventType:
    """Return the type of extended payloads, as their JSON text."""
    return _make_nvtx_type(domain, 56, "payload (JSON)", names=f"nvtx payload {domain}")


def make_nvtx_flops(domain: str) -> EventType:
    """Return the type of the floating-point operations of an operator of PyTorch, by the shapes in its text."""
    return _make_nvtx_type(domain, 57, "operator FLOPs", unit="FLOP")


def make_nvtx_on_gpu(domain: str, lane: int) -> EventType:
    """Return the type of ranges on the streams on which they launched work, from the first operation to the last.

    Push/pop ranges of one host thread nest. Other lanes have ranges of another thread, start/end ranges, and ranges
    that overlap on the device without nesting.
    """
    kind = f"range on GPU, lane {lane + 1}"
    return _make_nvtx_type(domain, 20 + lane, kind, source_names.NVTX_ON_GPU, interval=True, names=f"nvtx {domain}")


def assign_nvtx_bases(domains: Iterable[str], known: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the first number of each domain's block. The same set of domain names gives the same numbers.

    The default domain, NCCL and neSmiK keep nsys2prv's numbers, the GIL trace has its own, and `known` domains keep
    theirs. The others follow from 9700 in name order and skip numbers that are taken.
    """
    bases = {**(known or {}), **NVTX_RESERVED}
    taken = set(bases.values())
    free = (number for number in count(NVTX_FIRST_NAMED, NVTX_BLOCK) if number not in taken)
    return {domain: bases[domain] if domain in bases else next(free) for domain in sorted(set(domains))}


def _number_nvtx(types: Iterable[EventType], known: Mapping[str, int]) -> dict[EventType, int]:
    """Number NVTX types. A type's `number` is its offset in its domain's block."""
    types = list(types)
    known_bases = {t.member: known[t.title] - t.number for t in types if t.title in known}
    bases = assign_nvtx_bases((t.member for t in types), known_bases)
    return {t: bases[t.member] + t.number for t in types}


FAMILIES: dict[str, Callable[[Iterable[EventType], Mapping[str, int]], dict[EventType, int]]] = {
    NVTX: _number_nvtx,
    GPU_METRICS: partial(_assign_by_id, by_id=GPU_METRIC_NUMBERS, by_name=OTHER_GPU_METRIC_NUMBERS),
    NODE_METRICS: partial(_assign_by_id, by_id=CPU_COUNTER_NUMBERS, by_name=OTHER_NODE_METRIC_NUMBERS),
}
"""Functions that number the types of a family. Arguments: the types of all reports, and the numbers to keep by
title."""
