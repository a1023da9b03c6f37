"""Every event type that a trace can hold: number, label, unit, precision, values, and the source that writes it.

The .pcf and the documentation's table are made from this module. Numbers that cfgs of nsys2prv and BSC's BasicAnalysis
rely on are theirs (63000000 ...); the rest live in free ranges beside them. A number is fixed here, or given by a
family (the domains of NVTX) once all reports are known, so that it depends on the order of neither reports nor events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EventType:
    """One event type of Paraver.

    `values`: labels of fixed values. `names`: a name space whose names get dense ids from 1 (types that share a name
    space share the ids). `interval`: a non-zero value opens and 0 closes; otherwise the event is a point or a quantity.
    `precision`: the trace holds value * 10**precision. Identity is (number, family, member) alone.
    """

    number: int
    label: str = field(compare=False)
    source: str = field(compare=False)
    unit: str = field(default="", compare=False)
    precision: int = field(default=0, compare=False)
    interval: bool = field(default=False, compare=False)
    values: Mapping[int, str] | None = field(default=None, compare=False)
    names: str = field(default="", compare=False)
    family: str = ""
    member: str = ""


# ---- CUDA API -------------------------------------------------------------------------------------------------------
CUDA_API = EventType(63000000, "CUDA API call", "cuda_api", interval=True, names="cuda_api")

# ---- device operations ----------------------------------------------------------------------------------------------
# 3-6 are the values that BasicAnalysis reads; the other kinds follow in the order of CUPTI's own numbers.
MEMORY_OPERATIONS = {
    3: "Memcpy device to device",
    4: "Memcpy device to host",
    5: "Memcpy host to device",
    6: "Memset",
    7: "Memcpy host to array",
    8: "Memcpy array to host",
    9: "Memcpy array to array",
    10: "Memcpy array to device",
    11: "Memcpy device to array",
    12: "Memcpy host to host",
    13: "Memcpy peer to peer",
    14: "Migration host to device",
    15: "Migration device to host",
    16: "Migration device to device",
    17: "Memcpy of unknown kind",
}
# CUPTI's memory kinds plus one, so that 0 stays free: in Paraver 0 reads as "nothing".
MEMORY_KINDS = {
    1: "Pageable",
    2: "Pinned",
    3: "Device",
    4: "Array",
    5: "Managed",
    6: "Device static",
    7: "Managed static",
    8: "Unknown",
}
MEMORY_OPERATION = EventType(63000001, "Memory operation", "memory_operations", interval=True, values=MEMORY_OPERATIONS)
MEMORY_BYTES = EventType(63000002, "Memory operation size", "memory_operations", unit="bytes")
MEMORY_SOURCE_KIND = EventType(63000210, "Copied from memory kind", "memory_operations", values=MEMORY_KINDS)
MEMORY_DESTINATION_KIND = EventType(63000211, "Copied to memory kind", "memory_operations", values=MEMORY_KINDS)

KERNEL = EventType(63000006, "CUDA kernel", "kernels", interval=True, names="kernels")
NCCL_KERNEL = EventType(63000007, "NCCL kernel", "kernels", interval=True, names="nccl_kernels")
KERNEL_CLASS = EventType(63000200, "Kernel class", "kernels", interval=True, names="kernel_classes")
GRID = tuple(EventType(9101 + i, f"Grid {axis}", "kernels", unit="blocks") for i, axis in enumerate("XYZ"))
BLOCK = tuple(EventType(9104 + i, f"Block {axis}", "kernels", unit="threads") for i, axis in enumerate("XYZ"))
STATIC_SHARED_MEMORY = EventType(9107, "Static shared memory", "kernels", unit="bytes per block")
DYNAMIC_SHARED_MEMORY = EventType(9108, "Dynamic shared memory", "kernels", unit="bytes per block")
LOCAL_MEMORY = EventType(9109, "Local memory", "kernels", unit="bytes per thread")
REGISTERS = EventType(9110, "Registers", "kernels", unit="per thread")
CORRELATION = EventType(9200, "Correlation id", "kernels")

# ---- the capture, where nothing else is in the trace -----------------------------------------------------------------
CAPTURE = EventType(63000300, "nsys capture", "capture", interval=True, values={1: "Capturing"})

# ---- NVTX: a block of 100 numbers for each domain -------------------------------------------------------------------
NVTX_BLOCK = 100
NVTX_DEFAULT = 9600
NVTX_NCCL = 9500
NVTX_FIRST_NAMED = 9700
NVTX_RESERVED = {"": NVTX_DEFAULT, "NCCL": NVTX_NCCL, "neSmiK": 81000}
NVTX_LANES = 40


def nvtx_label(domain: str) -> str:
    """Label of a domain's ranges; the default domain has an empty name."""
    return f"NVTX {domain}" if domain else "NVTX"


