"""What lies in NVTX ranges of a replay, against plain loops over all times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nsys2prv_ng.replay import ranges as host_ranges
from nsys2prv_ng.replay.graph import CALL, CODE, KERNEL, Graph
from nsys2prv_ng.replay.ranges import HostRanges, RangeFinder

THREADS, NAMES, LAST = 3, 3, 40
"""Thread 0 is the main thread of all."""
TIMES = st.tuples(st.integers(0, LAST), st.integers(0, 25)).map(lambda pair: (pair[0], pair[0] + pair[1]))
RANGES = st.lists(st.tuples(st.integers(0, THREADS - 1), st.integers(0, NAMES - 1), TIMES), max_size=8)
EDGES = st.lists(st.tuples(st.integers(-1, THREADS - 1), st.sampled_from([CODE, CALL, KERNEL]), TIMES), max_size=12)
LAUNCHES = st.lists(st.tuples(st.integers(-1, THREADS - 1), st.integers(0, LAST), st.booleans()), max_size=6)


def is_open(ranges: list[Any], thread: int, names: set[int], time: int) -> bool:
    """Whether a thread is in such a range in the ns after a time: one of its own, or of the main thread's."""

    def opened(of_thread: int) -> list[int]:
        return [name for each, name, (begin, end) in ranges if each == of_thread and begin <= time < end]

    has_own = any(each == thread for each, *_ in ranges)
    own = opened(thread)
    return bool(names & set(own if has_own and own else opened(0) if thread and not own else own))


def make_ranges(monkeypatch: pytest.MonkeyPatch, ranges: list[Any]) -> HostRanges:
    thread, name = (np.array([each[i] for each in ranges], np.int64) for i in (0, 1))
    begin, end = np.array([each[2] for each in ranges], np.int64).reshape(-1, 2).T
    found = SimpleNamespace(place=thread, begin=begin, end=end, key=name, keys=[("", f"n{n}") for n in range(NAMES)])
    monkeypatch.setattr(host_ranges, "load_nvtx_ranges", lambda *_: found)
    monkeypatch.setattr(host_ranges, "find_main_threads", lambda _, places: dict.fromkeys(places.tolist(), 0))
    report = SimpleNamespace(places=SimpleNamespace(all=range(THREADS)))
    every, one = np.arange(THREADS), np.zeros(THREADS, np.int64)
    lanes: Any = SimpleNamespace(thread_row=every, thread_report=one, thread_place=every)
    job: Any = SimpleNamespace(reports=[report], store=None)
    return HostRanges(job, lanes)


@example([(0, 0, (5, 10)), (0, 0, (20, 25))], [(0, CODE, (12, 15)), (0, CODE, (3, 16))], [], {0})
@given(RANGES, EDGES, LAUNCHES, st.sets(st.integers(0, NAMES - 1), min_size=1))
def test_time_and_launches_in_ranges(ranges: list[Any], edges: list[Any], launches: list[Any], names: set[int]) -> None:
    edges = sorted(edges, key=lambda edge: edge[2][1])  # a graph has them in the order of their ends
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = make_ranges(monkeypatch, ranges)
    thread, kind = (np.array([edge[i] for edge in edges], np.int32) for i in (0, 1))
    begin, end = np.array([edge[2] for edge in edges], np.int64).reshape(-1, 2).T.copy()
    call = np.arange(len(edges), dtype=np.int32)
    graph = Graph(
        end, call, call, np.append(call, 0).astype(np.int64), call, call, kind.astype(np.int8), end - begin, 0
    )
    sender, launched, is_known = (np.array([each[i] for each in launches], np.int64) for i in (0, 1, 2))
    lanes: Any = SimpleNamespace(
        operations=SimpleNamespace(thread=sender, launched=launched),
        launch=np.where(is_known, 0, -1),
        calls=SimpleNamespace(begin=begin),
        thread_row=np.arange(THREADS),
    )
    found_edges, share, operations = RangeFinder(graph, lanes, thread, call, found).find(sorted(names))

    expected = {}
    for number, (own, of_kind, (low, high)) in enumerate(edges):
        ns = sum(is_open(ranges, own, names, time) for time in range(low, high))
        if ns and own >= 0 and of_kind != KERNEL:
            expected[number] = ns / (high - low)
    assert dict(zip(found_edges.tolist(), share.tolist(), strict=True)) == pytest.approx(expected)
    sent = [
        n for n, (own, time, known) in enumerate(launches) if known and own >= 0 and is_open(ranges, own, names, time)
    ]
    assert sorted(operations.tolist()) == sent
