"""Time and memory to fit clocks to simulated matches, by the numbers of reports, of collectives of each, and of nodes.

python benchmarks/fit_clocks.py [REPORTS [COLLECTIVES [NODES]]]
"""

from __future__ import annotations

import resource
import sys
import time

import numpy as np

from nsys2prv_ng.clock.alignment import fit_from_matches
from nsys2prv_ng.clock.matches import Matches


def simulate(reports: int, collectives: int, nodes: int, seed: int = 1) -> tuple[Matches, np.ndarray, np.ndarray]:
    """Return collectives of all reports within a minute, and the offset (ns) and drift of each node."""
    random = np.random.default_rng(seed)
    offset, drift = random.uniform(-10e6, 10e6, nodes), random.uniform(-10e-6, 10e-6, nodes)
    time_ns = np.repeat(np.sort(random.uniform(0, 60e9, collectives)), reports)
    domain = np.tile((np.arange(reports) * nodes // reports).astype(np.int32), collectives)
    enter = np.rint(time_ns - 50_000 + offset[domain] + drift[domain] * time_ns).astype(np.int64)
    late = random.standard_normal(time_ns.size, dtype=np.float32)
    np.abs(late, out=late)
    late *= 5e3
    late[random.random(late.size, dtype=np.float32) < 0.02] += 1e6
    time_ns += late
    del late
    leave = np.rint(time_ns + offset[domain] + drift[domain] * time_ns).astype(np.int64)
    first = np.arange(collectives + 1, dtype=np.int64) * reports
    is_whole = np.ones(collectives, np.bool_)
    return Matches(first, is_whole, np.zeros(collectives, np.int64), domain, enter, leave), offset, drift


def main() -> None:
    reports, collectives, nodes = [*map(int, sys.argv[1:]), *(1024, 10_000, 128)[len(sys.argv) - 1 :]]
    names = [f"node{i:04}" for i in range(nodes)]
    small, _, _ = simulate(8, 50, 4)
    fit_from_matches("auto", small, 0, names[:4])  # compiles
    matches, offset, drift = simulate(reports, collectives, nodes)
    start = time.perf_counter()
    alignment = fit_from_matches("auto", matches, 0, names)
    seconds = time.perf_counter() - start
    times = np.linspace(0, 60e9, 9)
    wrong = []
    for node, o, d in zip(alignment.nodes, offset, drift, strict=True):
        local = times + o + d * times
        wrong.append(local + node.correction.offset + node.correction.drift * (local - node.correction.since) - times)
    reference = names.index(alignment.nodes[0].reference)
    worst = np.abs(np.array(wrong) - wrong[reference]).max() / 1000
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{reports} reports, {collectives} collectives, {nodes} nodes: {seconds:.1f} s, {memory:.2f} GB in all,")
    print(f"largest error {worst:.2f} us, causality broken by {alignment.before.broken}, then {alignment.after.broken}")


if __name__ == "__main__":
    main()
