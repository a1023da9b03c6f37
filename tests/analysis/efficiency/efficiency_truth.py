"""Efficiencies by plain SQL and unions of intervals in numpy: nothing of the translator is used.

A set of reports is read once, with times in UTC (ns). Each GPU and each main thread has its own list of windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from tests.report_truth import (
    PID,
    PUSH_POP,
    START_END,
    Objects,
    Report,
    find_main_rows,
    list_calls,
    list_gpu_operations,
    list_launch_lines,
    split_name,
    uses_nccl,
)
from tests.spans import find_gaps

Spans = np.ndarray
"""Begin and end of n intervals, n x 2."""
WindowList = Sequence[tuple[int, int]]
COMPUTE, NCCL, MEMORY, GRAPH, BETWEEN = range(5)
"""GRAPH: traced as a whole, in a job that uses NCCL. BETWEEN: copies from a GPU to another one."""
KERNELS = COMPUTE, NCCL, GRAPH
EVERYTHING = *KERNELS, BETWEEN, MEMORY
_MPI_TABLES = ("P2P", "COLLECTIVES", "START_WAIT", "OTHER")
NOTHING: Spans = np.zeros((0, 2), np.int64)


# ---- intervals -------------------------------------------------------------------------------------------------------


def unite(spans: Spans) -> Spans:
    """Return the union of intervals: sorted, apart."""
    spans = spans[spans[:, 1] > spans[:, 0]]
    if not len(spans):
        return NOTHING
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    reached = np.maximum.accumulate(spans[:, 1])
    first = np.flatnonzero(np.append(True, spans[1:, 0] > reached[:-1]))
    return np.stack([spans[first, 0], reached[np.append(first[1:], len(spans)) - 1]], axis=1)


def clip(spans: Spans, windows: WindowList) -> Spans:
    """Return the parts of intervals in windows."""
    return np.concatenate([NOTHING, *(np.clip(spans, low, high) for low, high in windows)])


def measure(spans: Spans, windows: WindowList) -> int:
    """Return how much of windows, which are apart, intervals cover."""
    covered = unite(spans)
    return sum(int(np.diff(np.clip(covered, low, high)).sum()) for low, high in windows)


def complement(spans: Spans, low: int, high: int) -> Spans:
    """Return the time from low to high that intervals do not cover."""
    covered = clip(unite(spans), [(low, high)])
    return unite(np.stack([np.append(low, covered[:, 1]), np.append(covered[:, 0], high)], axis=1))


def sum_windows(windows: WindowList) -> int:
    return sum(high - low for low, high in windows)


# ---- reports ---------------------------------------------------------------------------------------------------------


@dataclass
class Gpu:
    """A physical GPU: its operations by kind, its users and its captures."""

    operations: dict[int, list[Spans]] = field(default_factory=lambda: {kind: [] for kind in EVERYTHING})
    processes: set[tuple[int, int]] = field(default_factory=set)
    captures: list[tuple[int, int]] = field(default_factory=list)

    def get(self, *kinds: int) -> Spans:
        return np.concatenate([NOTHING, *(part for kind in kinds for part in self.operations[kind])])


@dataclass
class Main:
    """The main thread of a process, by (index of the report, process), and its node."""

    process: tuple[int, int]
    node: str
    cuda: Spans
    mpi: Spans


class Truth:
    """What the reports of a job show."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self.reports = [Report(path) for path in paths]
        self.gpus: dict[tuple[str, str], Gpu] = {}
        self.mains: list[Main] = []
        self.captures: list[tuple[int, int]] = []
        shown: list[Main] = []
        hides_nccl = uses_nccl(self.reports)
        for index, report in enumerate(self.reports):
            by_thread = _read_calls(report)
            operations = list(_read_operations(report, GRAPH if hides_nccl else COMPUTE))
            capture = _find_capture(report, [spans for *_, spans in operations], by_thread)
            self.captures.append(capture)
            for process, device, kind, spans in operations:
                number = report.find_gpu(process, device)
                gpu = self.gpus.setdefault((report.host, report.find_gpu_uuid(number)), Gpu())
                gpu.operations[kind].append(spans)
                gpu.processes.add((index, process))
                if capture not in gpu.captures:
                    gpu.captures.append(capture)
            application = {tid >> 24 for tid, (cuda, mpi) in by_thread.items() if len(cuda) + len(mpi)}
            application |= {process for process, *_ in operations} | _find_processes_with_nccl(report)
            for tid, (cuda, mpi) in by_thread.items():
                if tid & PID == tid >> 24 & PID:
                    main = Main((index, tid >> 24), report.host, cuda, mpi)
                    shown.append(main)
                    self.mains += [main] if tid >> 24 in application else []
        self.mains = self.mains or shown

    @property
    def capture(self) -> tuple[int, int]:
        return min(low for low, _ in self.captures), max(high for _, high in self.captures)

    @cached_property
    def ranges(self) -> pd.DataFrame:
        """Ranges of the program: process, tid, style, domain, name, number, begin, end, depth."""
        parts = []
        for index, report in enumerate(self.reports):
            nvtx = report.nvtx[
                report.nvtx["style"].isin((PUSH_POP, START_END)) & ~report.nvtx["domain"].isin(("NCCL", "MPI"))
            ]
            split = [split_name(text) for text in nvtx["text"]]
            parts.append(
                nvtx.assign(
                    process=[(index, tid >> 24) for tid in nvtx["tid"]],
                    name=[name for name, _ in split],
                    number=pd.array([number for _, number in split], "Int64"),
                    begin=nvtx["begin"] + report.utc,
                    end=nvtx["end"] + report.utc,
                    depth=_measure_depths(nvtx),
                )
            )
        return pd.concat(parts, ignore_index=True)

    def list_repeated(self) -> pd.DataFrame:
        """Return the ranges that a thread opened three times at depth 1 or 2."""
        ranges = self.ranges[self.ranges["depth"] <= 2]
        if ranges.empty:
            return ranges
        times = ranges.groupby(["process", "tid", "domain", "name"])["begin"].transform("size")
        return ranges[times >= 3]


