"""The lines that a cut adds at the limits of its window: for open intervals, and for values in force.

At the start, each line with open intervals appears again, with its pairs that are still in force. Lines keep
the order of the trace, so that the outer interval opens first. At the end, each gets a line that closes it, the inner
one first. There are only as many of these lines as are open at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.cutting.line_fields import Rows
from nsys2prv_ng.cutting.lines import Levels
from nsys2prv_ng.cutting.open_lines import OpenLine
from nsys2prv_ng.cutting.type_roles import ACTIVITY, ACTIVITY_COLUMNS, MEMORY, TypeRoles
from nsys2prv_ng.intervals.device_sweep import IDLE
from nsys2prv_ng.paraver.event_types import GPU_IDLE_STRETCH
from nsys2prv_ng.paraver.read.label_files import COUNTER_TYPES

_SWEPT = 3
"""Number of the first columns of `ACTIVITY`, which change on one line."""


class LimitLines:
    """Writer of lines at a limit."""

    def __init__(self, roles: TypeRoles, rows: Rows) -> None:
        self._roles = roles
        self._rows = rows

    def open(self, lines: Iterable[OpenLine], time: int) -> Iterator[bytes]:
        """Yield lines that open again what is open, at `time` as it is written."""
        for line in lines:
            fields = line.text.split(b":")
            # A line is in force while one of these types is open. Values of counters belong to the time before them.
            keys = self._roles.intervals if line.open_types & self._roles.intervals else self._roles.quantities
            pairs = [
                (number, value)
                for number, value in zip(fields[6::2], fields[7::2], strict=False)
                if int(number) not in COUNTER_TYPES and (int(number) not in keys or int(number) in line.open_types)
            ]
            yield self._format(map(int, fields[1:5]), time, pairs)

    def close(self, lines: Sequence[OpenLine], time: int) -> Iterator[bytes]:
        """Yield lines that close what is open, starting with what opened last."""
        for line in reversed(lines):
            fields = line.text.split(b":")
            numbers = dict.fromkeys(fields[6::2])
            ends = [n for n in numbers if int(n) in line.open_types or int(n) in self._roles.quantities]
            yield self._format(map(int, fields[1:5]), time, [(number, b"0") for number in ends])

    def repeat(self, levels: Levels, time: int) -> Iterator[bytes]:
        """Yield lines with the values in force."""
        for row in self._list_rows(levels):
            known = np.flatnonzero(levels.is_known[row]).tolist()
            value_of_column = {column: int(levels.value[row, column]) for column in known}
            in_force = [column for column in known if value_of_column[column]]
            groups = [[column] for column in known if self._roles.levels[column] in MEMORY]
            groups.append([column for column in in_force if column < _SWEPT])
            groups.append([column for column in in_force if _SWEPT <= column < ACTIVITY_COLUMNS])
            groups.append([c for c in in_force if c >= ACTIVITY_COLUMNS and self._roles.levels[c] not in MEMORY])
            for group in filter(None, groups):
                pairs = [(self._roles.levels[column], value_of_column[column]) for column in group]
                yield self._format(self._find_object(levels, row), time, pairs)

    def end_activity(self, levels: Levels, low: int, high: int, time: int) -> Iterator[bytes]:
        """Yield lines that end the activity of GPUs, with the length of an idle stretch that lasts until `high`."""
        for row in self._list_rows(levels):
            values = levels.value[row, :ACTIVITY_COLUMNS]
            ends = [(ACTIVITY[column], 0) for column in np.flatnonzero(values).tolist()]
            swept = [pair for pair in ends if pair[0] in ACTIVITY[:_SWEPT]]
            stretch = high - max(int(levels.idle_since[row]), low)
            if values[0] == IDLE and stretch > 0:
                swept.insert(0, (GPU_IDLE_STRETCH.number, stretch))
            for pairs in filter(None, (swept, [pair for pair in ends if pair[0] in ACTIVITY[_SWEPT:]])):
                yield self._format(self._find_object(levels, row), time, pairs)

    def _list_rows(self, levels: Levels) -> list[int]:
        rows: list[int] = np.flatnonzero(levels.has_any & self._rows.is_kept).tolist()
        return rows

    def _find_object(self, levels: Levels, row: int) -> tuple[int, int, int, int]:
        """Return the CPU, application, task and thread (from 1) of a row."""
        task = _find_index(self._rows.first_row, row)
        application = _find_index(self._rows.first_task, task)
        first_task, first_row = int(self._rows.first_task[application]), int(self._rows.first_row[task])
        return int(levels.cpu[row]), application + 1, task - first_task + 1, row - first_row + 1

    def _format(self, place: Iterable[int], time: int, pairs: Iterable[tuple[bytes | int, bytes | int]]) -> bytes:
        cpu, application, task, thread = place
        rows = self._rows
        if rows.renumbers:
            task = int(rows.task[rows.first_task[application - 1] + task - 1]) + 1
            application = int(rows.application[application - 1]) + 1
            cpu = int(rows.cpu[cpu])
        numbers = [number.decode() if isinstance(number, bytes) else str(number) for pair in pairs for number in pair]
        return ":".join(["2", *map(str, (cpu, application, task, thread, time)), *numbers]).encode() + b"\n"


def _find_index(first: IntArray, at: int) -> int:
    """Return the last index whose first is not after `at`."""
    return int(np.searchsorted(first, at, "right")) - 1
