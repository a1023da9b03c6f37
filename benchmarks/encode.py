"""Millions of records a second that one core sorts, merges and formats as text, in memory.

python benchmarks/encode.py [REPORT.sqlite...]

The table always has events of the usual shape (lines of less than 40 bytes, one pair or two) in some and in many sorted
runs. If reports are given, it also has their events, a run of each kind, without communications between reports and
without states. Sort goes from the runs of a report, one after the other, to one sequence; merge from the sorted runs in
a store to the records of slices; text from these to lines. Each figure is the best of some rounds, warm, by the CPU
time of this process: other work of the machine counts little.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from nsys2prv_ng.clock.alignment import ReportClock, align_clocks
from nsys2prv_ng.clock.domains import assign_nodes
from nsys2prv_ng.objects.tree import ReportPlaces, build_tree
from nsys2prv_ng.paraver.encode import RowNumbers, encode
from nsys2prv_ng.paraver.labels import Numbering
from nsys2prv_ng.reading.read_report import read_report
from nsys2prv_ng.records import columns as rec
from nsys2prv_ng.records.columns import Pair, Records
from nsys2prv_ng.records.gather import PlacedRun, gather_records, group_runs
from nsys2prv_ng.records.runs import load_records, store_records
from nsys2prv_ng.records.store import LocalStore, Store
from nsys2prv_ng.report.export_all import locate_exports
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import DERIVED, SOURCES
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.translation.slices import cut_into_slices

_NO_ROWS = RowNumbers(*(np.zeros(0, np.int64) for _ in range(3)))
EVENTS, RUNS, THREADS = 20_000_000, (64, 1000), 8
ROUNDS = 5


def main() -> None:
    start = time.perf_counter()
    compile_all()
    print(f"first calls: {time.perf_counter() - start:.1f} s (compiles what is not in numba's cache)\n")
    print("| records | millions | runs | bytes a line | sort M/s | merge M/s | text M/s | text MB/s |")
    print("|---|---|---|---|---|---|---|---|")
    for runs in RUNS:
        print(measure("synthetic", *make_synthetic(EVENTS, runs)), flush=True)
    if paths := [Path(path) for path in sys.argv[1:]]:
        print(measure("of the reports", *read_runs(paths)))


def compile_all() -> None:
    """Call everything once, so that numba compiles it."""
    runs, rows, _ = make_synthetic(64, 2)
    measure("", runs, rows, [runs])


def make_synthetic(events: int, runs: int) -> tuple[list[Records], RowNumbers, list[list[Records]]]:
    """Return sorted runs of intervals over ten minutes, THREADS threads a run; the numbers of the rows; the runs again,
    as those of one report.
    """
    random = np.random.default_rng(1)
    n = events // runs // 2
    runs_of_intervals = []
    for run in range(runs):
        place = run * THREADS + random.integers(0, THREADS, n)
        begin = np.sort(random.integers(0, 600_000_000_000, n))
        end = begin + random.integers(1, 100_000, n)
        name, second = random.integers(1, 1000, n), random.integers(1, 500, n)
        pairs = [Pair(63000006, name), Pair(9101, second, random.random(n) < 0.2)]
        runs_of_intervals.append(rec.make_intervals(place, begin, end, pairs, [63000006]).sorted())
    rows = np.arange(runs * THREADS)
    return runs_of_intervals, RowNumbers(rows + 1, rows // THREADS + 1, rows % THREADS + 1), [runs_of_intervals]


def read_runs(paths: Sequence[Path]) -> tuple[list[Records], RowNumbers, list[list[Records]]]:
    """Return the runs of all reports, the numbers of the rows, and the runs of each report."""
    exports = locate_exports(paths, paths[0].parent, Progress())
    with tempfile.TemporaryDirectory() as folder, LocalStore(Path(folder), 1 << 40) as store:
        sources = SOURCES + DERIVED
        read = [read_report(export, sources, SourceOptions(), store, lambda _: None, ()) for export in exports]
        nodes, names = assign_nodes([report.metadata for report in read])
        clocks = [ReportClock(node, r.metadata.utc_of_zero) for node, r in zip(nodes, read, strict=True)]
        maps = align_clocks("utc", clocks, names)[1]
        reports = [report.place_on(node, clock) for report, node, clock in zip(read, nodes, maps, strict=True)]
        places = [
            ReportPlaces(report.metadata, report.places, report.node, *(report.limits() or (0, 0)))
            for report in reports
        ]
        tree = build_tree(places, names)
        numbering = Numbering([report.labels for report in reports])
        by_report = []
        for report, rows in zip(reports, tree.rows, strict=True):
            runs = [load_records(run, store) for run in report.runs()]
            for records in runs:
                rec.shift_times(records, report.clock.offset)  # no source's records are on the common clock yet
                rec.resolve_maps(records.columns, 0, len(records), rows, *numbering.maps(report.labels))
            by_report.append(runs)
    return [run for runs in by_report for run in runs], tree.model.number_rows(), by_report


def measure(title: str, runs: Sequence[Records], rows: RowNumbers, unsorted: Sequence[Sequence[Records]]) -> str:
    """Return a line of the table."""
    origin = min(int(run.time.min()) for run in runs)
    count = sum(map(len, runs))
    sort = time_best(lambda: (rec.concatenate(parts).sorted() for parts in unsorted))
    with tempfile.TemporaryDirectory() as folder, LocalStore(Path(folder), 1 << 40) as store:
        placed = [PlacedRun(run) for records in runs for run in store_records(records, store, on_common_clock=True)]
        blocks = list(merge(placed, store))
        merging = time_best(lambda: merge(placed, store))
    size = sum(encode(block, np.arange(len(block)), rows, origin).size for block in blocks)
    text = time_best(lambda: (encode(block, np.arange(len(block)), rows, origin) for block in blocks))
    rates = (
        f"{count / sort / 1e6:.1f} | {count / merging / 1e6:.1f} | {count / text / 1e6:.1f} | {size / text / 1e6:.0f}"
    )
    return f"| {title} | {count / 1e6:.1f} | {len(runs)} | {size / count:.1f} | {rates} |"


def merge(placed: Sequence[PlacedRun], store: Store) -> Iterator[Records]:
    """Yield the records of slices of sorted runs in a store, in order."""
    limits = cut_into_slices(placed, _NO_ROWS, 0, compressed=False).limits.tolist()
    groups = group_runs(placed)
    for low, high in pairwise(limits):
        yield gather_records(groups, store, 1 << 31, low, high).sorted()


def time_best(work: Callable[[], Iterator[object]]) -> float:
    """Return the CPU seconds to go through what `work` yields, the least of ROUNDS."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in work():
            pass
        seconds.append(time.process_time() - start)
    return min(seconds)


if __name__ == "__main__":
    main()
