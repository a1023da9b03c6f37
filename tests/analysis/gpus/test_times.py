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
Key = tuple[str, str, str, str]
Found = dict[Key, tuple[int, int]]
"""ns and number of gaps by cause, range, call and what the host launched next."""


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


def follow_streams(report: Report) -> dict[tuple[int, int], int]:
    """Return until when (UTC) CUDA events made the stream of an operation wait, by process and correlation id.

    Calls are looked at one by one: an event is complete when its stream has ended what it was given before the event.
    """
    table = "SELECT globalPid >> 24 AS process, correlationId AS correlation, contextId AS context, streamId AS stream"
    steps: dict[tuple[int, int], list[tuple[str, int, int, int]]] = defaultdict(list)
    for name, where in (("CUDA_EVENT", ""), ("SYNCHRONIZATION", "WHERE syncType = 2 AND eventId < 4294967295")):
        if report.has(f"CUPTI_ACTIVITY_KIND_{name}"):
            for row in report.sql(f"{table}, eventId AS event FROM CUPTI_ACTIVITY_KIND_{name} {where}").itertuples():
                steps[row.process, row.correlation].append((name, row.context, row.stream, row.event))
    for row in report.operations.itertuples():
        steps[row.process, row.correlation].append(("run", row.context, row.stream, row.end + report.utc))
    ends: dict[tuple[int, int, int], int] = defaultdict(int)
    complete: dict[tuple[int, int], int] = {}
    until: dict[tuple[int, int], int] = {}
    calls = sorted(zip(report.calls["begin"], report.calls["tid"], report.calls["correlation"], strict=True))
    for _, tid, correlation in calls:
        process = int(tid) >> 24
        for kind, context, number, item in steps.pop((process, correlation), ()):
            stream = process, context, number
            if kind == "CUDA_EVENT":
                complete[process, item] = ends[stream]
            elif kind == "SYNCHRONIZATION":
                ends[stream] = max(ends[stream], complete.get((process, item), 0))
            else:
                until.setdefault((process, correlation), ends[stream])
                ends[stream] = max(ends[stream], item)
    return until


def name_copies(report: Report) -> dict[tuple[int, int, int], str]:
    """Return what each copy between GPU and pageable or pinned memory is called, by process, correlation id, start."""
    if not report.has("CUPTI_ACTIVITY_KIND_MEMCPY"):
        return {}
    rows = report.sql(
        """SELECT globalPid >> 24 AS process, correlationId AS correlation, start, copyKind AS kind, srcKind AS source,
        dstKind AS target FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind IN (1, 2)"""
    )
    memory = {0: "pageable", 1: "pinned"}
    names = {}
    for row in rows.itertuples():
        host, way = (row.source, "from") if row.kind == 1 else (row.target, "to")
        if host in memory:
            names[row.process, row.correlation, row.start + report.utc] = f"copy {way} {memory[host]} memory"
    return names


