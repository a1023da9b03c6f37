"""Writes Paraver's two hierarchies of a trace, application and resources, into the .prv's header and the .row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

import numpy as np

from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.paraver.encode import RowNumbers
from nsys2prv_ng.text.names import to_one_line
from nsys2prv_ng.value_class import ValueClass

MAX_ROWS = 65534
"""Each row has its own CPU, and Paraver crashes at 65,535 CPUs."""

LONGEST_TRACE_NS = 2**53
"""Paraver keeps times as doubles, which are exact up to this value: 104 days."""


class TaskRows(ValueClass):
    """A task: its name, the index of its node, and the names of its threads."""

    name: str
    node: int
    threads: list[str]


class Communicator(ValueClass):
    """A communicator in the header: its id and the numbers (from 1) of its tasks."""

    number: int
    tasks: tuple[int, ...]


class TraceModel(ValueClass):
    """Nodes and tasks of the only application of a trace. Rows are numbered task by task.

    Each row has its own CPU, node by node in the order of rows. On a CPU, Paraver shows only the last row with a
    record there, so two streams on one CPU would hide each other.
    """

    nodes: list[str]
    tasks: list[TaskRows]

    def __post_init__(self) -> None:
        if self.row_count > MAX_ROWS:
            raise TranslationError(
                f"the trace would have {self.row_count} rows and Paraver takes {MAX_ROWS}:"
                " translate fewer reports at once, or select fewer sources",
                see=("sources",),
            )

    @property
    def row_count(self) -> int:
        return sum(len(task.threads) for task in self.tasks)

    def count_cpus(self) -> list[int]:
        """Count the CPUs, which are the rows, of each node."""
        cpus = [0] * len(self.nodes)
        for task in self.tasks:
            cpus[task.node] += len(task.threads)
        return cpus

    def number_rows(self) -> RowNumbers:
        """Return the CPU, task and thread (from 1) of each row."""
        next_cpu = np.concatenate([[1], 1 + np.cumsum(self.count_cpus())])
        cpu, task_number, thread = [], [], []
        for number, task in enumerate(self.tasks, 1):
            count = len(task.threads)
            cpu.append(np.arange(next_cpu[task.node], next_cpu[task.node] + count))
            next_cpu[task.node] += count
            task_number.append(np.full(count, number))
            thread.append(np.arange(1, count + 1))
        return RowNumbers(*(np.concatenate(part).astype(np.int64) for part in (cpu, task_number, thread)))


def format_prv_header(
    model: TraceModel, start_utc_ns: int, duration: int, communicators: Sequence[Communicator] = ()
) -> str:
    """Return the first lines of the .prv: date (UTC of time 0), duration (ns), nodes, CPUs, tasks, communicators."""
    date = datetime.fromtimestamp(start_utc_ns // 10**9, timezone.utc).strftime("%d/%m/%Y at %H:%M")
    cpus = ",".join(map(str, model.count_cpus()))
    tasks = ",".join(f"{len(task.threads)}:{task.node + 1}" for task in model.tasks)
    count = f",{len(communicators)}" if communicators else ""
    lines = [
        f"#Paraver ({date}):{duration}_ns:{len(model.nodes)}({cpus}):1:{len(model.tasks)}({tasks}){count}",
        *(f"c:1:{c.number}:{len(c.tasks)}:{':'.join(map(str, c.tasks))}" for c in communicators),
    ]
    return "\n".join(lines) + "\n"


def format_row(model: TraceModel, application: str) -> str:
    """Return the whole .row: for each level a section with the name of every object."""
    rows = [(task.node, _format_object_name(thread)) for task in model.tasks for thread in task.threads]
    threads_of_node: list[list[str]] = [[] for _ in model.nodes]
    for node, thread in rows:
        threads_of_node[node].append(thread)
    names = list(map(_format_object_name, [application, *(task.name for task in model.tasks)]))
    levels = {
        "WORKLOAD": names[:1],
        "APPL": names[:1],
        "TASK": names[1:],
        "THREAD": [thread for _, thread in rows],
        "SYSTEM": ["system"],
        "NODE": list(map(_format_object_name, model.nodes)),
        "CPU": [f"{n}.{cpu} {thread}" for n, on in enumerate(threads_of_node, 1) for cpu, thread in enumerate(on, 1)],
    }
    sections = ((f"LEVEL {level} SIZE {len(names)}", *names, "") for level, names in levels.items())
    return "\n".join(line for section in sections for line in section)


def _format_object_name(name: str) -> str:
    """Return a line of the .row that Paraver does not mistake for the start of a level."""
    line = to_one_line(name)
    return f"'{line}'" if line.startswith("LEVEL ") else line
