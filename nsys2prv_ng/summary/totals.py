"""Adds up the events of one report by name, and these small tables over all reports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.analysis.host_activity import load_outermost_calls, load_thread_ranges, map_main_threads
from nsys2prv_ng.arrays.groups import Table, drop_columns, join_tables, make_objects, sum_table
from nsys2prv_ng.arrays.row_keys import find_distinct_rows, find_rows
from nsys2prv_ng.arrays.types import BoolArray, IntArray, pick
from nsys2prv_ng.intervals.nesting import find_innermost
from nsys2prv_ng.intervals.step_functions import NOTHING
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.objects.places import Stream
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver import families
from nsys2prv_ng.paraver.value_tables import COMMUNICATION_CLASSES, name_memory_operation
from nsys2prv_ng.reading import opened_events
from nsys2prv_ng.reading.device_operations import load_launches, mark_communication
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.sources.cuda.kernel_classes import WHOLE_GRAPH
from nsys2prv_ng.sources.mpi.messages import RECEIVES, SENDS, get_role
from nsys2prv_ng.sources.nccl.calls import number_groups
from nsys2prv_ng.sources.nccl.kernels import FUNCTIONS, NO_FUNCTION, correct_functions, find_called, parse_function

OTHER_FUNCTION = "other"

_NONBLOCKING = re.compile(r"MPI_(I[a-z]|File_i|Rget|Rput)")
"""MPI calls that start an operation and return before anything has moved."""
Windows = Sequence[tuple[int, int]]

_AGGREGATES = {"min_ns": "min", "max_ns": "max", "depth": "min", "per_step": "max"}
"""How columns are added up whose values are not summed."""


def add_up(parts: Sequence[Table], keys: list[str]) -> Table:
    """Return tables, such as those of all reports, as one table with one row for each key, sorted by the keys."""
    return sum_table(join_tables(parts), keys, _AGGREGATES)


def _group(keys: dict[str, IntArray], length: IntArray, **sums: IntArray) -> Table:
    """Return count, shortest, longest and total time (ns), and more sums, of events that agree in the key columns."""
    one = np.ones(length.size, np.int64)
    columns = {**keys, "count": one, "min_ns": length, "max_ns": length, "total_ns": length, **sums}
    return sum_table(columns, list(keys), _AGGREGATES)


def _fill_absent(value: IntArray) -> IntArray:
    return np.where(value == opened_events.ABSENT, 0, value)


def _name_values(table: Table, column: str, names: dict[int, str]) -> Table:
    """Return a table with the names of a column's values in their place."""
    return {**table, column: make_objects(names.get(value, f"value {value}") for value in table[column].tolist())}


# ---- on GPUs ---------------------------------------------------------------------------------------------------------


def sum_kernels(
    report: ReportRecords,
    store: Store,
    counted: CountedEvents,
    **more_keys: Callable[[opened_events.OpenedEvents], IntArray],
) -> Table:
    """Return kernels, and graphs that were traced as a whole, by `name`, `kernel_class` and more keys.

    `more_keys`: functions that return a key of each event, by the name of their column.
    """
    kernels = opened_events.load_opened_events(report, source_names.KERNELS, store)
    graphs = opened_events.load_opened_events(report, source_names.CUDA_GRAPHS, store)
    parts = []
    for events, event_type in ((kernels, types.KERNEL), (kernels, types.NCCL_KERNEL), (graphs, types.GRAPH_LAUNCH)):
        values = {"name": events.get_values(event_type), "kernel_class": events.get_values(types.KERNEL_CLASS)}
        values |= {name: find_key(events) for name, find_key in more_keys.items()}
        lines = np.flatnonzero(
            (values["name"] != opened_events.ABSENT) & counted.mark_operations(events.place, events.begin)
        )
        table = _group({name: column[lines] for name, column in values.items()}, events.length[lines])
        table = _name_values(table, "name", events.get_names(event_type))
        parts.append(_name_values(table, "kernel_class", events.get_names(types.KERNEL_CLASS)))
    parts[-1]["kernel_class"] = make_objects([WHOLE_GRAPH] * parts[-1]["count"].size)
    return add_up(parts, ["name", "kernel_class", *more_keys])


