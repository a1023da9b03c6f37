"""Compares what summaries have tables of: kernels, ranges, NCCL, copies, memory, efficiencies, the critical path.

Totals are for each step and GPU where both summaries are restricted to their steps; otherwise they are of all the time
of the summary, and the titles say so. A row differs by more than noise if its change is 2 % of it and half a percent
of the step, or if one side has nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

from nsys2prv_ng.comparison.budget import LEAST
from nsys2prv_ng.comparison.match_names import match_names
from nsys2prv_ng.comparison.model import Table, TableRow
from nsys2prv_ng.comparison.statistics import NOISE
from nsys2prv_ng.summary.numbers.efficiency import DeviceEfficiency, HostEfficiency, WindowEfficiency
from nsys2prv_ng.summary.numbers.job import JobSummary
from nsys2prv_ng.summary.tables.efficiency import is_of_steps
from nsys2prv_ng.text.formatting import format_bytes, shorten_range_name

_Numbers = tuple[int, int, int | None]
"""Time, count and bytes (None where no size is known)."""


class Scaled(NamedTuple):
    """A summary, and what its totals are divided by."""

    summary: JobSummary
    steps: int
    """Number of steps that it is restricted to; 1 where it is not."""
    span: float
    """Length (ns) of one of these."""

    @property
    def gpus(self) -> int:
        return max(1, len(self.summary.gpus))


def covers_its_steps(summary: JobSummary) -> bool:
    """Return whether the chosen time of a summary is that of its steps: totals can then be divided by their number."""
    if summary.steps is None or summary.efficiency is None:
        return False
    return is_of_steps(summary.windows_ns, summary.efficiency.steps_ns)


def make_tables(a: JobSummary, b: JobSummary, *, totals: bool) -> list[Table]:
    """Return the tables that have rows. `totals`: whether those of both cover comparable times."""
    one, other = _scale(a), _scale(b)
    makers: list[Callable[[Scaled, Scaled], Table]] = [_compare_efficiencies]
    if totals:
        makers += [
            _compare_activity,
            _compare_kernels,
            _compare_ranges,
            _compare_nccl,
            _compare_transfers,
            _compare_mpi,
            _compare_copies,
        ]
    makers += [_compare_path, _compare_memory, _compare_gpu_metrics]
    return [table for make in makers if (table := make(one, other)).rows]


def _scale(summary: JobSummary) -> Scaled:
    if covers_its_steps(summary) and summary.steps is not None:
        return Scaled(summary, summary.steps.count, summary.steps.median_ns)
    return Scaled(summary, 1, summary.duration_ns)


def _per(a: Scaled, what: str) -> str:
    """Return what times are of, for a title."""
    return (
        f"for each step{' and ' + what if what else ''}"
        if covers_its_steps(a.summary)
        else (f"in all of the time{', for each ' + what if what else ''}")
    )


def _differ(a: float | None, b: float | None, least: float) -> bool:
    """Return whether two numbers differ by more than noise, and by at least so much."""
    if a is None or b is None:
        return a != b
    return abs(a - b) >= NOISE * max(abs(a), abs(b)) and abs(a - b) >= least and a != b


def _sort(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return the rows with the largest change first."""
    return sorted(rows, key=lambda row: -abs((row.b or 0) - (row.a or 0)))


# ---- totals ----------------------------------------------------------------------------------------------------------


def _sum_all(side: Scaled, numbers: Sequence[_Numbers]) -> tuple[float, float, float | None] | None:
    """Return the sum, by step and GPU; counts and bytes are by step, over all GPUs. None for nothing."""
    if not numbers:
        return None
    sizes = [size for _, _, size in numbers if size is not None]
    ns, count = sum(ns for ns, _, _ in numbers), sum(count for _, count, _ in numbers)
    return ns / side.steps / side.gpus, count / side.steps, sum(sizes) / side.steps if sizes else None