def name_waits(low: int, high: int, event: int, last: set[int], own: int) -> list[tuple[int, int, str]]:
    """Return the parts of the time in which an operation was queued: `event`, until when its stream waited for one;
    `last`: the tasks whose operations ended last on the GPU, if it was launched by then; `own`: its task."""
    middle = min(max(low, event), high)
    parts = [(low, middle, "cudaStreamWaitEvent")] if middle > low else []
    switched = min(max(low + 150_000, middle), high) if last and own not in last else middle
    parts += [(middle, switched, "another process on the GPU"), (switched, high, "")]
    return [part for part in parts if part[1] > part[0]]


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
    waits = {
        (index, *key): until
        for index, report in enumerate(objects.reports)
        for key, until in follow_streams(report).items()
    }
    copies = {
        (index, *key): name for index, report in enumerate(objects.reports) for key, name in name_copies(report).items()
    }
    loads = calls[calls["name"].str.contains("ModuleLoad|LibraryLoad|cuLink|nvrtcCompile|nvJitLinkComplete")]
    loads = {row: Host(of_row) for row, of_row in loads.groupby("row")}
    index_of_row = {row: index for (index, *_), row in objects.stream_row.items()}
    found = []
    for _, of_gpu in operations.groupby("gpu_row"):
        to_gpu = lines[lines["receive_row"].isin(set(of_gpu["row"]))].sort_values(["send", "send_row"])
        first = to_gpu.drop_duplicates("receive").set_index("receive")
        times: dict[Key, int] = defaultdict(int)
        where: dict[Key, set[int]] = defaultdict(set)

        def add(key: Key, begin: int, end: int, gap: int, times=times, where=where) -> None:
            times[key] += end - begin
            where[key].add(gap)

        tasks = of_gpu.groupby("end")["task"].agg(set).to_dict()
        started = {(row.begin, row.row): row for row in of_gpu.itertuples()}
        for low, high in find_gaps(of_gpu):
            if high not in first.index:
                node = next((row for (begin, _), row in started.items() if begin == high), None)
                last = tasks[low] if high in nodes else set()
                for begin, end, name in name_waits(low, high, 0, last, node.task):
                    add(("graph" if high in nodes else "unknown", "", name, ""), begin, end, low)
                continue
            thread, send, row = first.loc[high, ["send_row", "send", "receive_row"]]
            operation, late = started[high, row], min(max(low, returned[thread, send]), high)
            until = waits.get((index_of_row[row], operation.process, operation.correlation), 0)
            last = tasks[low] if late == low else set()
            for begin, end, name in name_waits(late, high, until, last, operation.task):
                add(("queued", "", name, ""), begin, end, low)
            copied = copies.get((index_of_row[row], operation.process, operation.correlation, high), "")
            copied = copied if main_row[thread] == thread else ""
            following = "loaded kernels" if loads.get(thread, nothing).within(low, late) else copied
            calls_now = in_calls.get(thread, nothing).within(low, late)
            ranges_now = in_ranges.get(thread, nothing).within(low, late)
            ranges_of_main = in_ranges.get(main_row[thread], nothing).within(low, late)
            limits = {low, late}.union(*((b, e) for b, e, _ in calls_now + ranges_now + ranges_of_main))
            steps = sorted(limit for limit in limits if low <= limit <= late)
            for begin, end in itertools.pairwise(steps):
                outer = min(((b, -e, n) for b, e, n in calls_now if b <= begin and e >= end), default=(0, 0, ""))
                # A thread without a range of its own works for the main thread.
                inner, of_main = (
                    max(((b, -e, n) for b, e, n in now if b <= begin and e >= end), default=(0, 0, ""))
                    for now in (ranges_now, ranges_of_main)
                )
                inner = inner if inner[2] else of_main
                add(("host", inner[2], outer[2], following), begin, end, low)
        found.append({key: (ns, len(where[key])) for key, ns in times.items()})
    return found


@pytest.mark.parametrize(
    "reports", list_report_sets(SETS, push=["samples/mpi-4", "samples/single-graph", "gpu/um-1", "gpu/oneproc-4gpu"])
)
def test_each_gap_is_where_a_look_at_it_says(reports: list[Path]) -> None:
    gpus = [gpu for gpu in summarize_reports(reports).gpus if gpu.span_ns]
    wanted = expected(Objects([Report(path) for path in reports]))
    assert len(gpus) == len(wanted)
    for gpu, causes in zip(gpus, wanted, strict=True):
        assert gpu.idle_causes is not None
        assert {
            (each.cause, each.range, each.call, each.next): (each.ns, each.gaps) for each in gpu.idle_causes
        } == causes


def test_the_sets_have_every_cause(shared_reports: Path) -> None:
    reports = ("single-node.sqlite", "um-1.sqlite")
    found = [gpu for name in reports for gpu in summarize_reports([shared_reports / "gpu" / name]).gpus]
    causes = {each.cause for gpu in found for each in gpu.idle_causes or ()}
    assert causes == {"host", "queued", "graph", "unknown"}
