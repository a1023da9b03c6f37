"""Where the host was while GPUs were idle: every gap looked at by itself."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests import report_truth as truth
from tests.report_truth import PUSH_POP, Objects, Report, split_name
from tests.spans import find_gaps, list_report_sets
from tests.summary.made import SETS, summarize_reports

pytestmark = pytest.mark.slow

_MPI_TABLES = ("P2P", "COLLECTIVES", "START_WAIT", "OTHER")
_SHORTEST_SYSTEM_CALL = 10_000
Found = dict[tuple[str, str, str], tuple[int, int]]
"""ns and number of gaps by cause, range and call."""


def extraes_name(call: str) -> str:
    """What the calls of pthreads are called that Extrae shows as one."""
    call = re.sub(r"pthread_mutex_(try|timed|clock)?lock$", "pthread_mutex_*lock", call)
    call = re.sub(r"pthread_rwlock_(try|timed|clock)?(rd|wr)lock$", r"pthread_rwlock_*\2lock", call)
    return re.sub(r"pthread_cond_(timed|clock)?wait$", "pthread_cond_*wait", call)


def host_calls(report: Report) -> pd.DataFrame:
    """begin, end, tid and name of the calls of CUDA, MPI and the operating system."""
    parts = [report.calls[["begin", "end", "tid", "name"]]]
    if report.has("OSRT_API"):
        calls = report.sql(
            f"""SELECT o.start AS begin, o."end", o.globalTid AS tid, s.value AS name FROM OSRT_API o
            JOIN StringIds s ON s.id = o.nameId
            WHERE o."end" - o.start >= {_SHORTEST_SYSTEM_CALL} AND o.eventClass NOT IN (31, 32)"""
        )
        parts.append(calls.assign(name=[extraes_name(name) for name in calls["name"]]))
    parts += [
        report.sql(
            f"""SELECT m.start AS begin, m."end", m.globalTid AS tid, s.value AS name FROM MPI_{table}_EVENTS m
            JOIN StringIds s ON s.id = m.textId"""
        )
        for table in _MPI_TABLES
        if report.has(f"MPI_{table}_EVENTS")
    ]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def host_ranges(report: Report) -> pd.DataFrame:
    ranges = report.nvtx[report.nvtx["style"] == PUSH_POP]
    names = [
        f"{domain}:{split_name(text)[0]}" if domain else split_name(text)[0]
        for domain, text in zip(ranges["domain"], ranges["text"], strict=True)
    ]
    return ranges[["begin", "end", "tid"]].assign(name=names)


class Host:
    """What a thread was in: intervals in UTC."""

    def __init__(self, events: pd.DataFrame) -> None:
        self.begin, self.end = events["begin"].to_numpy(), events["end"].to_numpy()
        self.name = events["name"].tolist()

    def within(self, low: int, high: int) -> list[tuple[int, int, str]]:
        rows = np.flatnonzero((self.begin < high) & (self.end > low))
        return [(int(self.begin[i]), int(self.end[i]), self.name[i]) for i in rows]


def expected(objects: Objects) -> list[Found]:
    """For each GPU, in the order of rows."""
    lines = truth.list_launch_lines(objects)
    calls = truth.list_calls(objects)
    operations = truth.list_gpu_operations(objects)
    returned = calls.groupby(["row", "begin"])["end"].max().to_dict()
    in_calls, in_ranges = {}, {}
    for index, report in enumerate(objects.reports):
        for events, hosts in ((host_calls(report), in_calls), (host_ranges(report), in_ranges)):
            events = events.assign(begin=events["begin"] + report.utc, end=events["end"] + report.utc)
            for tid, of_thread in events.groupby("tid"):
                if (index, tid) in objects.thread_row:
                    hosts[objects.thread_row[index, tid]] = Host(of_thread)
    nothing = Host(pd.DataFrame({"begin": [], "end": [], "name": []}))
    main_row = truth.find_main_rows(objects)
    nodes = set().union(*(report.list_graph_nodes() for report in objects.reports))
    found = []
    for _, of_gpu in operations.groupby("gpu_row"):
        to_gpu = lines[lines["receive_row"].isin(set(of_gpu["row"]))].sort_values(["send", "send_row"])
        first = to_gpu.drop_duplicates("receive").set_index("receive")
        times: dict[tuple[str, str, str], int] = defaultdict(int)
        where: dict[tuple[str, str, str], set[int]] = defaultdict(set)

        def add(key: tuple[str, str, str], begin: int, end: int, gap: int, times=times, where=where) -> None:
            times[key] += end - begin
            where[key].add(gap)

        for low, high in find_gaps(of_gpu):
            if high not in first.index:
                add(("graph" if high in nodes else "unknown", "", ""), low, high, low)
                continue
            thread, send = first.loc[high, ["send_row", "send"]]
            if returned[thread, send] <= low:
                add(("queued", "", ""), low, high, low)
                continue
            calls_now = in_calls.get(thread, nothing).within(low, high)
            ranges_now = in_ranges.get(thread, nothing).within(low, high)
            ranges_of_main = in_ranges.get(main_row[thread], nothing).within(low, high)
            limits = {low, high}.union(*((b, e) for b, e, _ in calls_now + ranges_now + ranges_of_main))
            steps = sorted(limit for limit in limits if low <= limit <= high)
            for begin, end in itertools.pairwise(steps):
                outer = min(((b, -e, n) for b, e, n in calls_now if b <= begin and e >= end), default=(0, 0, ""))
                # A thread without a range of its own works for the main thread.
                inner, of_main = (
                    max(((b, -e, n) for b, e, n in now if b <= begin and e >= end), default=(0, 0, ""))
                    for now in (ranges_now, ranges_of_main)
                )
                inner = inner if inner[2] else of_main
                add(("host", inner[2], outer[2]), begin, end, low)
        found.append({key: (ns, len(where[key])) for key, ns in times.items()})
    return found


@pytest.mark.parametrize("reports", list_report_sets(SETS, push=["samples/mpi-4", "samples/single-graph", "gpu/um-1"]))
def test_each_gap_is_where_a_look_at_it_says(reports: list[Path]) -> None:
    gpus = [gpu for gpu in summarize_reports(reports).gpus if gpu.span_ns]
    wanted = expected(Objects([Report(path) for path in reports]))
    assert len(gpus) == len(wanted)
    for gpu, causes in zip(gpus, wanted, strict=True):
        assert gpu.idle_causes is not None
        assert {(each.cause, each.range, each.call): (each.ns, each.gaps) for each in gpu.idle_causes} == causes


def test_the_sets_have_every_cause(shared_reports: Path) -> None:
    reports = ("single-node.sqlite", "um-1.sqlite")
    found = [gpu for name in reports for gpu in summarize_reports([shared_reports / "gpu" / name]).gpus]
    causes = {each.cause for gpu in found for each in gpu.idle_causes or ()}
    assert causes == {"host", "queued", "graph", "unknown"}