def _nvtx(domain: str, offset: int, what: str, **properties: object) -> EventType:
    label = f"{nvtx_label(domain)} {what}".strip()
    return EventType(offset, label, "nvtx", family="nvtx", member=domain, **properties)  # type: ignore[arg-type]


def nvtx_range(domain: str) -> EventType:
    """Push/pop ranges, nested as in the program."""
    return _nvtx(domain, 0, "range", interval=True, names=f"nvtx {domain}")


def nvtx_lane(domain: str, lane: int) -> EventType:
    """Start/end ranges, which need not nest: `lane` of 0 .. NVTX_LANES - 1 holds ranges that do not overlap."""
    return _nvtx(domain, 60 + lane, f"start/end range, lane {lane + 1}", interval=True, names=f"nvtx {domain}")


def nvtx_mark(domain: str) -> EventType:
    return _nvtx(domain, 50, "mark", names=f"nvtx {domain}")


def nvtx_category(domain: str) -> EventType:
    return _nvtx(domain, 51, "category", names=f"nvtx category {domain}")


def nvtx_number(domain: str) -> EventType:
    """The number that was cut from a text: op_id, seq, or a final integer."""
    return _nvtx(domain, 52, "number")


def nvtx_end_thread(domain: str) -> EventType:
    """Operating system id of the thread that ended a start/end range, where it is not the one that started it."""
    return _nvtx(domain, 53, "ended by thread")


def nvtx_bases(domains: Iterable[str]) -> dict[str, int]:
    """First number of each domain's block. The same set of domain names gives the same numbers.

    The default domain, NCCL and neSmiK keep nsys2prv's numbers; the others follow from 9700 in name order and step over
    what is reserved.
    """
    bases = {}
    number = NVTX_FIRST_NAMED
    for domain in sorted(set(domains)):
        if domain in NVTX_RESERVED:
            bases[domain] = NVTX_RESERVED[domain]
            continue
        while number in NVTX_RESERVED.values():
            number += NVTX_BLOCK
        bases[domain] = number
        number += NVTX_BLOCK
    return bases


def _nvtx_numbers(types: Iterable[EventType]) -> dict[EventType, int]:
    """A type's `number` is its offset in its domain's block."""
    types = list(types)
    bases = nvtx_bases(event_type.member for event_type in types)
    return {event_type: bases[event_type.member] + event_type.number for event_type in types}


FAMILIES: dict[str, Callable[[Iterable[EventType]], dict[EventType, int]]] = {"nvtx": _nvtx_numbers}
"""Numbers of the types of each family, given all of them that any report has."""

# ---- communications (tags of record kind 3) --------------------------------------------------------------------------
TAG_LAUNCH = 55001
TAG_COPY = 55002

# ---- states: Extrae's numbers and colours ------------------------------------------------------------------------
IDLE = 0
RUNNING = 1
SYNCHRONIZATION = 5
GROUP_COMMUNICATION = 13
MEMORY_TRANSFER = 17
STATES: dict[int, tuple[str, tuple[int, int, int]]] = {
    IDLE: ("Idle", (117, 195, 255)),
    RUNNING: ("Running", (0, 0, 255)),
    3: ("Waiting a message", (255, 0, 0)),
    4: ("Blocking Send", (255, 0, 174)),
    SYNCHRONIZATION: ("Synchronization", (179, 0, 0)),
    8: ("Wait/WaitAll", (231, 14, 230)),
    9: ("Blocked", (235, 231, 205)),
    12: ("I/O", (255, 239, 89)),
    GROUP_COMMUNICATION: ("Group Communication", (255, 144, 26)),
    MEMORY_TRANSFER: ("Memory transfer", (255, 0, 96)),
    18: ("Profiling", (172, 174, 41)),
    25: ("One-sided op", (2, 255, 177)),
}
