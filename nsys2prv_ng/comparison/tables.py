"""Compares the tables of summaries: kernels, ranges, NCCL, copies, memory, efficiencies, the critical path.

If both summaries are restricted to their steps, totals are for each step and GPU. Otherwise they cover all the time of
the summary, as the titles state. A row differs by more than noise if its change is at least 2 % of its value and half a
percent of the step, or if one side does not have it.

Kernels are matched by their exact name, then without template arguments, then by class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from nsys2prv_ng.comparison.model import Table, TableRow
from nsys2prv_ng.comparison.sides import count_units, covers_its_steps
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.summary.difference.budget import LEAST
from nsys2prv_ng.summary.difference.statistics import NOISE
from nsys2prv_ng.summary.efficiency.numbers import WindowEfficiency
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.links.table import name_class
from nsys2prv_ng.summary.others import join_hidden
from nsys2prv_ng.summary.ranges.numbers import list_paths
from nsys2prv_ng.text.formatting import format_bytes, shorten_range_name
from nsys2prv_ng.text.names import NO_RANGE, OTHERS

OVERLAPPED, EXPOSED = "overlapped communication", "exposed communication"
"""Rows of the table of GPU activity."""
_WITHIN = " > "


class _Sum(NamedTuple):
    """Time (ns) of a name on a side, how many times, bytes (None if no size is known), and tasks that share the time.

    Without tasks, all GPUs share the time.
    """

    ns: int
    times: int
    size: int | None = None
    tasks: int = 0


class Scaled(NamedTuple):
    """A summary, and the divisors of its totals.

    `steps`: number of steps that the summary is restricted to, or of groups of steps that are compared; 1 if it is not
    restricted to steps. `span`: length (ns) of one; of all time if the summary is not restricted to steps.
    """

    summary: JobSummary
    steps: float
    span: float

    @property
    def gpus(self) -> int:
        return max(1, len(self.summary.gpus))


def make_tables(a: JobSummary, b: JobSummary, *, totals: bool, sizes: tuple[int, int] = (1, 1)) -> list[Table]:
    """Return the tables that have rows. `totals`: whether the totals of both sides cover comparable times.

    `sizes`: how many steps of each side are compared as one.
    """
    one, other = _scale(a, sizes[0]), _scale(b, sizes[1])
    makers: list[Callable[[Scaled, Scaled], Table]] = [_compare_kinds, _compare_efficiencies]
    if totals:
        makers += [_compare_activity, _compare_kernels, *(partial(_compare_sums, key) for key in _SUMMED)]
    makers += [_compare_path, _compare_memory]
    return [table for make in makers if (table := make(one, other)).rows]


def _scale(summary: JobSummary, size: int) -> Scaled:
    if covers_its_steps(summary) and summary.steps is not None:
        return Scaled(summary, max(1, count_units(summary.steps)) / size, summary.steps.median_ns * size)
    return Scaled(summary, 1, summary.duration_ns)


def _per(a: Scaled, what: str) -> str:
    """Return the time that totals cover, for a title."""
    if covers_its_steps(a.summary):
        return f"per step and {what}" if what else "per step"
    return f"in the time read, per {what}" if what else "in the time read"


def _differ(a: float | None, b: float | None, least: float) -> bool:
    """Return whether two numbers differ by more than noise, and by at least `least`."""
    if a is None or b is None:
        return a != b
    return abs(a - b) >= NOISE * max(abs(a), abs(b)) and abs(a - b) >= least and a != b


def _sort(rows: Sequence[TableRow]) -> list[TableRow]:
    """Return the rows with the largest change first."""
    return sorted(rows, key=lambda row: -abs((row.b or 0) - (row.a or 0)))


def _compare_values(
    before: Mapping[str, float | None], after: Mapping[str, float | None], least: float
) -> list[TableRow]:
    """Return a row for each name, names of the first side first."""
    names = dict.fromkeys([*before, *after])
    values = [(name, before.get(name), after.get(name)) for name in names]
    return [TableRow(name, "", a, b, _differ(a, b, least)) for name, a, b in values]


# ---- totals ----------------------------------------------------------------------------------------------------------


def _make_row(name: str, detail: str, a: Scaled, b: Scaled, in_a: Sequence[_Sum], in_b: Sequence[_Sum]) -> TableRow:
    """Return a row of totals, or of means if tasks share the time. The total by step decides what is noise."""
    (ns_a, total_a, count_a, bytes_a), (ns_b, total_b, count_b, bytes_b) = _measure(a, in_a), _measure(b, in_b)
    differs = _differ(total_a, total_b, LEAST * a.span)
    return TableRow(name, detail, ns_a, ns_b, differs, count_a, count_b, bytes_a, bytes_b)


def _measure(side: Scaled, parts: Sequence[_Sum]) -> tuple[float | None, float | None, float | None, float | None]:
    """Return (time to show, time by step and GPU or task, count by step, bytes by step); None for what is not there."""
    if not parts:
        return None, None, None, None
    ns, count = sum(part.ns for part in parts), sum(part.times for part in parts)
    sizes = [part.size for part in parts if part.size is not None]
    tasks = max(part.tasks for part in parts)
    total = ns / side.steps / (tasks or side.gpus)
    size = sum(sizes) / side.steps if sizes else None
    return ns / count if tasks and count else total, total, count / side.steps, size


def _compare_activity(a: Scaled, b: Scaled) -> Table:
    """Compare what GPUs do from their first operation to their last; time with two kinds of activity counts twice."""
    rows = []
    if a.summary.gpus and b.summary.gpus:
        rows = _compare_values(_sum_activity(a), _sum_activity(b), LEAST * a.span)
    title = f"GPU activity, {_per(a, 'GPU')}"
    return Table("activity", title, "ns", [row for row in rows if row.a or row.b])


def _sum_activity(side: Scaled) -> dict[str, float]:
    gpus = side.summary.gpus
    ns = {
        "compute": sum(gpu.compute_ns for gpu in gpus),
        OVERLAPPED: sum(gpu.overlap_ns for gpu in gpus),
        EXPOSED: sum(gpu.communication_ns - gpu.overlap_ns for gpu in gpus),
        "opaque CUDA graphs": sum(gpu.whole_graph_ns for gpu in gpus),
        "copies and sets": sum(gpu.memory_ns for gpu in gpus),
        "idle": sum(gpu.idle_ns for gpu in gpus),
    }
    return {name: total / side.steps / side.gpus for name, total in ns.items()}


def _compare_kernels(a: Scaled, b: Scaled) -> Table:
    """Compare kernels by name. Names that only one side has are compared by class, as sums."""
    kernels = a.summary.kernels, b.summary.kernels
    all_a, all_b = (group_by_key((each.name, _Sum(each.total_ns, each.count)) for each in side) for side in kernels)
    in_a, in_b = join_hidden(all_a, all_b, strip_arguments)
    classes = ({each.name: each.kernel_class for each in side} | {OTHERS: ""} for side in kernels)
    class_a, class_b = ({name: own[name] for name in names} for own, names in zip(classes, (in_a, in_b), strict=True))
    rows = []
    for match in match_names(class_a, class_b):
        parts_a = [part for name in match.a for part in in_a[name]]
        parts_b = [part for name in match.b for part in in_b[name]]
        if match.by_class:
            row = _make_row(f"other {match.name} kernels", match.name, a, b, parts_a, parts_b)
            rows.append(replace(row, only_a=tuple(match.a), only_b=tuple(match.b)))
        else:
            kind = class_a[match.a[0]] if match.a else class_b[match.b[0]]
            rows.append(_make_row(match.name, kind, a, b, parts_a, parts_b))
    return Table("kernels", f"Kernels, {_per(a, 'GPU')}", "ns", _sort(rows))


_SUMMED: dict[str, tuple[str, Callable[[JobSummary], Iterable[tuple[str, _Sum]]]]] = {
    "ranges": (
        "NVTX ranges: mean time, count {per_step}",
        lambda job: (
            (shorten_range_name(each.domain, each.name), _Sum(each.total_ns, each.count, tasks=len(each.tasks)))
            for each in job.ranges
        ),
    ),
    "range_tree": (
        "GPU time launched in NVTX ranges, {per_gpu}",
        lambda job: (
            (_WITHIN.join(path) or NO_RANGE, _Sum(node.gpu_ns, node.operations))
            for path, node in zip(list_paths(job.range_tree), job.range_tree, strict=True)
        ),
    ),
    "nccl": (
        "NCCL time by function, wait time included, {per_gpu}",
        lambda job: ((nccl.function, _Sum(nccl.kernel_ns, nccl.calls, nccl.bytes)) for nccl in job.nccl),
    ),
    "collectives": (
        "NCCL collectives: mean data transfer, count {per_step}",
        lambda job: (
            (f"{one.function} of {format_bytes(one.bytes)} over {one.ranks} ranks", _Sum(one.ns, one.count, tasks=1))
            for one in (() if job.waits is None else job.waits.bandwidth)
        ),
    ),
    "messages": (
        "Messages: mean data transfer from when both sides run, count {per_step}",
        lambda job: (
            (f"{one.library} messages of {format_bytes(one.bytes)} {name_class(one)}", _Sum(one.ns, one.count, tasks=1))
            for one in (() if job.links is None else job.links.sizes)
        ),
    ),
    "mpi": (
        "MPI calls: mean time, count {per_step}",
        lambda job: ((call.call, _Sum(call.total_ns, call.count, tasks=job.tasks)) for call in job.mpi),
    ),
    "copies": (
        "Copies and sets, {per_gpu}",
        lambda job: ((kind.operation, _Sum(kind.total_ns, kind.count, kind.bytes)) for kind in job.memory_operations),
    ),
}
"""Title of each table of sums, by its key, and what it sums up in a summary. Parts of one name are added up."""


def _compare_sums(key: str, a: Scaled, b: Scaled) -> Table:
    title, list_parts = _SUMMED[key]
    all_a, all_b = (group_by_key(list_parts(side.summary)) for side in (a, b))
    if key == "range_tree":
        in_a, in_b = _join_unlisted(all_a, all_b, b), _join_unlisted(all_b, all_a, a)
    else:
        in_a, in_b = join_hidden(all_a, all_b)
    names = dict.fromkeys([*in_a, *in_b])
    rows = [_make_row(name, "", a, b, in_a.get(name, ()), in_b.get(name, ())) for name in names]
    return Table(key, title.format(per_step=_per(a, ""), per_gpu=_per(a, "GPU")), "ns", _sort(rows))


def _join_unlisted(own: dict[str, list[_Sum]], others: Mapping[str, Any], other: Scaled) -> dict[str, list[_Sum]]:
    """Return the ranges of a side without those that the tree of the other side may not list.

    The row around a range has its time, too: for an outermost one, that outside ranges, as in the other tree.
    """
    if not any(node.unlisted_ns for node in other.summary.range_tree):
        return own
    listed = {name: parts for name, parts in own.items() if name in others}
    hidden = [part for name in own if name not in others and _WITHIN not in name for part in own[name]]
    return {**listed, NO_RANGE: [*listed.get(NO_RANGE, []), *hidden]} if hidden else listed


# ---- the rest --------------------------------------------------------------------------------------------------------


def _compare_memory(a: Scaled, b: Scaled) -> Table:
    before, after = (
        {f"{gpu.node} GPU {gpu.gpu}": gpu.peak_memory_bytes for gpu in side.summary.gpus if gpu.peak_memory_bytes}
        for side in (a, b)
    )
    rows: list[TableRow] = []
    if before and after:
        largest = "largest of all GPUs"
        rows = _compare_values({largest: max(before.values())}, {largest: max(after.values())}, 0)
        rows += _sort(_compare_values(before, after, 0)) if before.keys() == after.keys() else []
    return Table("memory", "Peak GPU memory", "bytes", rows)


def _compare_path(a: Scaled, b: Scaled) -> Table:
    """Compare the time of the critical path by class; for each step if both paths cover steps."""
    paths = [(side, side.summary.critical_path) for side in (a, b)]
    known = [(path, side.steps if side.steps > 1 else len(path.steps)) for side, path in paths if path is not None]
    by_step = all(steps for _, steps in known)
    if len(known) < 2 or (not by_step and any(steps for _, steps in known)):  # only one path covers steps
        return Table("critical_path", "", "ns", [])
    title = "Critical path by class, " + ("per step" if by_step else "in the time read")
    names = dict.fromkeys(name for path, _ in known for name in path.classes)
    before, after = ({name: path.classes.get(name, 0) / (steps or 1) for name in names} for path, steps in known)
    return Table("critical_path", title, "ns", _sort(_compare_values(before, after, LEAST * sum(before.values()))))


def _compare_kinds(a: Scaled, b: Scaled) -> Table:
    """Compare the median step of each kind that both sides have."""
    kinds = [[] if side.summary.steps is None else side.summary.steps.kinds for side in (a, b)]
    before, after = ({kind.name: kind.median_ns for kind in of_side} for of_side in kinds)
    rows = [row for row in _compare_values(before, after, LEAST * a.span) if row.a and row.b]
    return Table("kinds", "Steps by kind, median", "ns", rows)


def _compare_efficiencies(a: Scaled, b: Scaled) -> Table:
    """Compare the efficiencies in steps, if both sides have them, otherwise the efficiencies in all their time."""
    windows, in_steps = choose_windows([a.summary, b.summary])
    before, after = (None if window is None else _list_efficiencies(window) for window in windows)
    rows = []
    if before is not None and after is not None:
        unknown = {name for rates in (before, after) for name, rate in rates.items() if rate is None}
        rows = [row for row in _compare_values(before, after, LEAST) if row.name not in unknown]
    return Table("efficiencies", "Efficiencies in steps" if in_steps else "Efficiencies", "ratio", rows)


def choose_windows(summaries: Sequence[JobSummary]) -> tuple[list[WindowEfficiency | None], bool]:
    """Return (the window of each summary whose efficiencies can be compared, whether these are the steps)."""
    whole: list[WindowEfficiency | None] = [summary.efficiency for summary in summaries]
    steps = [None if summary.efficiency is None else summary.efficiency.in_steps for summary in summaries]
    in_steps = None not in steps
    return steps if in_steps else whole, in_steps


def _list_efficiencies(window: WindowEfficiency) -> dict[str, float | None]:
    """Return the efficiencies of GPUs in both conventions, and of main threads, by the names in the table."""
    trees = {
        "GPUs, NCCL as communication": window.nccl_as_communication.device,
        "GPUs, NCCL as useful": window.nccl_as_useful.device,
        "main threads": window.nccl_as_communication.host,
    }
    return {
        f"{whose}: {_name_rate(key)}": rate
        for whose, tree in trees.items()
        for key, rate in ({} if tree is None else vars(tree)).items()
    }


def _name_rate(key: str) -> str:
    words = key.replace("mpi_", "MPI ").replace("pop_", "POP ").replace("_", " ")
    return "device offload" if key == "offload" else words


class Match(NamedTuple):
    """Names of both sides that form one row.

    `by_class`: whether the names have only their class in common.
    """

    name: str
    a: list[str]
    b: list[str]
    by_class: bool


def match_names(a: Mapping[str, str], b: Mapping[str, str]) -> list[Match]:
    """Return all names as rows; a name of one side only has an empty list on the other side.

    `a` and `b`: the class of each name of a side.
    """
    matches: list[Match] = []
    left_a, left_b = list(a), list(b)
    for key in (str, strip_arguments):
        for text, (names_a, names_b) in _group_names(left_a, left_b, key).items():
            if names_a and names_b:
                matches.append(Match(text, names_a, names_b, False))
        matched = {name for match in matches for name in (*match.a, *match.b)}
        left_a, left_b = ([name for name in side if name not in matched] for side in (left_a, left_b))
    classes = {**a, **b}
    for kind, (names_a, names_b) in _group_names(left_a, left_b, lambda name: _find_family(classes[name])).items():
        if names_a and names_b:
            matches.append(Match(kind, names_a, names_b, True))
        else:
            matches += [Match(name, [name], [], False) for name in names_a]
            matches += [Match(name, [], [name], False) for name in names_b]
    return matches


def _find_family(kind: str) -> str:
    """Return the class without its number type, in which two runs may differ: GEMM for GEMM FP32."""
    return kind.partition(" ")[0] if kind.startswith("GEMM ") else kind


def _group_names(
    a: Iterable[str], b: Iterable[str], key: Callable[[str], str]
) -> dict[str, tuple[list[str], list[str]]]:
    """Return the names of both sides, grouped by a key of the name."""
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for side, names in enumerate((a, b)):
        for name in names:
            groups.setdefault(key(name), ([], []))[side].append(name)
    return groups


def strip_arguments(name: str) -> str:
    """Return the name of a function without template arguments, parameters and return type.

    A name with unbalanced brackets stays as it is.
    """
    kept: list[str] = []
    depth, until = 0, None
    for character in name:
        if character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
            if depth < 0:
                return name
        elif not depth:
            kept.append(character)
        if character == "(" and depth == 1 and "".join(kept).strip():
            until = len(kept)  # text after the parameters, such as [clone .x], is not part of the name
    words = "".join(kept[:until]).split()
    return words[-1] if words and not depth else name