def _measure_depths(nvtx: pd.DataFrame) -> list[int]:
    """Return how many ranges of the thread each push/pop range is in, itself included; 1 for other ranges."""
    depth = pd.Series(1, nvtx.index)
    for _, own in nvtx[nvtx["style"] == PUSH_POP].groupby("tid"):
        own = own.assign(length=own["end"] - own["begin"]).sort_values(["begin", "length"], ascending=[True, False])
        opened: list[int] = []
        for at, begin, end in zip(own.index, own["begin"], own["end"], strict=True):
            opened = [*(until for until in opened if until > begin), end]
            depth[at] = len(opened)
    return depth.tolist()


def _read_spans(report: Report, query: str) -> Spans:
    return np.array(report.connection.execute(query).fetchall(), np.int64).reshape(-1, 2) + report.utc


def _read_operations(report: Report, of_graph: int) -> Iterable[tuple[int, int, int, Spans]]:
    """Yield process, device, kind and times of the operations."""
    for table, kind in (("KERNEL", COMPUTE), ("GRAPH_TRACE", of_graph), ("MEMCPY", MEMORY), ("MEMSET", MEMORY)):
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        if not report.has(name):
            continue
        is_nccl = "s.value LIKE 'nccl%'" if table == "KERNEL" else "0"
        if table == "MEMCPY":
            is_nccl = "coalesce(copyKind = 10 AND srcDeviceId <> dstDeviceId, 0)"
        join = "JOIN StringIds s ON s.id = o.shortName" if table == "KERNEL" else ""
        rows = report.sql(
            f"""SELECT o.globalPid >> 24 AS process, o.deviceId AS device, {is_nccl} AS nccl, o.start, o."end"
            FROM {name} o {join}"""
        )
        for (process, device, nccl), own in rows.groupby(["process", "device", "nccl"]):
            spans = own[["start", "end"]].to_numpy(np.int64) + report.utc
            communicates = BETWEEN if table == "MEMCPY" else NCCL
            yield int(process), int(device), communicates if nccl else kind, spans


