"""Time and memory to find the critical path of a job: to load its lanes, and to walk along them.

python benchmarks/critical_path.py [RANKS [OPERATIONS]]

The reports of all ranks are made in a temporary folder: kernels that follow each other on one stream, and after every
_KERNELS of them an all-reduce on another stream, for which the next kernel waits. Each rank launches far ahead. The
path therefore runs over the slowest rank of each step.
"""

from __future__ import annotations

import json
import resource
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from nsys2prv_ng.analysis.path import critical_path
from nsys2prv_ng.analysis.path.lanes import load_lanes
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.reading.open_reports import ReadOptions
from nsys2prv_ng.runtime.progress import Progress

_KERNELS = 49
"""Kernels of a rank between two all-reduces."""
_AHEAD, _CALL, _GAP = 2_000_000, 3_000, 1_500
"""How long before its operation a call begins, how long it lasts, and the time between two operations (ns)."""
_STRINGS = ["", "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "cudaLaunchKernel", "ncclAllReduce", "NCCL"]
_STRINGS += ["ncclCommInitRank", "cudaEventRecord", "cudaStreamWaitEvent"]
_KERNEL, _NCCL, _LAUNCH, _ALL_REDUCE, _, _INIT, _RECORD, _WAIT = range(1, 9)


class Times(NamedTuple):
    """Begins and ends (ns) of the operations of all ranks: ranks x steps x (kernels, and the all-reduce last)."""

    begin: np.ndarray
    end: np.ndarray


def make_times(ranks: int, steps: int, seed: int = 1) -> Times:
    """Return when all operations run: an all-reduce moves data from when the last rank has come to it."""
    random = np.random.default_rng(seed)
    duration = random.integers(8_000, 40_000, (ranks, steps, _KERNELS))
    end = np.cumsum(duration + _GAP, axis=2)  # from the begin of the step
    arrived = end[:, :, -1] + _GAP
    released = arrived.max(axis=0) + random.integers(20_000, 200_000, steps)
    start = 5_000_000 + np.concatenate([[0], np.cumsum(released + _GAP)[:-1]])
    begins = np.concatenate([end - duration, arrived[:, :, None]], axis=2) + start[None, :, None]
    ends = np.concatenate([end, np.broadcast_to(released, (ranks, steps))[:, :, None]], axis=2) + start[None, :, None]
    return Times(begins, ends)


def write_report(path: Path, rank: int, ranks: int, times: Times) -> None:
    """Write the report of a rank."""
    process = 1 << 48 | (100 + rank) << 24
    begin, end = times.begin[rank].ravel(), times.end[rank].ravel()
    n = begin.size
    is_nccl = np.arange(n) % (_KERNELS + 1) == _KERNELS
    number = np.arange(1, n + 1)
    launch = begin - _AHEAD
    name, stream = np.where(is_nccl, _NCCL, _KERNEL), np.where(is_nccl, 15, 7)
    tid = process | 100 + rank
    # Streams wait for each other: the all-reduce for the kernel before it, the next kernel for the all-reduce.
    nccl = np.flatnonzero(is_nccl)
    record = np.concatenate([launch[nccl] - 3_600, launch[nccl] + 3_600])
    wait = record + 1_300
    event = np.concatenate([2 * nccl, 2 * nccl + 1])
    on, of = np.repeat([7, 15], nccl.size), np.repeat([15, 7], nccl.size)
    ids = number[-1] + 1 + np.arange(2 * record.size)
    calls = [launch, record, wait]
    calls_end = [launch + _CALL, record + 1_000, wait + 1_000]
    names = [np.full(n, _LAUNCH), np.full(record.size, _RECORD), np.full(wait.size, _WAIT)]
    payload = {"NCCL communicator ID": 1, "Message size [bytes]": 1 << 20, "Reduction operation": "Sum"}
    init = {"NCCL communicator ID": 1, "No. of ranks": ranks, "Rank": rank, "CUDA device": 0}
    nvtx = [(0, None, 75, tid, None, 1, "NCCL", None), (1, 2, 59, tid, _INIT, 1, None, json.dumps(init))]
    text = json.dumps(payload)
    nvtx += [(low, low + _CALL + 200, 59, tid, _ALL_REDUCE, 1, None, text) for low in (launch[nccl] - 100).tolist()]
    tables = {
        "StringIds": ("id, value", enumerate(_STRINGS)),
        "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", [(1_700_000_000 * 10**9,)]),
        "TARGET_INFO_SYSTEM_ENV": ("name, value", [("Hostname", "one"), ("DeviceEnvironment", f"RANK={rank}")]),
        "META_DATA_EXPORT": ("name, value", [("EXPORT_SCHEMA_VERSION", "3.20.3")]),
        "ANALYSIS_DETAILS": ("duration", [(int(end.max()),)]),
        "CUPTI_ACTIVITY_KIND_KERNEL": (
            "start, end, globalPid, deviceId, contextId, streamId, correlationId, shortName, demangledName",
            rows(begin, end, process, 0, 1, stream, number, name, name),
        ),
        "CUPTI_ACTIVITY_KIND_RUNTIME": (
            "start, end, globalTid, nameId, correlationId",
            rows(*map(np.concatenate, (calls, calls_end)), tid, np.concatenate(names), np.append(number, ids)),
        ),
        "CUPTI_ACTIVITY_KIND_CUDA_EVENT": (
            "globalPid, correlationId, contextId, streamId, eventId",
            rows(process, ids[: record.size], 1, on, event),
        ),
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": (
            "start, end, globalPid, correlationId, syncType, contextId, streamId, eventId",
            rows(wait, wait + 1_000, process, ids[record.size :], 2, 1, of, event),
        ),
        "NVTX_EVENTS": ("start, end, eventType, globalTid, textId, domainId, text, jsonText", nvtx),
    }
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = OFF")
        for table, (columns, values) in tables.items():
            quoted = ", ".join(f'"{column}"' for column in columns.split(", "))
            database.execute(f"CREATE TABLE {table} ({quoted})")
            database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns.split(', ')))})", values)


