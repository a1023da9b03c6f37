"""Adds up the time of GPU operations by the NVTX ranges in which they were launched, as a tree.

An operation belongs to the innermost range that its thread was in when it launched it. Libraries launch from threads of
their own, as PyTorch does in backward passes: outside of ranges such a thread counts as in the range of the main
thread, and so do its outermost ranges. Backward passes that PyTorch's sequence numbers link to a range of the program
are within that range instead, in one called BACKWARD. Start/end ranges, which nest in nothing, do not count. Ranges
whose names differ only in a number at their end, as layer0 to layer7, are one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from nsys2prv_ng.analysis.host_activity import find_main_threads
from nsys2prv_ng.arrays.groups import Table, drop_columns, join_tables, make_objects, make_rows, sum_table, take_rows
from nsys2prv_ng.arrays.row_keys import encode_rows, sort_nested
from nsys2prv_ng.arrays.types import IntArray, mark, pick, put
from nsys2prv_ng.grouping import group_by_key
from nsys2prv_ng.intervals.nesting import find_innermost
from nsys2prv_ng.job.counted import CountedEvents
from nsys2prv_ng.objects.places import Thread
from nsys2prv_ng.reading.device_operations import LaunchedOperations
from nsys2prv_ng.reading.opened_events import ABSENT, FEWEST, NvtxRanges, load_nvtx_ranges, load_sequence_numbers
from nsys2prv_ng.reading.read_reports import ReportRecords
from nsys2prv_ng.records.store import Store
from nsys2prv_ng.summary.ranges.backward import TimedRanges, link_backward
from nsys2prv_ng.summary.ranges.numbers import DEEPEST, MOST_NODES, RangeNode
from nsys2prv_ng.text.formatting import shorten_range_name
from nsys2prv_ng.text.names import BACKWARD

_NUMBER = re.compile(r"[0-9]+$")
Path = tuple[str, ...]
"""Names of a range and of the ranges around it, the outermost first; () for none."""


def sum_by_range(report: ReportRecords, task_of_place: IntArray, store: Store, counted: CountedEvents) -> Table:
    """Return the operations and the ranges of a report by `path` and `task`."""
    every = counted.launched
    at = np.flatnonzero(counted.mark_operations(every.place, every.begin))
    operations = LaunchedOperations._make(column[at] for column in every)
    ranges, nested, nodes = _nest_report(report, store, counted, operations)
    opened = np.flatnonzero(counted.mark_host(ranges.place, ranges.begin) & (nested.level < DEEPEST))
    is_operation = np.arange(at.size + opened.size) < at.size
    length = np.concatenate([operations.end - operations.begin, (ranges.end - ranges.begin)[opened]])
    table = {
        "node": np.concatenate([pick(nodes.of_range, nested.inside, -1), nodes.of_range[opened]]),
        "task": task_of_place[np.concatenate([operations.place, ranges.place[opened]])],
        "count": ~is_operation,
        "host_ns": np.where(is_operation, 0, length),
        "operations": is_operation,
        "own_ns": np.where(is_operation, length, 0),
        "unlisted_ns": np.zeros_like(length),
    }
    table = _limit(sum_table(table, ["node", "task"]), nodes)
    paths = _list_paths(nodes, ranges, table["node"].tolist())
    return {**drop_columns(table, "node"), "path": make_objects(paths[node] for node in table["node"].tolist())}


def _nest_report(
    report: ReportRecords, store: Store, counted: CountedEvents, operations: LaunchedOperations
) -> tuple[NvtxRanges, _Nested, _Nodes]:
    """Nest the ranges of a report, and find the range of each operation's launch."""
    ranges = load_nvtx_ranges(report, store)
    ranges = ranges.select(sort_nested(ranges.place, ranges.begin, ranges.end))
    nested = _nest(report, ranges, operations.thread, operations.launched)
    ranges, nested = _move_backward(report, store, counted, ranges, nested)
    return ranges, nested, _make_nodes(ranges.key, nested)


class _Nested(NamedTuple):
    """How n ranges nest, and the range that each of m operations was launched in (-1 for none).

    `level`: number of ranges around each range.
    """

    parent: IntArray
    level: IntArray
    inside: IntArray


def _nest(report: ReportRecords, ranges: NvtxRanges, thread: IntArray, sent: IntArray) -> _Nested:
    """Nest ranges, ordered by thread, start and falling end, and launches (threads, -1 for unknown, and times)."""
    order = np.lexsort((sent, thread))
    found = find_innermost(ranges.place, ranges.begin, ranges.end, thread[order], sent[order])
    inside = put(np.where(thread[order] >= 0, found.innermost, -1), order, thread.size)
    outermost = np.flatnonzero(found.parent < 0)
    threads = np.unique(np.concatenate([ranges.place[outermost], thread[thread >= 0]]))
    main_of_place = np.full(len(report.places.all) + 1, -1, np.int64)
    for number, main in find_main_threads(report, threads).items():
        main_of_place[number] = main if main != number else -1
    # What no range of its own thread contains is in the range of the main thread.
    bare = np.flatnonzero(inside < 0)
    point_thread = main_of_place[np.concatenate([thread[bare], ranges.place[outermost]])]
    point_time = np.concatenate([sent[bare], ranges.begin[outermost]])
    order = np.lexsort((point_time, point_thread))
    of_main = np.full(point_thread.size, -1, np.int64)
    points = find_innermost(ranges.place, ranges.begin, ranges.end, point_thread[order], point_time[order])
    of_main[order] = np.where(point_thread[order] >= 0, points.innermost, -1)
    inside[bare] = of_main[: bare.size]
    parent = found.parent.copy()
    parent[outermost] = of_main[bare.size :]
    around = np.where(parent[outermost] >= 0, pick(found.depth, parent[outermost], 0) + 1, 0)
    more = put(around, outermost, parent.size, 0)  # ranges of the main thread around an outermost range
    root = np.maximum.accumulate(np.where(found.parent < 0, np.arange(parent.size), 0))
    return _Nested(parent, found.depth + more[root], inside)