def _read_calls(report: Report) -> dict[int, tuple[Spans, Spans]]:
    """Return the calls of CUDA and of MPI of each thread with any event, by globalTid."""
    tables = {"CUPTI_ACTIVITY_KIND_RUNTIME": 0} | {f"MPI_{table}_EVENTS": 1 for table in _MPI_TABLES}
    calls: dict[int, tuple[list[Spans], list[Spans]]] = {}
    for table in report.tables:
        if table in ("NVTX_EVENTS", "OSRT_API") or table.startswith(("OPENMP_", "OPENACC_")):
            query = f'SELECT DISTINCT globalTid FROM {table} WHERE globalTid IS NOT NULL AND "end" IS NOT NULL'
            calls |= {tid: ([], []) for (tid,) in report.connection.execute(query)}
    # Before 2023 nsys recorded MPI as NVTX ranges.
    for tid, own in report.nvtx[report.nvtx["domain"] == "MPI"].groupby("tid"):
        calls[int(tid)][1].append(own[["begin", "end"]].to_numpy(np.int64) + report.utc)
    for table, kind in tables.items():
        if report.has(table):
            rows = report.sql(f'SELECT globalTid AS tid, start, "end" FROM {table} WHERE "end" IS NOT NULL')
            for tid, own in rows.groupby("tid"):
                spans = own[["start", "end"]].to_numpy(np.int64) + report.utc
                calls.setdefault(int(tid), ([], []))[kind].append(spans)
    return {
        tid: (np.concatenate([NOTHING, *cuda]), np.concatenate([NOTHING, *mpi])) for tid, (cuda, mpi) in calls.items()
    }


def _find_processes_with_nccl(report: Report) -> set[int]:
    return {tid >> 24 for tid in report.nvtx.loc[report.nvtx["domain"] == "NCCL", "tid"].unique().tolist()}


def _find_capture(
    report: Report, operations: Sequence[Spans], calls: dict[int, tuple[Spans, Spans]]
) -> tuple[int, int]:
    spans = [*operations, *(part for parts in calls.values() for part in parts)]
    if report.has("ANALYSIS_DETAILS"):
        spans.append(np.array([[report.utc, report.utc + report.duration]]))
    whole = np.concatenate([NOTHING, *spans])
    return int(whole[:, 0].min()), int(whole[:, 1].max())


# ---- times and efficiencies ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Times in the windows of each GPU and main thread: lists by GPU or thread."""

    window: int
    compute: list[int]
    kernels: list[int]
    active: list[int]
    outside_mpi: list[int]
    useful: list[int]
    nodes: list[str]
    """Of each main thread."""

    def rate_devices(self, *, nccl_is_useful: bool) -> tuple[float, ...] | None:
        """Return parallel efficiency, load balance, communication, orchestration."""
        useful = self.kernels if nccl_is_useful else self.compute
        if not useful:
            return None
        if not max(useful):
            return 0.0, 0.0, 0.0, max(self.active) / self.window
        return (
            sum(useful) / (len(useful) * self.window),
            sum(useful) / (len(useful) * max(useful)),
            max(useful) / max(self.active),
            max(self.active) / self.window,
        )

    def rate_hosts(self) -> tuple[float, ...] | None:
        """Return parallel efficiency, that of MPI, its load balance and communication, device offload, and the load
        balance in nodes and of nodes."""
        outside, threads = self.outside_mpi, len(self.outside_mpi)
        if not threads:
            return None
        of_node: dict[str, list[int]] = {}
        for node, ns in zip(self.nodes, outside, strict=True):
            of_node.setdefault(node, []).append(ns)
        fullest = max(sum(own) / len(own) for own in of_node.values())
        return (
            sum(self.useful) / (threads * self.window),
            sum(outside) / (threads * self.window),
            sum(outside) / (threads * max(outside)),
            max(outside) / self.window,
            sum(self.useful) / sum(outside),
            fullest / max(outside),
            sum(outside) / threads / fullest,
        )