def sum_launched(report: ReportRecords, store: Store, counted: CountedEvents) -> Table:
    """Return the kernels of a report that compute, by the innermost `range` that their thread was in at the launch.

    Threads outside of ranges count as in the range of the main thread. Kernels without a recorded launch, such as all
    but the first node of a CUDA graph on a stream, are in no range ("").
    """
    kernels = opened_events.load_opened_events(report, source_names.KERNELS, store)
    computes = (kernels.get_values(types.KERNEL_CLASS) != opened_events.ABSENT) & ~mark_communication(kernels)
    line = np.flatnonzero(computes & counted.mark_operations(kernels.place, kernels.begin))
    launches = load_launches(report, store)
    at = launches.find(kernels.place[line], kernels.begin[line])
    thread, sent = pick(launches.thread, at, opened_events.ABSENT), pick(launches.sent, at, 0)
    ranges = load_thread_ranges(report, np.unique(launches.thread), store)
    inside = np.full(line.size, NOTHING, np.int64)
    for number, steps in ranges.steps.items():
        of_thread = np.flatnonzero(thread == number)
        inside[of_thread] = steps.get_values(sent[of_thread])
    table = drop_columns(_group({"range": inside}, kernels.length[line]), "min_ns", "max_ns")
    return _name_values(table, "range", {NOTHING: "", **dict(enumerate(ranges.names))})


def sum_memory_operations(report: ReportRecords, store: Store, counted: CountedEvents, windows: Windows) -> Table:
    """Return copies and sets by `operation` and by kind of memory, `source` and `destination` (empty if not known).

    Names of operations say which copies are communication (`name_memory_operation`).

    `bytes` and the time `rated_ns` cover the operations that no window cut.
    """
    events = opened_events.load_opened_events(report, source_names.MEMORY_OPERATIONS, store)
    whole = events.mark_whole(windows)
    moved = _fill_absent(events.get_values(types.MEMORY_BYTES)) * whole
    named = {"operation": types.MEMORY_OPERATION, "source": types.MEMORY_SOURCE_KIND}
    named |= {"destination": types.MEMORY_DESTINATION_KIND}
    lines = np.flatnonzero(counted.mark_operations(events.place, events.begin))
    keys = {name: events.get_values(event_type)[lines] for name, event_type in named.items()}
    copy_class = _fill_absent(events.get_values(types.KERNEL_CLASS))[lines]
    keys["operation"], kinds = find_distinct_rows(keys["operation"], copy_class)
    table = _group(keys, events.length[lines], bytes=moved[lines], rated_ns=(events.length * whole)[lines])
    for name, event_type in named.items():
        names = {opened_events.ABSENT: "", **events.get_names(event_type)}
        if name == "operation":
            names = {number: name_memory_operation(*kind) for number, kind in enumerate(kinds)}
        table = _name_values(table, name, names)
    return table


# ---- communication ---------------------------------------------------------------------------------------------------


FindWaits = Callable[[IntArray, IntArray], IntArray]
"""Finds how long (ns) kernels, given by place and start, waited for other ranks."""


def sum_nccl(
    report: ReportRecords, store: Store, counted: CountedEvents, windows: Windows, find_waits: FindWaits
) -> Table:
    """Return NCCL by `function`: the host's `calls`, the number `sized` with a recorded size and their `bytes`; the
    `kernels` (and copies of copy engines), their time `kernel_ns`, and the part `wait_ns` of it.

    `carried_ns` and `carried_bytes` cover the kernels with a recorded size that no window cut.
    """
    payload = opened_events.load_opened_events(report, source_names.NCCL, store)
    sizes = (types.NCCL_BYTES, types.NCCL_SEND_BYTES, types.NCCL_RECEIVE_BYTES)
    size: IntArray = np.sum([_fill_absent(payload.get_values(event_type)) for event_type in sizes], axis=0)
    is_stream = np.array([isinstance(place, Stream) for place in report.places.all], np.bool_)
    on_stream = is_stream[payload.place]

    def find_sizes(events: opened_events.OpenedEvents, lines: IntArray, among: BoolArray) -> IntArray:
        """Return the bytes of the payload that starts at the same place and time as each event; -1 without one."""
        rows = np.flatnonzero(among)
        at = find_rows([payload.place[rows], payload.begin[rows]], [events.place[lines], events.begin[lines]])
        return np.where(at >= 0, pick(size[rows], at, 0), -1)

    calls = opened_events.load_nvtx_ranges(report, store, lambda domain: domain == families.NCCL_DOMAIN)
    carriers = _find_functions(report, store, calls), _find_copied(report, store, calls)
    calls = calls.select(np.flatnonzero(counted.mark_host(calls.place, calls.begin)))
    functions = np.array([parse_function(name) for _, name in calls.keys], np.int64)[calls.key]
    whole = calls.events.mark_whole(windows)[calls.line]
    called = np.where(whole, find_sizes(calls.events, calls.line, ~on_stream), -1)
    called, functions = called[functions != NO_FUNCTION], functions[functions != NO_FUNCTION]
    made = {"calls": np.ones_like(called), "sized": (called >= 0).astype(np.int64), "bytes": np.maximum(called, 0)}

    parts = [{"function": functions, **made}]
    for events, line, ran_functions in carriers:
        counts = counted.mark_operations(events.place, events.begin)[line]
        line, ran_functions = line[counts], ran_functions[counts]
        carried, length = find_sizes(events, line, on_stream), events.length[line]
        carried = np.where(events.mark_whole(windows)[line], carried, 0)
        ran = {"kernels": np.ones_like(length), "kernel_ns": length, "carried_ns": np.where(carried > 0, length, 0)}
        ran |= {"carried_bytes": np.maximum(carried, 0), "wait_ns": find_waits(events.place[line], events.begin[line])}
        parts.append({"function": ran_functions, **ran})
    names = list(dict.fromkeys(name for part in parts for name in part))
    parts = [{**dict.fromkeys(names, np.zeros_like(part["function"])), **part} for part in parts]
    table = sum_table(join_tables(parts), ["function"])
    return _name_values(table, "function", {NO_FUNCTION: OTHER_FUNCTION, **dict(enumerate(FUNCTIONS))})