def _make_total(
    name: str, detail: str, a: Scaled, b: Scaled, in_a: Sequence[_Numbers], in_b: Sequence[_Numbers]
) -> TableRow:
    ns_a, count_a, bytes_a = _sum_all(a, in_a) or (None, None, None)
    ns_b, count_b, bytes_b = _sum_all(b, in_b) or (None, None, None)
    differs = _differ(ns_a, ns_b, LEAST * a.span)
    return TableRow(name, detail, ns_a, ns_b, differs, count_a, count_b, bytes_a, bytes_b)


def _compare_activity(a: Scaled, b: Scaled) -> Table:
    """Return what GPUs do from their first operation to their last; what they do at the same time is in each row."""
    if not a.summary.gpus or not b.summary.gpus:
        return Table("activity", "", "ns", [])
    before, after = (_sum_activity(side) for side in (a, b))
    rows = [TableRow(name, "", x, after[name], _differ(x, after[name], LEAST * a.span)) for name, x in before.items()]
    title = f"Activity of GPUs, {_per(a, 'GPU')} (communication is hidden where a GPU computes beside it)"
    return Table("activity", title, "ns", [row for row in rows if row.a or row.b])


def _sum_activity(side: Scaled) -> dict[str, float]:
    gpus = side.summary.gpus
    ns = {
        "compute": sum(gpu.compute_ns for gpu in gpus),
        "hidden communication": sum(gpu.overlap_ns for gpu in gpus),
        "exposed communication": sum(gpu.communication_ns - gpu.overlap_ns for gpu in gpus),
        "graphs traced as a whole": sum(gpu.whole_graph_ns for gpu in gpus),
        "copies and sets": sum(gpu.memory_ns for gpu in gpus),
        "idle": sum(gpu.idle_ns for gpu in gpus),
    }
    return {name: total / side.steps / side.gpus for name, total in ns.items()}


def _compare_kernels(a: Scaled, b: Scaled) -> Table:
    """Return kernels by name. Names that stand on one side only are summed with those of their class on the other."""
    sides = []
    for side in (a, b):
        by_name: dict[str, list[_Numbers]] = {}
        for kernel in side.summary.kernels:
            by_name.setdefault(kernel.name, []).append((kernel.total_ns, kernel.count, None))
        sides.append(by_name)
    classes = [{kernel.name: kernel.kernel_class for kernel in side.summary.kernels} for side in (a, b)]
    rows = []
    for match in match_names(*classes):
        in_a, in_b = (
            [numbers for name in names for numbers in by_name[name]]
            for names, by_name in zip((match.a, match.b), sides, strict=True)
        )
        if match.by_class:
            row = _make_total(f"other {match.name} kernels", match.name, a, b, in_a, in_b)
            rows.append(replace(row, only_a=tuple(match.a), only_b=tuple(match.b)))
        else:
            kind = next(side[name] for side, own in zip(classes, (match.a, match.b), strict=True) for name in own)
            rows.append(_make_total(match.name, kind, a, b, in_a, in_b))
    return Table("kernels", f"Kernels, {_per(a, 'GPU')}", "ns", _sort(rows))


def _compare_nccl(a: Scaled, b: Scaled) -> Table:
    title = f"Calls of NCCL by function: time of their kernels, waiting included, {_per(a, 'GPU')}"
    return Table("nccl", title, "ns", _compare_totals(a, b, _sum_nccl(a), _sum_nccl(b)))


def _sum_nccl(side: Scaled) -> dict[str, _Numbers]:
    return {one.function: (one.kernel_ns, one.calls, one.bytes) for one in side.summary.nccl}


def _compare_copies(a: Scaled, b: Scaled) -> Table:
    return Table(
        "copies", f"Copies and sets, {_per(a, 'GPU')}", "ns", _compare_totals(a, b, _sum_copies(a), _sum_copies(b))
    )


def _sum_copies(side: Scaled) -> dict[str, _Numbers]:
    return {one.operation: (one.total_ns, one.count, one.bytes) for one in side.summary.memory_operations}