def rows(*columns: np.ndarray | int) -> zip[tuple[int, ...]]:
    """Return rows of columns; a number is the same in all rows."""
    n = max(np.size(column) for column in columns)
    return zip(*(np.broadcast_to(column, n).tolist() for column in columns), strict=True)


def get_memory() -> float:
    """Return the most memory so far (GB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def find(folder: Path, *, shows: bool) -> None:
    """Find the path through the reports of a folder; print what that took."""
    with open_job(sorted(folder.glob("*.sqlite")), folder, ReadOptions(), Progress()) as job:
        waits = find_waits(job)
        memory = [get_memory()]
        start = time.perf_counter()
        lanes = load_lanes(job, waits)
        loading = time.perf_counter() - start
        memory.append(get_memory())
        walking = 0.0
        original = critical_path.walk

        def walk(*arguments: object) -> object:
            nonlocal walking
            begin = time.perf_counter()
            segments = original(*arguments)  # type: ignore[arg-type]
            walking += time.perf_counter() - begin
            return segments

        critical_path.walk = walk  # type: ignore[assignment]
        start = time.perf_counter()
        path = critical_path.find_critical_path(job, lanes)
        finding = time.perf_counter() - start
        critical_path.walk = original
        memory.append(get_memory())
    if not shows:
        return
    assert path is not None
    n = waits.row.size
    print(f"lanes loaded in {loading:.1f} s, path walked in {walking:.2f} s, found and described in {finding:.1f} s")
    print(f"{path.begin.size} segments, {n} kernels of NCCL, {int(path.length.sum()) / 1e9:.1f} s of path")
    print(f"peak memory {memory[0]:.2f} GB with the job, {memory[1]:.2f} with its lanes, {memory[2]:.2f} at the end")


def main() -> None:
    ranks, operations = [*map(int, sys.argv[1:]), *(8, 10_000_000)[len(sys.argv) - 1 :]]
    steps = operations // ranks // (_KERNELS + 1)
    for number, own_steps in enumerate((3, steps)):  # the first compiles
        times = make_times(ranks, own_steps)
        with TemporaryDirectory() as folder:
            for rank in range(ranks):
                write_report(Path(folder) / f"rank{rank}.sqlite", rank, ranks, times)
            if number:
                print(f"{ranks} ranks, {times.begin.size / 1e6:.2f} million operations")
            del times
            find(Path(folder), shows=number > 0)


if __name__ == "__main__":
    main()
