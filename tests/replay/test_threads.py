"""How long a call needs once nothing holds it up, and what ran before a time, against plain loops over random calls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from nsys2prv_ng.analysis.path import columns as path
from nsys2prv_ng.replay.devices import _find_sent
from nsys2prv_ng.replay.graph import ALWAYS, NAMES, NETWORK, NONE, STAGE, Numbers, make_edges
from nsys2prv_ng.replay.threads import find_before, limit_returns
from tests.examples import examples


def test_calls_of_a_name_return_as_fast_as_the_fastest_of_them() -> None:
    lowered = 0
    for seed in range(3 * examples(100)):
        rng = np.random.default_rng(seed)
        numbers = Numbers(int(rng.integers(1, 5)), int(rng.integers(1, 8)))
        nodes = numbers.others + int(rng.integers(0, 4))
        time = rng.integers(0, 30, nodes)
        name = rng.integers(0, 3, numbers.calls)
        since, to = rng.integers(0, nodes, (2, 60))
        edges = make_edges(since, to, rng.integers(0, len(NAMES), 60), rng.integers(0, 20, 60))
        rows = list(zip(*(column.tolist() for column in edges), strict=True))
        needs: dict[int, list[int]] = {}
        for call in range(numbers.calls):
            begin, end = numbers.call_begin + call, numbers.call_end + call
            held = [(source, kind) for source, target, kind, _ in rows if target == end and kind not in NETWORK]
            waited = [time[source] for source, kind in held if kind != STAGE and time[source] <= time[end]]
            staged = [time[source] - time[begin] for source, kind in held if kind == STAGE]
            if waited:
                needs.setdefault(name[call], []).append([time[end] - max(waited), *staged][-1])
        expected = []
        for _, target, kind, least in rows:
            is_return = numbers.call_end <= target < numbers.others and kind not in (*NETWORK, STAGE)
            of_name = needs.get(name[target - numbers.call_end], [ALWAYS]) if is_return else [ALWAYS]
            expected.append(min(least, *of_name))
        lowered += sum(one < row[3] for one, row in zip(expected, rows, strict=True))
        limit_returns(edges, time, numbers, name)
        assert edges.least.tolist() == expected, seed
    assert lowered > 0


def test_the_last_start_or_end_of_a_group_before_a_time() -> None:
    for seed in range(examples(100)):
        rng = np.random.default_rng(seed)
        threads, rows = int(rng.integers(1, 5)), []
        for thread in range(threads):
            times = np.sort(rng.choice(60, 2 * int(rng.integers(0, 5)), replace=False))
            rows += [(thread, begin, end) for begin, end in times.reshape(-1, 2).tolist()]
        thread, begin, end = np.array(rows, np.int64).reshape(-1, 3).T
        calls, of_threads = np.zeros((9, len(rows)), np.int64), np.zeros((6, threads), np.int64)
        calls[path.BEGIN], calls[path.END], calls[path.THREAD] = begin, end, thread
        limits = np.searchsorted(thread, np.arange(threads + 1))
        of_threads[path.FIRST], of_threads[path.AFTER] = limits[:-1], limits[1:]
        group, wanted, time = rng.integers(-1, 3, threads), rng.integers(-1, 3, 20), rng.integers(-5, 70, 20)
        numbers = Numbers(3, len(rows))
        lanes: Any = SimpleNamespace(tables=(None, calls, of_threads, None))
        found = find_before(lanes, numbers, group, wanted, time)
        for node, own, now in zip(found.tolist(), wanted.tolist(), time.tolist(), strict=True):
            events = [(b, numbers.call_begin + c) for c, (t, b, _) in enumerate(rows) if group[t] == own and b < now]
            events += [(e, numbers.call_end + c) for c, (t, _, e) in enumerate(rows) if group[t] == own and e <= now]
            latest = max((at for at, _ in events), default=None)
            assert node in [n for at, n in events if at == latest] if own >= 0 and events else node == NONE


def test_an_unknown_launch_comes_before_those_of_what_ran_later() -> None:
    for seed in range(examples(100)):
        rng = np.random.default_rng(seed)
        count = int(rng.integers(1, 12))
        stream = np.sort(rng.integers(0, 3, count))
        begin = rng.integers(0, 50, count)
        for one in range(3):
            begin[stream == one] = np.sort(begin[stream == one])
        launched = np.where(rng.random(count) < 0.5, path.NEVER, begin - rng.integers(0, 30, count))
        sent = np.empty(count, np.int64)
        _find_sent(launched, begin, stream, sent)
        for k in range(count):
            later = [launched[i] for i in range(k, count) if stream[i] == stream[k] and launched[i] > path.NEVER]
            assert sent[k] == (launched[k] if launched[k] > path.NEVER else min([begin[k], *later]))
