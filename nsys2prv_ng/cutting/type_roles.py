"""Finds the roles of event types from their numbers and labels: whether they open and close, or keep a value.

Records have classes (`records.columns`), but lines of text have none: roles distinguish a line that opens from a line
that closes. They are right for traces of this package, and for other traces whose types label the value 0, as Extrae's
do. Other types count as points, which change nothing after them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.read.label_files import ParaverConfig
from nsys2prv_ng.runtime.jit import inlined

NO_ROLE, INTERVAL, QUANTITY, IDLE_STRETCH = 0, -1, -2, -3
"""Roles of types; the columns of levels, from 1, are roles as well. An interval is open from a value to its 0. A
quantity on the same line ends with the interval; on a line without an interval, it opens and closes like one. The
length of an idle stretch is given at its end."""

ACTIVITY = tuple(
    event_type.number
    for event_type in (
        types.GPU_ACTIVITY,
        types.KERNELS_RUNNING,
        types.KERNELS_IN_FLIGHT,
        types.GPU_ACTIVITY_WITH_WAITS,
    )
)
"""Levels in the first columns: the activity of a GPU as a whole, which is unknown after the end of a trace."""
ACTIVITY_COLUMNS = len(ACTIVITY)
MEMORY = tuple(event_type.number for event_type in types.MEMORY_LEVELS)
QUANTITIES = frozenset(
    event_type.number
    for event_type in (
        types.MEMORY_BYTES,
        types.OPENACC_BYTES,
        types.MPI_SENT_BYTES,
        types.MPI_RECEIVED_BYTES,
        types.MPI_BYTES,
        types.MPI_SENDRECV_BYTES,
        types.NCCL_BYTES,
        types.NCCL_SEND_BYTES,
        types.NCCL_RECEIVE_BYTES,
        types.LATENESS,
    )
)
"""Types that the end of an interval sets to 0 beside its own type."""
_METRICS = (
    families.GPU_METRIC_NUMBERS,
    families.OTHER_GPU_METRIC_NUMBERS,
    families.CPU_COUNTER_NUMBERS,
    families.OTHER_NODE_METRIC_NUMBERS,
)


class RoleTable(NamedTuple):
    """An open hash table of the roles of types, at most half full."""

    keys: IntArray
    roles: IntArray


@dataclass(frozen=True)
class TypeRoles:
    """The roles of the types of a trace: a table of them, and the types of the columns of levels."""

    table: RoleTable
    levels: list[int]
    intervals: frozenset[int]
    quantities: frozenset[int]


def find_roles(config: ParaverConfig) -> TypeRoles:
    """Return the roles of the types that a .pcf declares."""
    intervals = frozenset(
        number
        for number, declared in config.types.items()
        if number > 0 and declared.is_interval and number not in ACTIVITY
    )
    quantities = QUANTITIES - intervals
    levels = [*ACTIVITY, *(number for number in sorted(config.types) if _is_level(number, intervals))]
    roles = dict.fromkeys(quantities, QUANTITY) | {types.GPU_IDLE_STRETCH.number: IDLE_STRETCH}
    roles |= {number: column for column, number in enumerate(levels, 1)} | dict.fromkeys(intervals, INTERVAL)
    return TypeRoles(_make_table(roles), levels, intervals, quantities)


def _is_level(number: int, intervals: Collection[int]) -> bool:
    return number not in intervals and (number in MEMORY or any(number in metrics for metrics in _METRICS))


_FREE = -1
_HIGHEST = 2**31 - 1
"""The .pcf cannot declare higher types."""
_FACTOR = 0x9E3779B1


def _make_table(roles: dict[int, int]) -> RoleTable:
    keys = np.full(1 << (2 * len(roles) + 1).bit_length(), _FREE, np.int64)
    values = np.zeros(keys.size, np.int64)
    for number, role in roles.items():
        slot = (number * _FACTOR >> 16) & (keys.size - 1)
        while keys[slot] != _FREE:
            slot = (slot + 1) & (keys.size - 1)
        keys[slot], values[slot] = number, role
    return RoleTable(keys, values)


@inlined
def look_up_role(table: RoleTable, number: int) -> int:
    """Return the role of a type in compiled code."""
    if number <= 0 or number > _HIGHEST:
        return NO_ROLE
    keys = table.keys
    slot = np.uint64((number * _FACTOR >> 16) & (keys.size - 1))  # unsigned: no test for negative positions
    key = keys[slot]
    while key != number and key != _FREE:
        slot = (slot + np.uint64(1)) & np.uint64(keys.size - 1)
        key = keys[slot]
    return NO_ROLE if key == _FREE else table.roles[slot]