def _move_backward(
    report: ReportRecords, store: Store, counted: CountedEvents, ranges: NvtxRanges, nested: _Nested
) -> tuple[NvtxRanges, _Nested]:
    """Move linked backward ranges within the ranges that they belong to: in a further range around each of them."""
    sequence = load_sequence_numbers(report, store, ranges)
    if (sequence == ABSENT).all():
        return ranges, nested
    every = report.places.all
    process = np.array([place.process if isinstance(place, Thread) else -1 for place in every], np.int64)
    where = nested.parent, process[ranges.place], counted.find_step(ranges.place, ranges.begin)
    timed = TimedRanges(ranges.place, ranges.begin, ranges.end, *where, sequence)
    head, target = link_backward(timed, ranges.key, [name if not domain else "" for domain, name in ranges.keys])
    size = nested.parent.size
    parent = np.append(nested.parent, target)
    parent[head] = np.arange(size, parent.size)
    ranges = ranges.select(np.append(np.arange(size), head))
    key = np.append(ranges.key[:size], np.full(head.size, len(ranges.keys)))
    ranges = replace(ranges, key=key, keys=[*ranges.keys, ("", BACKWARD)])
    return ranges, nested._replace(parent=parent, level=_measure_levels(parent))


def _measure_levels(parent: IntArray) -> IntArray:
    level = np.zeros(parent.size, np.int64)
    inner, around = np.arange(parent.size), parent
    while inner.size:
        inner, around = inner[around >= 0], around[around >= 0]
        level[inner] += 1
        around = parent[around]
    return level


class _Nodes(NamedTuple):
    """Nodes of a tree: each stands after the node around it (-1 for none)."""

    of_range: IntArray
    parent: IntArray
    key: IntArray


def _make_nodes(key: IntArray, nested: _Nested) -> _Nodes:
    """Merge ranges with the same key in the same node, from the outermost ranges inward."""
    of_range = np.full(key.size, -1, np.int64)
    parents, keys, size = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    by_level = np.argsort(nested.level, kind="stable")
    for level, here in enumerate(np.split(by_level, np.cumsum(np.bincount(nested.level))[:-1])):
        around = pick(of_range, nested.parent[here], -1)
        if level >= DEEPEST:
            of_range[here] = around
            continue
        code, first = encode_rows(around, key[here])
        of_range[here] = size + code
        parents.append(around[first])
        keys.append(key[here][first])
        size += first.size
    return _Nodes(of_range, np.concatenate(parents), np.concatenate(keys))


def _limit(table: Table, nodes: _Nodes) -> Table:
    """Return a table without all but the nodes with most GPU time; the nodes around the others get their time."""
    size = nodes.parent.size
    if size <= MOST_NODES:
        return table
    listed = table["node"] >= 0
    whole = np.bincount(table["node"][listed], table["own_ns"][listed], size)
    for node in range(size - 1, -1, -1):  # the nodes of one report, not its events
        if nodes.parent[node] >= 0:
            whole[nodes.parent[node]] += whole[node]
    kept = mark(np.argsort(-whole, kind="stable")[:MOST_NODES], size)  # a node stands before those within it
    target = np.arange(size)
    for node in range(size):
        if not kept[node]:
            parent = nodes.parent[node]
            target[node] = target[parent] if parent >= 0 else -1
    is_other = pick(~kept, table["node"], False)
    limited = {
        **table,
        "node": pick(target, table["node"], -1),
        "unlisted_ns": np.where(is_other, table["own_ns"], 0),
        **{name: np.where(is_other, 0, table[name]) for name in ("own_ns", "count", "host_ns")},
    }
    return sum_table(limited, ["node", "task"])


def _list_paths(nodes: _Nodes, ranges: NvtxRanges, listed: Sequence[int]) -> dict[int, Path]:
    """Return the path of each listed node; () for -1."""
    names = [shorten_range_name(domain, name) for domain, name in ranges.keys]
    paths: dict[int, Path] = {-1: ()}
    for node in sorted(set(listed)):
        around, at = [], node
        while at >= 0:
            around.append(names[nodes.key[at]])
            at = int(nodes.parent[at])
        paths[node] = tuple(reversed(around))
    return paths


