"""A small data-parallel job in plain loops, with a planted cause of its slow steps; it writes a report for each rank.

In each step, a host launches a kernel and an all-reduce of three ranks, which ends REDUCE after the last rank's kernel.
The next step starts then.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

from tests.sources.nccl.nccl_reports import COMMUNICATOR, OPERATION, RANK, RANKS, SIZE, Call, Kernel, write_nccl_report

US, MS = 10**3, 10**6
STEPS, LATE = 14, 1
"""Number of steps, and the rank that is late."""
_COUNT = 3
_HOST, _KERNEL, _REDUCE = 100 * US, 300 * US, 50 * US
_GEMM, _ALL_REDUCE = "sgemm_128x128_nn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
EXTRA = 3 * MS
"""How much longer a slow step takes."""
Span = tuple[int, int, str]


def write_job(folder: Path, slow: Collection[int], cause: str) -> list[Path]:
    """Write the reports of a job. `cause`: of slow steps, "call", "calls", "kernel", "late" or "range"."""
    now = MS
    calls: list[list[Span]] = [[] for _ in range(_COUNT)]
    ranges: list[list[Span]] = [[] for _ in range(_COUNT)]
    kernels: list[list[Kernel]] = [[] for _ in range(_COUNT)]
    reduces: list[list[Call]] = [[] for _ in range(_COUNT)]
    for step in range(STEPS):
        is_slow, ready = step in slow, []
        for rank in range(_COUNT):
            time = now + _HOST
            if is_slow:
                time = _plant(cause, rank, time, calls[rank], ranges[rank])
            length = _KERNEL + (EXTRA if is_slow and cause == "kernel" else 0)
            begin = time + 10 * US
            kernels[rank].append(Kernel(begin, begin + length, _GEMM, time, device=rank))
            payload = {COMMUNICATOR: 1, SIZE: 1 << 20, OPERATION: "Sum"}
            reduces[rank].append(Call(time + 2 * US, time + 5 * US, "ncclAllReduce", payload))
            ready.append((begin + length, time + 3 * US))
        end = max(time for time, _ in ready) + _REDUCE
        for rank, (begin, launch) in enumerate(ready):
            kernels[rank].append(Kernel(begin, end, _ALL_REDUCE, launch, device=rank))
            ranges[rank].append((now, end, f"step {step}"))
        now = end + 5 * US
    return [
        _write(folder, rank, now, calls[rank], ranges[rank], kernels[rank], reduces[rank]) for rank in range(_COUNT)
    ]


def _plant(cause: str, rank: int, time: int, calls: list[Span], ranges: list[Span]) -> int:
    """Add what hosts do more of in a slow step, from a time on; return when it is over."""
    if cause == "call":
        calls.append((time, time + EXTRA, "cudaMalloc"))
    elif cause == "calls":  # a third in each, and a third in user code
        calls += [(time, time + EXTRA // 3, "cudaMalloc"), (time + EXTRA // 3, time + 2 * EXTRA // 3, "cudaFree")]
    elif cause == "range":  # a library is loaded for a moment, after it was made
        ranges.append((time, time + EXTRA, "checkpoint"))
        calls.append((time + EXTRA - US, time + EXTRA, "cuLibraryLoadData"))
    elif cause == "late" and rank == LATE:
        ranges.append((time, time + EXTRA, "late host"))
    else:
        return time
    return time + EXTRA


def _write(
    folder: Path, rank: int, last: int, calls: list[Span], ranges: list[Span], kernels: list[Kernel], nccl: list[Call]
) -> Path:
    member = Call(1, 2, "ncclCommInitRank", {COMMUNICATOR: 1, RANKS: _COUNT, RANK: rank, "CUDA device": rank})
    more = {"ANALYSIS_DETAILS": (("duration",), [(last,)])}
    path = folder / f"rank{rank}.sqlite"
    write_nccl_report(path, [member, *nccl], kernels, environment=f"RANK={rank}", more=more)
    with closing(connect(path)) as database, database:
        [thread] = database.execute("SELECT globalTid FROM NVTX_EVENTS WHERE eventType = 59 LIMIT 1").fetchone()
        database.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, domainId, text) VALUES (?, ?, 59, ?, 0, ?)",
            [(begin, end, thread, text) for begin, end, text in ranges],
        )
        names = {name: 1000 + n for n, name in enumerate(sorted({name for *_, name in calls}))}
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(key, name) for name, key in names.items()])
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)",
            [(begin, end, thread, names[name], 10_000 + n) for n, (begin, end, name) in enumerate(calls)],
        )
    return path
