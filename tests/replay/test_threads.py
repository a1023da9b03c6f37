"""How long a call needs once nothing holds it up any more, against plain loops over random dependencies."""

from __future__ import annotations

import numpy as np

from nsys2prv_ng.replay.columns import ALWAYS, NAMES, NETWORK, STAGE, Numbers, make_edges
from nsys2prv_ng.replay.threads import limit_returns
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
