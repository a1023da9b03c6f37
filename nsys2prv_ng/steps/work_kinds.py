"""Groups steps of equal names by their work: the kernels, CUDA graphs and copies that were launched in each.

Definitions:

- Two steps are alike if their kernels are, by number or by GPU time, whichever is more, and if copies do not add much.
- A kind has at least two steps after the warm-up, and nearly all of them are longer, or shorter, than nearly all of
  the most frequent kind: other work that takes as long makes no difference.
- A step that is like no others has the kind that it is most similar to: an exception is a slow step, not a kind.

The thresholds are choices that real captures hold (tests/steps/test_work_kinds.py): of all that were tried, one has two
kinds. It is reinforcement learning without its ranges, where the steps with a rollout share 0.24 with the others. Steps
of one kind share 0.84 or more: those with a printed loss 0.99, those of other lengths of sequences, which have other
kernels, 0.86.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nsys2prv_ng import source_names
from nsys2prv_ng.arrays.groups import Table, join_tables, sum_table
from nsys2prv_ng.arrays.row_keys import encode_rows, find_rows
from nsys2prv_ng.arrays.types import BoolArray, FloatArray, IntArray, pick
from nsys2prv_ng.intervals.device_sweep import MEMORY, WHOLE_GRAPH
from nsys2prv_ng.objects.tree import ObjectTree, group_reports_by_task
from nsys2prv_ng.paraver import event_types as types
from nsys2prv_ng.paraver.value_tables import MEMORY_OPERATIONS
from nsys2prv_ng.reading.device_operations import load_device_operations, load_launches
from nsys2prv_ng.reading.opened_events import Names, load_opened_events, number_lines
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.steps.spans import HostSpans
from nsys2prv_ng.steps.work import UNKNOWN, find_launched
from nsys2prv_ng.text.calls import LOADS, WRITES

_LEAST_SIMILAR = 0.8
"""Least similarity of two steps of one kind: that of repeated steps (steps/repeated_steps.py)."""
_FEWEST = 2
"""Fewest steps after the warm-up of a kind by its work."""
_LONGER, _REGULAR = 1.25, 0.9
"""How many times as long as the others the steps of a kind are at least, and the share of the steps that are: as for
steps that take turns (analysis/efficiency/typical_step.py). A printed loss makes steps 1.09 times as long."""
_MOST_TRIED = 8
"""Most steps that others are compared with."""
_MOST_GROUPS = 8
"""Most groups of reports, each with the tasks of its own, whose work is compared: ranks do the same in each step."""
_LEAST_OF_TASK = 0.25
"""Least operations of a task whose steps are compared, as a share of the most of any task: one kernel more is much in
a helper process."""
_MANY_MORE = 0.1
"""Least difference in kernels, as a share, that names a kind: less is a part of what differs."""


def may_differ(length: IntArray) -> bool:
    """Return whether steps of some lengths (ns) may be of two kinds, each of _FEWEST or more."""
    ordered = np.sort(length)
    return ordered.size >= 2 * _FEWEST and bool(ordered[-_FEWEST] >= _LONGER * ordered[_FEWEST - 1])


class Content(NamedTuple):
    """The work of steps, a row for each task, step and name with any (r).

    `code`: index of task and name (below k); `amount`: how many kernels and graphs, or how many bytes; `ns`: their time
    on the GPU. `task_of_code`, `is_copy`, `to_host`: of each code (k). `calls`: steps of each group of _CALLS.
    """

    step: IntArray
    code: IntArray
    amount: IntArray
    ns: IntArray
    task_of_code: IntArray
    is_copy: BoolArray
    to_host: BoolArray
    calls: dict[str, IntArray]


_GRAPH = -1
"""The name of all CUDA graphs that were traced as a whole: programs make one for each size of a batch."""
_TO_HOST = frozenset(MEMORY_OPERATIONS[number] for number in (4, 8))
CHECKPOINT = "with a checkpoint"
_CALLS = {CHECKPOINT: WRITES, "that load kernels": LOADS}
"""What the calls of a kind may call it: files are written, or libraries are loaded."""


def load_content(
    spans: HostSpans,
    step: IntArray,
    reports: Sequence[ReportRecords],
    tree: ObjectTree,
    store: Store,
    *,
    are_ranges: bool,
) -> Content:
    """Return what was launched in the steps whose host ranges `spans` are, on the first tasks of a job."""
    names, parts = Names(), [_make_rows(*np.zeros((6, 0), np.int64))]
    calls = {label: np.zeros(0, np.int64) for label in _CALLS}
    groups = group_reports_by_task([report.places for report in reports], tree)
    for index in sorted(index for group in groups[:_MOST_GROUPS] for index in group):
        report, rows = reports[index], tree.rows[index]
        operations = load_device_operations(report, store)
        task_of_place = np.where(rows >= 0, tree.task_of_row[rows], -1).astype(np.int64)
        launched = find_launched(operations, load_launches(report, store), task_of_place)
        launched = launched if are_ranges else np.where(launched == UNKNOWN, operations.begin, launched)
        task = task_of_place[operations.place]
        span = np.where((task >= 0) & (launched != UNKNOWN), spans.find(task, launched), -1)
        inside = np.flatnonzero(span >= 0)
        kind, begin = operations.kind[inside], operations.begin[inside]
        is_copy = kind & MEMORY > 0
        name = names.number(operations.names, np.where(kind == WHOLE_GRAPH, _GRAPH, operations.name[inside]))
        size = _find_bytes(report, store, operations.place[inside], begin)
        amount = np.where(is_copy, size, 1)
        ns = operations.end[inside] - begin
        parts.append(_make_rows(task[inside], name, is_copy.astype(np.int64), step[span[inside]], amount, ns))
        for label, found in _find_calls(report, store, task_of_place, spans, step).items():
            calls[label] = np.union1d(calls[label], found)
    table = sum_table(join_tables(parts), _KEYS)
    code, first = encode_rows(table["task"], table["name"], table["is_copy"])
    texts = ["", *names.texts]
    return Content(
        step=table["step"],
        code=code,
        amount=table["amount"],
        ns=table["ns"],
        task_of_code=table["task"][first],
        is_copy=table["is_copy"][first] > 0,
        to_host=np.array([texts[number + 1] in _TO_HOST for number in table["name"][first].tolist()], np.bool_),
        calls=calls,
    )


_KEYS = ["task", "name", "is_copy", "step"]


def _make_rows(*columns: IntArray) -> Table:
    return sum_table(dict(zip((*_KEYS, "amount", "ns"), columns, strict=True)), _KEYS)


def _find_bytes(report: ReportRecords, store: Store, place: IntArray, begin: IntArray) -> IntArray:
    """Return the bytes of each operation, given by place and start (ns); 0 if it is not a copy."""
    copies = load_opened_events(report, source_names.MEMORY_OPERATIONS, store)
    found = find_rows([copies.place, copies.begin], [place, begin])
    return np.maximum(pick(copies.get_values(types.MEMORY_BYTES), found, 0), 0)


def _find_calls(
    report: ReportRecords, store: Store, task_of_place: IntArray, spans: HostSpans, step: IntArray
) -> dict[str, IntArray]:
    """Return the steps in which calls of each group of _CALLS start."""
    found = {label: np.zeros(0, np.int64) for label in _CALLS}
    for source, event_type in ((source_names.CUDA_API, types.CUDA_API), (source_names.OS_RUNTIME, types.OS_RUNTIME)):
        events, names = load_opened_events(report, source, store), list[str]()
        ((lines, name),) = number_lines(events, [event_type], names)
        for label, pattern in _CALLS.items():
            wanted = np.array([pattern.fullmatch(text) is not None for text in names], np.bool_)
            chosen = lines[wanted[name]]
            span = spans.find(task_of_place[events.place[chosen]], events.begin[chosen])
            found[label] = np.append(found[label], step[span[span >= 0]])
    return found


def divide_by_work(content: Content, length: IntArray, chosen: BoolArray, counted: BoolArray) -> IntArray:
    """Return the kind of each chosen step (m), 0 for the most frequent; -1 of all other steps.

    `counted`: the steps after the warm-up, which make kinds.
    """
    compare = _Comparison(content, length.size)
    left, leaders = chosen & counted, list[FloatArray]()
    while left.any() and len(leaders) < _MOST_TRIED:
        which = np.flatnonzero(left)
        leader = which[np.argsort(compare.operations[which], kind="stable")[(which.size - 1) // 2]]
        leaders.append(compare.measure(int(leader)))
        left &= leaders[-1] < _LEAST_SIMILAR
    similarity = np.array(leaders)
    closest = np.argmax(similarity, axis=0)
    members = [
        np.flatnonzero(chosen & counted & (closest == n) & (similarity[n] >= _LEAST_SIMILAR))
        for n in range(len(leaders))
    ]
    kept = [n for n in np.argsort([-each.size for each in members], kind="stable") if members[n].size >= _FEWEST]
    if not kept or 2 * sum(members[n].size for n in kept) < np.count_nonzero(chosen & counted):
        return np.where(chosen, 0, -1)
    number = np.zeros(len(leaders), np.int64)
    for n in kept[1:]:
        is_other = _differ(length[members[kept[0]]], length[members[n]])
        number[n] = number.max() + 1 if is_other else 0
    return np.where(chosen, number[np.array(kept)[np.argmax(similarity[kept], axis=0)]], -1)


def _differ(one: IntArray, other: IntArray) -> bool:
    """Return whether nearly all steps of one kind (ns) are clearly longer than nearly all of the other."""
    short, long = sorted((one, other), key=lambda each: float(np.median(each)))
    low, high = float(np.median(short)), float(np.median(long))
    limit = (low + high) / 2
    is_regular = all(np.count_nonzero(each) >= _REGULAR * each.size for each in (short < limit, long > limit))
    return high >= _LONGER * low and is_regular


class _Comparison:
    """Compares all steps (m) with one of them, task by task: the least similar task counts."""

    def __init__(self, content: Content, steps: int) -> None:
        code, (task, _) = content.code, encode_rows(content.task_of_code)
        amount, ns = (np.bincount(code, column, task.size) for column in (content.amount, content.ns))
        self._content, self._steps = content, steps
        self._each = ns / np.maximum(amount, 1)
        self._tasks = int(task.max(initial=-1)) + 1
        self._task, self._part = task, task[code] * steps + content.step
        kernels = np.where(content.is_copy[code], 0, content.amount)
        of_task = np.bincount(task[code], kernels, self._tasks)
        self._is_large = of_task >= _LEAST_OF_TASK * of_task.max(initial=0)
        self.operations = np.bincount(content.step, kernels, steps)

    def measure(self, leader: int) -> FloatArray:
        """Return the similarity of each step to one of them, from 0 to 1."""
        content, kernels = self._content, ~self._content.is_copy
        typical = np.zeros(kernels.size)
        of_leader = content.step == leader
        typical[content.code[of_leader]] = content.amount[of_leader]
        number, either = self._compare(typical, kernels.astype(np.float64))
        by_number = _divide(number, either)
        time, either = self._compare(typical, np.where(kernels, self._each, 0.0))
        copies, with_copies = self._compare(typical, np.where(kernels, 0.0, self._each))
        by_copies = 1 - _divide(with_copies - copies, either + with_copies, 0.0)
        similarity = np.minimum(np.maximum(by_number, _divide(time, either)), by_copies)
        return similarity.reshape(self._tasks, self._steps)[self._is_large].min(axis=0, initial=1.0)

    def _compare(self, typical: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what each part (task and step) shares with the leader's, and what either has."""
        content, size = self._content, self._tasks * self._steps
        least = np.minimum(content.amount, typical[content.code])
        shared, present = (
            np.bincount(self._part, column * weight[content.code], size).astype(np.float64)
            for column in (least, content.amount)
        )
        of_leader = np.bincount(self._task, typical * weight, self._tasks)
        return shared, present + np.repeat(of_leader, self._steps) - shared