def measure_times(gpus: Sequence[tuple[Gpu, WindowList]], mains: Sequence[tuple[Main, WindowList]]) -> Times:
    """Measure GPUs and main threads in their windows, which are apart; those without windows do not count."""
    gpus, mains = ([(unit, own) for unit, own in units if sum_windows(own)] for units in (gpus, mains))
    outside = [sum_windows(own) - measure(main.mpi, own) for main, own in mains]
    calls = [measure(np.concatenate([main.mpi, main.cuda]), own) for main, own in mains]
    return Times(
        window=max((sum_windows(own) for _, own in (*gpus, *mains)), default=0),
        compute=[measure(gpu.get(COMPUTE), own) for gpu, own in gpus],
        kernels=[measure(gpu.get(*KERNELS), own) for gpu, own in gpus],
        active=[measure(gpu.get(*EVERYTHING), own) for gpu, own in gpus],
        outside_mpi=outside,
        useful=[sum_windows(own) - spent for (_, own), spent in zip(mains, calls, strict=True)],
        nodes=[main.node for main, _ in mains],
    )


def unite_ranges(ranges: pd.DataFrame, processes: Iterable[tuple[int, int]]) -> WindowList:
    """Return the union of the ranges of some processes."""
    own = ranges[ranges["process"].isin(list(processes))]
    return [(low, high) for low, high in unite(own[["begin", "end"]].to_numpy(np.int64)).tolist()]


def measure_own(truth: Truth, ranges: pd.DataFrame) -> Times:
    """Measure in the own ranges of each process: a GPU in those of all processes that use it."""
    gpus = [(gpu, unite_ranges(ranges, gpu.processes)) for gpu in truth.gpus.values()]
    return measure_times(gpus, [(main, unite_ranges(ranges, [main.process])) for main in truth.mains])


def measure_common(truth: Truth, windows: WindowList) -> Times:
    """Measure all GPUs and main threads in the same windows."""
    return measure_times([(gpu, windows) for gpu in truth.gpus.values()], [(main, windows) for main in truth.mains])


def split_time(gpu: Gpu, windows: WindowList) -> dict[str, int]:
    """Return the time of a GPU in windows: what is certain without operations over ranks and launches.

    `whole_graph` is that of graphs as a whole while no kernel computes, `communication` that of kernels of NCCL and
    copies between GPUs beside neither, `idle` that between operations of one capture.
    """
    compute, kernels, all_operations = gpu.get(COMPUTE), gpu.get(*KERNELS, BETWEEN), gpu.get(*EVERYTHING)
    times = dict.fromkeys(("idle", "before_first", "after_last"), 0)
    for low, high in unite(np.array(gpu.captures, np.int64)).tolist():
        inside = clip(all_operations, [(low, high)])
        inside = inside[inside[:, 1] > inside[:, 0]]
        first, last = (int(inside[:, 0].min()), int(inside[:, 1].max())) if len(inside) else (high, high)
        times["before_first"] += measure(np.array([[low, first]]), windows)
        times["after_last"] += measure(np.array([[last, high]]), windows)
        times["idle"] += measure(complement(all_operations, first, last), windows)
    times["not_captured"] = sum_windows(windows) - measure(np.array(gpu.captures, np.int64), windows)
    times["compute"] = measure(compute, windows)
    times["whole_graph"] = measure(gpu.get(COMPUTE, GRAPH), windows) - times["compute"]
    times["communication"] = measure(kernels, windows) - times["compute"] - times["whole_graph"]
    times["memory"] = measure(all_operations, windows) - measure(kernels, windows)
    return times


# ---- idle time -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IdlePiece:
    """A part of a gap of a GPU (host and uuid, or number): its cause and, for the host, the innermost range."""

    gpu: tuple[str, str]
    begin: int
    end: int
    cause: str
    range: str = ""