def _find_copied(
    report: ReportRecords, store: Store, calls: opened_events.NvtxRanges
) -> tuple[opened_events.OpenedEvents, IntArray, IntArray]:
    """Return (memory operations, lines of the copies of NCCL's copy engines, function that was called for each).

    `calls`: all ranges of NCCL.
    """
    events = opened_events.load_opened_events(report, source_names.MEMORY_OPERATIONS, store)
    line = np.flatnonzero(events.get_values(types.KERNEL_CLASS) == COMMUNICATION_CLASSES[0])
    return events, line, _find_called(report, store, calls, events, line)


def _find_called(
    report: ReportRecords,
    store: Store,
    calls: opened_events.NvtxRanges,
    events: opened_events.OpenedEvents,
    line: IntArray,
) -> IntArray:
    """Return the function of the calls of NCCL that launched each of these lines; NO_FUNCTION if it is unknown."""
    function = np.full(line.size, NO_FUNCTION, np.int64)
    if line.size:
        launches = load_launches(report, store)
        at = launches.find(events.place[line], events.begin[line])
        thread, sent = pick(launches.thread, at, opened_events.ABSENT), pick(launches.sent, at, 0)
        calls = calls.select(np.lexsort((-calls.end, calls.begin, calls.place)))
        points = np.lexsort((sent, thread))
        inside = find_innermost(calls.place, calls.begin, calls.end, thread[points], sent[points]).innermost
        names = [name for _, name in calls.keys]
        parsed = np.array([parse_function(name) for name in names], np.int64)[calls.key]
        function[points] = pick(find_called(parsed, number_groups(calls.place, names, calls.key)), inside, NO_FUNCTION)
    return function


def _find_functions(
    report: ReportRecords, store: Store, calls: opened_events.NvtxRanges
) -> tuple[opened_events.OpenedEvents, IntArray, IntArray]:
    """Return (kernels, lines of NCCL's, function of the kernel on each of these lines)."""
    kernels = opened_events.load_opened_events(report, source_names.KERNELS, store)
    value = kernels.get_values(types.NCCL_KERNEL)
    lines = np.flatnonzero(value != opened_events.ABSENT)
    names = kernels.get_names(types.NCCL_KERNEL)
    function_of_value = np.full(max(names, default=0) + 1, NO_FUNCTION, np.int64)
    for number, name in names.items():
        function_of_value[number] = parse_function(name)
    function = function_of_value[value[lines]]
    doubted = np.flatnonzero(function == FUNCTIONS.index("SendRecv"))
    called = _find_called(report, store, calls, kernels, lines[doubted])
    function[doubted] = correct_functions(function[doubted], called)
    return kernels, lines, function