def _compare_totals(a: Scaled, b: Scaled, in_a: dict[str, _Numbers], in_b: dict[str, _Numbers]) -> list[TableRow]:
    return _sort(
        [
            _make_total(name, "", a, b, *([side[name]] if name in side else [] for side in (in_a, in_b)))
            for name in dict.fromkeys([*in_a, *in_b])
        ]
    )


# ---- means -----------------------------------------------------------------------------------------------------------


def _compare_ranges(a: Scaled, b: Scaled) -> Table:
    """Return the mean times of NVTX ranges; each task has its share of the step."""
    rows = _compare_means(a, b, _sum_ranges(a), _sum_ranges(b))
    return Table("ranges", f"NVTX ranges: mean time; count {_per(a, '')}", "ns", _sort(rows))


def _sum_ranges(side: Scaled) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = {}
    for one in side.summary.ranges:
        name = shorten_range_name(one.domain, one.name)
        ns, count, tasks = sums.get(name, (0, 0, 0))
        sums[name] = ns + one.total_ns, count + one.count, max(tasks, len(one.tasks))
    return sums


def _compare_transfers(a: Scaled, b: Scaled) -> Table:
    """Return collectives by function, size and ranks of the communicator: the mean time in which they moved data."""
    rows = _compare_means(a, b, _sum_transfers(a), _sum_transfers(b))
    return Table("collectives", f"Collectives of NCCL: mean time moving data; count {_per(a, '')}", "ns", _sort(rows))


def _sum_transfers(side: Scaled) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, tuple[int, int, int]] = {}
    for one in side.summary.waits.bandwidth if side.summary.waits is not None else ():
        name = f"{one.function} of {format_bytes(one.bytes)} over {one.ranks} ranks"
        ns, count, _ = sums.get(name, (0, 0, 1))
        sums[name] = ns + one.ns, count + one.count, 1
    return sums


def _compare_mpi(a: Scaled, b: Scaled) -> Table:
    """Return the mean times of MPI calls; each task has its share of the step."""
    sides = [
        {call.call: (call.total_ns, call.count, side.summary.tasks) for call in side.summary.mpi} for side in (a, b)
    ]
    rows = _compare_means(a, b, sides[0], sides[1])
    return Table("mpi", f"MPI calls: mean time; count {_per(a, '')}", "ns", _sort(rows))


def _compare_means(
    a: Scaled, b: Scaled, in_a: dict[str, tuple[int, int, int]], in_b: dict[str, tuple[int, int, int]]
) -> list[TableRow]:
    """Return means of (time, count, number of tasks that share it). Its totals by step and task say what is noise."""
    rows = []
    for name in dict.fromkeys([*in_a, *in_b]):
        (ns_a, count_a, tasks_a), (ns_b, count_b, tasks_b) = (side.get(name, (0, 0, 1)) for side in (in_a, in_b))
        total_a, total_b = ns_a / a.steps / tasks_a, ns_b / b.steps / tasks_b
        row = TableRow(
            name,
            "",
            a=ns_a / count_a if count_a else None,
            b=ns_b / count_b if count_b else None,
            differs=_differ(total_a if count_a else None, total_b if count_b else None, LEAST * a.span),
            count_a=count_a / a.steps if count_a else None,
            count_b=count_b / b.steps if count_b else None,
        )
        rows.append(row)
    return rows


# ---- the rest --------------------------------------------------------------------------------------------------------


def _compare_memory(a: Scaled, b: Scaled) -> Table:
    sides = [
        {f"{gpu.node} GPU {gpu.gpu}": gpu.peak_memory_bytes for gpu in side.summary.gpus if gpu.peak_memory_bytes}
        for side in (a, b)
    ]
    if not all(sides):
        return Table("memory", "", "bytes", [])
    most = [max(side.values()) for side in sides]
    rows = [TableRow("largest of all GPUs", "", most[0], most[1], _differ(most[0], most[1], 0))]
    if sides[0].keys() == sides[1].keys():
        rows += _sort(
            [TableRow(name, "", own, sides[1][name], _differ(own, sides[1][name], 0)) for name, own in sides[0].items()]
        )
    return Table("memory", "Peak memory of GPUs", "bytes", rows)