# ---- all reports -----------------------------------------------------------------------------------------------------


def make_range_tree(parts: Sequence[Table]) -> list[RangeNode]:
    """Return the nodes of the tree of all reports, from the tables of `sum_by_range`."""
    if not any(part["operations"].any() for part in parts):
        return []
    merged = _merge_numbered({path for part in parts for path in part["path"]})
    sums = _sum_nodes(parts, merged)
    longest = sorted(sums, key=lambda path: (bool(path), -sums[path]["gpu_ns"], len(path), path))
    for path in reversed(longest[MOST_NODES:]):  # the path around a path stands before it
        around = sums.setdefault(path[:-1], dict.fromkeys(sums[path], 0))
        around["unlisted_ns"] += sums[path]["own_ns"] + sums[path]["unlisted_ns"]
        if len(path) == 1:
            around["gpu_ns"] += sums[path]["gpu_ns"]
            around["operations"] += sums[path]["operations"]
    ordered = _order(sorted(longest[:MOST_NODES], key=lambda path: (-sums[path]["gpu_ns"], len(path), path)))
    return [RangeNode(name=path[-1] if path else "", depth=max(len(path) - 1, 0), **sums[path]) for path in ordered]


def _sum_nodes(parts: Sequence[Table], merged: Mapping[Path, Path]) -> dict[Path, dict[str, Any]]:
    """Return the numbers of each node by its path: what it has itself, and what it has with the nodes within it.

    A row is a node of a task, so the memory grows with the ranges that tasks have, and not with all that any has.
    """
    known: dict[Path, int] = {}
    numbers = [known.setdefault(path, len(known)) for part in parts for path in part["path"]]
    nodes = {path: number for number, path in enumerate(_list_nodes({merged[path] for path in known}))}
    node = np.array([nodes[merged[path]] for path in known], np.int64)[numbers]
    rows = {"node": node, **join_tables([drop_columns(part, "path") for part in parts])}
    own = sum_table(drop_columns(rows, "task", "operations"), ["node"])
    rows = _sum_around({**rows, "gpu_ns": rows["own_ns"] + rows["unlisted_ns"]}, nodes)
    tasks = np.unique(rows["task"][rows["operations"] > 0])
    launches = np.isin(rows["task"], tasks)
    of_task, ns = rows["node"][launches], rows["gpu_ns"][launches]
    all_ranks = {"node": of_task, "least_ns": ns, "most_ns": ns, "ranks": np.ones_like(ns)}
    all_ranks = sum_table(all_ranks, ["node"], {"least_ns": "min", "most_ns": "max"})
    sums = {}
    for table in own, sum_table(drop_columns(rows, "task"), ["node"]), all_ranks:
        for name, column in drop_columns(table, "node").items():
            sums[name] = np.zeros(len(nodes), np.int64)
            sums[name][table["node"]] = column
    sums["least_ns"] = np.where(sums.pop("ranks") == tasks.size, sums["least_ns"], 0)
    return dict(zip(nodes, make_rows(sums), strict=True))


def _list_nodes(paths: set[Path]) -> list[Path]:
    """Return the paths and all paths around them; () is around none."""
    return sorted({path[:length] for path in paths for length in range(min(len(path), 1), len(path) + 1)})


def _sum_around(rows: Table, nodes: Mapping[Path, int]) -> Table:
    """Return `operations` and `gpu_ns` by node and task, with those of the nodes within each node."""
    parent = np.array([nodes[path[:-1]] if len(path) > 1 else -1 for path in nodes], np.int64)
    level = np.array([len(path) for path in nodes], np.int64)
    rows = {name: rows[name] for name in ("node", "task", "operations", "gpu_ns")}
    summed, within = [], take_rows(rows, np.zeros(0, np.int64))
    for deep in range(int(level.max(initial=0)), -1, -1):
        here = join_tables([take_rows(rows, level[rows["node"]] == deep), within])
        here = sum_table(here, ["node", "task"])
        summed.append(here)
        within = {**here, "node": parent[here["node"]]}
        within = take_rows(within, within["node"] >= 0)
    return join_tables(summed)


def _merge_numbered(paths: set[Path]) -> dict[Path, Path]:
    """Return the path of each path in which names that differ only in a number have a `*` for it."""
    merged: dict[Path, Path] = {(): ()}
    every = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    for _, same_depth in groupby(sorted(every, key=len), key=len):
        by_stem = group_by_key(((merged[path[:-1]], _NUMBER.sub("*", path[-1])), path) for path in same_depth)
        for (around, stem), alike in by_stem.items():
            is_numbered = len({path[-1] for path in alike}) >= FEWEST
            merged |= {path: (*around, stem if is_numbered else path[-1]) for path in alike}
    return merged


def _order(paths: Sequence[Path]) -> list[Path]:
    """Return the paths, which are sorted by their time, each before the paths within it."""
    within = group_by_key((path[:-1], path) for path in paths if len(path) > 1)
    ordered, waiting = [], [path for path in reversed(paths) if len(path) <= 1]
    while waiting:
        path = waiting.pop()
        ordered.append(path)
        waiting += reversed(within.get(path, []))
    return ordered