def sum_mpi(report: ReportRecords, store: Store, counted: CountedEvents, windows: Windows) -> Table:
    """Return MPI calls by `name`: the number `sized` with a recorded size, `sent_bytes`, `received_bytes`, and
    `rated_ns`, the time of the sized calls.

    A call that a window cut counts as one without a size. A call that returns before anything has moved adds no time.
    """
    events = opened_events.load_opened_events(report, source_names.MPI, store)
    size_types = types.MPI_BYTES, types.MPI_SENT_BYTES, types.MPI_RECEIVED_BYTES, types.MPI_SENDRECV_BYTES
    values = [events.get_values(event_type) for event_type in size_types]
    whole = events.mark_whole(windows)
    sized = np.any([value != opened_events.ABSENT for value in values], axis=0) * whole
    size, sent, *both_received = (_fill_absent(value) * whole for value in values)
    sums = {"size": size, "sent_bytes": sent, "received_bytes": both_received[0] + both_received[1]}
    sums |= {"sized": sized, "rated_ns": sized * events.length}
    counts = counted.mark_host(events.place, events.begin)
    parts = []
    for event_type in types.MPI_CALLS.values():
        value = events.get_values(event_type)
        lines = np.flatnonzero((value != opened_events.ABSENT) & counts)
        table = _group({"name": value[lines]}, events.length[lines], **{key: sum_[lines] for key, sum_ in sums.items()})
        parts.append(_name_values(table, "name", events.get_names(event_type)))
    table = add_up(parts, ["name"])
    roles = np.array([get_role(name) for name in table["name"]], np.int64)
    receives = (roles & (SENDS | RECEIVES)) == RECEIVES  # the size of a Sendrecv is the size that it sends
    table["sent_bytes"] = table["sent_bytes"] + np.where(receives, 0, table["size"])
    table["received_bytes"] = table["received_bytes"] + np.where(receives, table["size"], 0)
    waits = np.array([_NONBLOCKING.match(name) is None for name in table["name"]], np.bool_)
    table["rated_ns"] = np.where(waits, table["rated_ns"], 0)
    return drop_columns(table, "size")


# ---- calls -----------------------------------------------------------------------------------------------------------


def sum_calls(report: ReportRecords, task_of_place: IntArray, store: Store, counted: CountedEvents) -> Table:
    """Return outermost CUDA API and OS runtime calls by `name`, `source`, `task`; `main_ns`: time on main threads."""
    calls = load_outermost_calls(report, store)
    counts = (calls.source != calls.sources.index(source_names.MPI)) & counted.mark_host(calls.place, calls.begin)
    calls = calls.take(np.flatnonzero(counts))
    length = calls.end - calls.begin
    on_main = np.isin(calls.place, list(map_main_threads(report).values()))
    keys = {"name": calls.name, "source": calls.source, "task": task_of_place[calls.place]}
    table = drop_columns(_group(keys, length, main_ns=np.where(on_main, length, 0)), "min_ns", "max_ns")
    table["source"] = make_objects(calls.sources[number] for number in table["source"].tolist())
    return _name_values(table, "name", dict(enumerate(calls.names)))


# ---- ranges ----------------------------------------------------------------------------------------------------------


Measure = Callable[[IntArray, IntArray, IntArray], IntArray]
"""Measures a part (ns) of each interval, given by place, start and end (ns)."""


def sum_repeated_ranges(
    report: ReportRecords,
    task_of_place: IntArray,
    store: Store,
    counted: CountedEvents,
    windows: Windows,
    measures: Mapping[str, Measure],
) -> Table:
    """Return NVTX ranges that repeat, by `task`, `domain` and `name`; `depth` is the smallest.

    `measures`: parts of the time of a range to add up, by the name of their column. `per_step`: how often the range
    occurs in each step that counts; 0 if not equally often in all of them.
    """
    ranges, depth = opened_events.load_repeated_ranges(report, store, windows)
    counts = np.flatnonzero(counted.mark_host(ranges.place, ranges.begin))
    ranges, depth = ranges.select(counts), depth[counts]
    parts = {name: measure(ranges.place, ranges.begin, ranges.end) for name, measure in measures.items()}
    task = task_of_place[ranges.place]
    keys = {"task": task, "key": ranges.key, "depth": depth}
    table = _group(keys, ranges.end - ranges.begin, **parts)
    step = counted.find_step(ranges.place, ranges.begin)
    table["per_step"] = _count_per_step(table, task, ranges.key, step, counted.steps)
    for part, column in enumerate(("domain", "name")):
        table[column] = make_objects(ranges.keys[key][part] for key in table["key"].tolist())
    return add_up([drop_columns(table, "key")], ["task", "domain", "name"])


def _count_per_step(table: Table, task: IntArray, key: IntArray, step: IntArray, steps: int) -> IntArray:
    """Return how often the range of each row of a table (task and key) occurs in each step.

    It is 0 for ranges that do not occur equally often in all `steps`. `task`, `key` and `step`: those of each range.
    """
    inside = np.flatnonzero(step >= 0)
    one = np.ones(inside.size, np.int64)
    columns = {"task": task[inside], "key": key[inside], "step": step[inside], "least": one, "steps": one}
    each = sum_table(columns, ["task", "key", "step"], {"steps": "max"})
    each = {**drop_columns(each, "step"), "most": each["least"]}
    found = sum_table(each, ["task", "key"], {"least": "min", "most": "max"})
    is_even = (found["least"] == found["most"]) & (found["steps"] == steps)
    at = find_rows([found["task"], found["key"]], [table["task"], table["key"]])
    return pick(np.where(is_even, found["least"], 0), at, 0)