def _compare_gpu_metrics(a: Scaled, b: Scaled) -> Table:
    """Return the means of GPU metrics over all GPUs, in the units that their names end with."""
    before, after = _mean_metrics(a), _mean_metrics(b)
    rows = []
    for name in dict.fromkeys([*before, *after]) if before and after else ():
        x, y = before.get(name), after.get(name)
        rows.append(TableRow(name, "", x, y, _differ(x, y, 0)))
    return Table("gpu_metrics", "GPU metrics: means over all GPUs", "", rows)


def _mean_metrics(side: Scaled) -> dict[str, float]:
    means: dict[str, list[float]] = {}
    for one in side.summary.gpu_metrics:
        means.setdefault(f"{one.metric} [{one.unit}]" if one.unit else one.metric, []).append(one.mean)
    return {name: sum(values) / len(values) for name, values in means.items()}


def _compare_path(a: Scaled, b: Scaled) -> Table:
    """Return the time of the critical path by class; for each step if both paths are those of steps."""
    paths = [side.summary.critical_path for side in (a, b)]
    counts = [
        side.steps if side.steps > 1 else len(path.steps)
        for side, path in zip((a, b), paths, strict=True)
        if path is not None
    ]
    by_step = all(counts)
    if len(counts) < 2 or (any(counts) and not by_step):  # a path of steps is not one of all of the time
        return Table("critical_path", "", "ns", [])
    title = "Critical path by class, " + ("for each step" if by_step else "in all of the time")
    sides = [
        {name: ns / (count if by_step else 1) for name, ns in path.classes.items()}
        for path, count in zip(paths, counts, strict=True)
        if path is not None
    ]
    least = LEAST * sum(sides[0].values())
    rows = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        before, after = sides[0].get(name, 0.0), sides[1].get(name, 0.0)
        rows.append(TableRow(name, "", before, after, _differ(before, after, least)))
    return Table("critical_path", title, "ns", _sort(rows))


def _compare_efficiencies(a: Scaled, b: Scaled) -> Table:
    """Return the efficiencies in steps if both sides have them, else in all of their time."""
    both = [side.summary.efficiency for side in (a, b)]
    in_steps = [None if one is None else one.in_steps for one in both]
    windows = [one for one in (in_steps if all(in_steps) else both) if one is not None]
    rows: list[TableRow] = []
    if len(windows) == 2:
        before, after = (_list_efficiencies(window) for window in windows)
        for name in dict.fromkeys([*before, *after]):
            x, y = before.get(name), after.get(name)
            rows.append(TableRow(name, "", x, y, _differ(x, y, LEAST)))
    title = "Efficiencies" + (" in steps" if all(in_steps) else "")
    return Table("efficiencies", title, "ratio", rows)


def _list_efficiencies(window: WindowEfficiency) -> dict[str, float]:
    """Return the efficiencies of GPUs in both conventions, and those of main threads, by what the text calls them."""
    named: dict[str, float] = {}
    conventions = (("NCCL as communication", window.nccl_as_communication), ("NCCL as useful", window.nccl_as_useful))
    for convention, trees in conventions:
        if trees.device is not None:
            named |= {
                f"GPUs, {convention}: {one.name.replace('_', ' ')}": getattr(trees.device, one.name)
                for one in fields(DeviceEfficiency)
            }
    host = window.nccl_as_communication.host
    if host is not None:
        named |= {f"main threads: {_HOST[one.name]}": getattr(host, one.name) for one in fields(HostEfficiency)}
    return named


_HOST = {
    "parallel": "parallel",
    "mpi_parallel": "MPI parallel",
    "mpi_load_balance": "MPI load balance",
    "mpi_communication": "MPI communication",
    "offload": "device offload",
    "mpi_balance_in_nodes": "MPI balance in nodes",
    "mpi_balance_of_nodes": "MPI balance of nodes",
}