def list_idle_pieces(truth: Truth) -> list[IdlePiece]:
    """Return why GPUs were idle, each gap looked at by itself."""
    objects = Objects(truth.reports)
    lines = list_launch_lines(objects)
    returned = list_calls(objects).groupby(["row", "begin"])["end"].max().to_dict()
    ranges = _list_ranges_of_rows(objects)
    main_row = find_main_rows(objects)
    nodes = set().union(*(report.list_graph_nodes() for report in truth.reports))
    operations = list_gpu_operations(objects)
    names = {
        row: (objects.reports[index].host, objects.reports[index].find_gpu_uuid(number))
        for (index, number), row in objects.device_row.items()
    }
    pieces = []
    for row, own in operations.groupby("gpu_row"):
        gpu = names[row]
        to_gpu = lines[lines["receive_row"].isin(set(own["row"]))].sort_values(["send", "send_row"])
        first = to_gpu.drop_duplicates("receive").set_index("receive")
        launches = dict(zip(first.index, zip(first["send_row"], first["send"], strict=True), strict=True))
        for low, high in find_gaps(own):
            if high not in launches:
                pieces.append(IdlePiece(gpu, low, high, "graph" if high in nodes else "unknown"))
            else:
                thread = launches[high][0]
                late = min(max(returned[launches[high]], low), high)  # until then, the host had not launched
                if late < high:
                    pieces.append(IdlePiece(gpu, late, high, "queued"))
                inside = [  # a thread without a range of its own works for the main thread
                    (row == thread, begin, end, name)
                    for row in {thread, main_row[thread]}
                    for begin, end, name in ranges.get(row, [])
                    if begin < late and end > low
                ]
                limits = sorted({low, late, *(min(max(t, low), late) for _, b, e, _ in inside for t in (b, e))})
                for begin, end in pairwise(limits):
                    around = [(own, b, -e, name) for own, b, e, name in inside if b <= begin and e >= end]
                    pieces.append(IdlePiece(gpu, begin, end, "host", max(around, default=(0, 0, 0, ""))[3]))
    return pieces


def list_idle_gaps(truth: Truth) -> list[tuple[int, int]]:
    """Return the gaps of all GPUs, which have one capture each."""
    gaps: list[tuple[int, int]] = []
    for gpu in truth.gpus.values():
        busy = unite(gpu.get(*EVERYTHING))
        gaps += zip(busy[:-1, 1].tolist(), busy[1:, 0].tolist(), strict=True)
    return gaps


def _list_ranges_of_rows(objects: Objects) -> dict[int, list[tuple[int, int, str]]]:
    """Return begin, end and name of the push/pop ranges of each thread, by row."""
    ranges: dict[int, list[tuple[int, int, str]]] = {}
    for index, report in enumerate(objects.reports):
        nvtx = report.nvtx[report.nvtx["style"] == PUSH_POP]
        columns = (nvtx[name] for name in ("tid", "begin", "end", "domain", "text"))
        for tid, begin, end, domain, text in zip(*columns, strict=True):
            name = f"{domain}:{split_name(text)[0]}" if domain else split_name(text)[0]
            row = objects.thread_row[index, tid]
            ranges.setdefault(row, []).append((begin + report.utc, end + report.utc, name))
    return ranges


def sum_pieces(pieces: Iterable[IdlePiece], windows: dict[tuple[str, str], WindowList]) -> dict[tuple[str, str], int]:
    """Return the idle time by cause and range in the windows of each GPU."""
    sums: dict[tuple[str, str], int] = {}
    for piece in pieces:
        inside = sum(max(0, min(piece.end, high) - max(piece.begin, low)) for low, high in windows[piece.gpu])
        if inside:
            key = piece.cause, piece.range
            sums[key] = sums.get(key, 0) + inside
    return sums


# ---- waiting ---------------------------------------------------------------------------------------------------------


def split_communication(gpu: Gpu, kernels: Iterable[tuple[int, int, int]], windows: WindowList) -> tuple[int, int]:
    """Return waiting and moving while a GPU does nothing else; `kernels`: begin, end of the waiting, end of each."""
    times = np.array(list(kernels), np.int64).reshape(-1, 3)
    compute = gpu.get(COMPUTE, GRAPH)
    with_moving = np.concatenate([compute, times[:, 1:]])
    moving = measure(with_moving, windows) - measure(compute, windows)
    return measure(np.concatenate([with_moving, times[:, :2]]), windows) - measure(with_moving, windows), moving
