"""A small simulator of pipeline schedules, in plain loops, which writes a report for each rank.

Each rank carries out its list of forward and backward passes in order. Before a pass, a kernel receives from the
neighbour: it ends LATENCY after both it and the send have started. After a pass, a kernel on another stream sends, and
ends after LATENCY, whether the other rank receives or not. Hosts launch everything long before it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import connect

from tests.sources.nccl.nccl_reports import (
    COMMUNICATOR,
    OPERATION,
    PEER,
    RANK,
    RANKS,
    SIZE,
    Call,
    Kernel,
    write_nccl_report,
)

MS, LATENCY = 10**6, 1_000
_START, _LAUNCH = 50 * MS, 20_000
"""When the first stage starts to compute, and the time between two launches (ns)."""
_KERNELS = {"gemm": "gemm", "ncclAllReduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL"}
"""Kernels of other kinds than messages."""
Pass = tuple[str, int]
Work = Callable[[int, int, str], int]
"""Returns how long (ns) a stage computes in a step, for a forward ("F") or a backward pass ("B")."""


def list_gpipe(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    return [(kind, number) for kind in "FB" for number in range(micro_batches)]


def list_one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Pass]:
    ahead = min(stages - 1 - stage, micro_batches)
    passes: list[Pass] = [("F", number) for number in range(ahead)]
    for number in range(micro_batches - ahead):
        passes += [("F", ahead + number), ("B", number)]
    return passes + [("B", number) for number in range(micro_batches - ahead, micro_batches)]


@dataclass
class Stage:
    """What a stage does: (begin, end, kind, peer) of its kernels by step, its waits, and when each step ends."""

    kernels: list[list[tuple[int, int, str, int]]] = field(default_factory=list)
    waits: list[tuple[int, int]] = field(default_factory=list)
    """Begin and end of each wait for a message."""
    sends: list[tuple[int, int]] = field(default_factory=list)
    """When each send moves data: without the time until its receive starts, if that is before its end."""
    ends: list[int] = field(default_factory=list)


def simulate(
    schedule: Callable[[int, int, int], list[Pass]], stages: int, micro_batches: int, steps: int, work: Work
) -> list[Stage]:
    """Run all stages until nothing is left; a pass runs as soon as the ones before it, and its message, permit."""
    todo = [
        [(step, *one) for step in range(steps) for one in schedule(n, stages, micro_batches)] for n in range(stages)
    ]
    done = [Stage([[] for _ in range(steps)], ends=[0] * steps) for _ in range(stages)]
    now = [_START] * stages
    sent: dict[tuple[int, int, str, int], tuple[int, int]] = {}
    """Start of the send to a stage, by (stage, step, kind, number), and its index in the sends of the other stage."""
    while any(todo):
        moved = False
        for n in range(stages):
            while todo[n]:
                step, kind, number = todo[n][0]
                source = n - 1 if kind == "F" else n + 1
                target = n + 1 if kind == "F" else n - 1
                kernels = done[n].kernels[step]
                if 0 <= source < stages:
                    if (n, step, kind, number) not in sent:
                        break
                    send, index = sent[n, step, kind, number]
                    if send < now[n] <= send + LATENCY:
                        done[source].sends[index] = (now[n], send + LATENCY)
                    end = max(now[n], send) + LATENCY
                    kernels.append((now[n], end, "ncclRecv", source))
                    if send > now[n]:
                        done[n].waits.append((now[n], send))
                    now[n] = end
                end = now[n] + work(n, step, kind)
                kernels.append((now[n], end, "gemm", -1))
                now[n] = end
                if 0 <= target < stages:
                    sent[target, step, kind, number] = (end, len(done[n].sends))
                    done[n].sends.append((end, end + LATENCY))
                    kernels.append((end, end + LATENCY, "ncclSend", target))
                done[n].ends[step] = max(kernel[1] for kernel in kernels)
                del todo[n][0]
                moved = True
        assert moved, "deadlock"
    return done


def write_reports(folder: Path, stages: Sequence[Stage], hosts: Sequence[str] = ()) -> list[Path]:
    """Write a report for each rank, with a range for each step; all ranks have one clock."""
    last = max(stage.ends[-1] for stage in stages) + MS
    paths = []
    for rank, stage in enumerate(stages):
        payload = {COMMUNICATOR: 1, RANKS: len(stages), RANK: rank, "CUDA device": rank}
        calls, kernels, ranges = [Call(1, 2, "ncclCommInitRank", payload)], [], []
        time = 100
        for own in stage.kernels:
            begin = time
            for start, end, kind, peer in own:
                time += _LAUNCH
                is_message = kind != "gemm"
                if is_message:
                    last_field = {OPERATION: "Sum"} if kind == "ncclAllReduce" else {PEER: peer}
                    payload = {COMMUNICATOR: 1, SIZE: 1 << 20, **last_field}
                    calls.append(Call(time, time + _LAUNCH // 2, kind, payload))
                name, stream = _KERNELS.get(kind, "ncclDevKernel_SendRecv"), 9 if kind == "ncclSend" else 7
                kernels.append(Kernel(start, end, name, time + _LAUNCH // 4, device=rank, stream=stream))
            time += _LAUNCH
            ranges.append((begin, time))
        path = folder / f"rank{rank}.sqlite"
        more = {"ANALYSIS_DETAILS": (("duration",), [(last,)])}
        paths.append(write_nccl_report(path, calls, kernels, environment=f"RANK={rank}", more=more))
        with closing(connect(path)) as database, database:
            [thread] = database.execute("SELECT globalTid FROM NVTX_EVENTS WHERE eventType = 59 LIMIT 1").fetchone()
            database.executemany(
                "INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, domainId, text) VALUES (?, ?, 59, ?, 0, ?)",
                [(begin, end, thread, f"step {number}") for number, (begin, end) in enumerate(ranges)],
            )
            if hosts:
                database.execute("UPDATE TARGET_INFO_SYSTEM_ENV SET value = ? WHERE name = 'Hostname'", (hosts[rank],))
    return paths