def _divide(part: FloatArray, whole: FloatArray, nothing: float = 1.0) -> FloatArray:
    """Return a ratio; `nothing` where there is no whole."""
    return np.divide(part, whole, out=np.full(part.size, nothing), where=whole > 0)


def name_work(content: Content, kind: IntArray, steps: int) -> list[str]:
    """Return what each kind (index of each step, m, or -1) has more of than the first one, whose name is ""."""
    code, tasks = content.code, max(np.unique(content.task_of_code).size, 1)
    columns = {
        "kernels": np.where(content.is_copy[code], 0, content.amount) / tasks,
        "to_host": np.where(content.to_host[code], content.ns, 0),
        "all": content.ns,
    }
    sums = {name: np.bincount(content.step, column, steps) for name, column in columns.items()}
    names = [""]
    for number in range(1, int(kind.max()) + 1):
        usual, own = ({name: float(np.median(each[kind == n])) for name, each in sums.items()} for n in (0, number))
        more = round(own["kernels"] - usual["kernels"])
        calls = [label for label, found in content.calls.items() if _is_mark(found, kind, number)]
        copies = own["to_host"] - usual["to_host"] > (1 - _LEAST_SIMILAR) * usual["all"]
        if abs(more) >= _MANY_MORE * max(own["kernels"], usual["kernels"]):
            text = f"with {abs(more):,} {'more' if more > 0 else 'fewer'} kernel{'s' * (abs(more) > 1)}"
        elif copies:
            text = next((label for label in calls if label in list(_CALLS)[:1]), "with copies to the host")
        else:
            text = next((label for label in calls if label in list(_CALLS)[1:]), "with other kernels")
        names.append(text if text not in names else f"{text} ({number})")
    return names


def _is_mark(found: IntArray, kind: IntArray, number: int) -> bool:
    """Return whether nearly all steps of a kind are among `found`, and nearly none of the first kind are."""
    inside = np.isin(np.arange(kind.size), found)
    return bool(inside[kind == number].mean() >= _REGULAR and inside[kind == 0].mean() <= 1 - _REGULAR)
