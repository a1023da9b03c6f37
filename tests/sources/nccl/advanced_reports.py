"""Small reports with NVIDIA's advanced NCCL trace.

No capture with this trace was at hand. The reports here follow the user guide of Nsight Systems ("NVIDIA NCCL Trace"):
the names of ranges, how they nest, the domain, the names of proxies' threads, and the metadata. Where the guide is
silent, such as on the thread of operations on GPUs, the reports are guesses.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.sources.nccl.nccl_reports import JSON, Call, Kernel, execute, make_global_tid, write_nccl_report
from tests.sources.small_reports import Rows

HASH = 0xE62DEDAA97644A
GPU_THREAD, PROXY_THREAD = 900, 901


def metadata(rank: int, operation: int, count: int = 256, **more: object) -> dict[str, object]:
    """Return the metadata of an operation."""
    return {
        "commHash": HASH,
        "commRank": rank,
        "count": count,
        "dataType": "ncclFloat32",
        "seqNumber": operation,
        "operationId": 1000 + operation,
        "apiId": 7000 + 10 * operation + rank,
        **more,
    }


def blocking_call(name: str, time: int, fields: Mapping[str, object], *, kernel: str = "") -> tuple[list[Call], Kernel]:
    """Return the ranges and the kernel of a call outside groups on a blocking communicator.

    The call starts at `time`, its kernel is launched 50 ns later and runs from 80 to 180 ns after it.
    """
    ranges = [
        Call(time, time + 70, "API Group"),
        Call(time, time + 10, name, fields),
        Call(time + 20, time + 70, "GroupLaunch"),
        Call(time + 25, time + 40, "GroupRuntime"),
        Call(time + 26, time + 30, name, fields),
        Call(time + 45, time + 60, "KernelLaunch", {"commHash": HASH}),
        Call(time + 85, time + 175, name, fields, thread=GPU_THREAD),
        Call(time + 90, time + 178, name, fields, thread=GPU_THREAD),
        Call(time + 90, time + 150, "a peer and a channel", thread=PROXY_THREAD),
    ]
    return ranges, Kernel(time + 80, time + 180, kernel or f"ncclDevKernel_{name}_Sum", time + 50)


def write_rank(
    path: Path,
    rank: int,
    calls: Sequence[tuple[list[Call], Kernel]],
    *,
    form: str = JSON,
    shuffled: bool = False,
    more: Mapping[str, Rows] | None = None,
    size: int = 2,
) -> Path:
    """Write the report of one rank."""
    ranges = [call for group, _ in calls for call in group]
    if shuffled:
        random.Random(5).shuffle(ranges)
    threads: Rows = (("nameId", "globalTid", "priority"), [(90_000, make_global_tid(77, PROXY_THREAD), None)])
    environment = f"RANK={rank};WORLD_SIZE={size}"
    kernels = [kernel for _, kernel in calls]
    path = write_nccl_report(path, ranges, kernels, form, environment, {"ThreadNames": threads, **(more or {})})
    execute(path, "INSERT INTO StringIds VALUES (?, ?)", 90_000, f"NCCL Progress [{rank}/{size}]: {HASH:#x}")
    return path
