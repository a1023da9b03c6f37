"""A made report of two processes with CPU samples and kernels: the reports in samples/ have no CPU samples."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from tests.sources.small_reports import PROCESS, export

END = 1_000_000
FUNCTIONS = ["train", "load", "(libcuda.so.1)", "(no call chain)"]
_STRINGS = ["poll", "kernel", "train", "load", "0x7f00", "/usr/lib/libcuda.so.1", "/home/u/prog"]


@dataclass(frozen=True)
class SampledReport:
    path: Path
    kernels: dict[int, dict[int, list[tuple[int, int]]]]
    """Start and end (ns) of the kernels of each process (from 0) on each GPU."""
    samples: list[tuple[int, int, str]]
    """Row, time (ns) and function of each sample."""
    process_of_row: list[int]


def make_sampled_report(folder: Path, seed: int = 1) -> SampledReport:
    """Write the report. Process 0 has two threads and two GPUs, process 1 has one of each."""
    rng = random.Random(seed)
    processes = [PROCESS, PROCESS + (1 << 24)]
    threads = [(processes[0] | 77, 0), (processes[0] | 90, 0), (processes[1] | 78, 1)]
    kernels = {process: {gpu: _make_kernels(rng) for gpu in gpus} for process, gpus in ((0, (0, 1)), (1, (2,)))}
    frames = [(2, 6, 0), (3, 6, 0), (4, 5, 1)]
    chains, samples, composite = [], [], []
    for row, (thread, _) in enumerate(threads):
        for time in rng.sample(range(END - 100), 700):
            sample = len(composite) + 1
            function = rng.randrange(4)
            composite.append((sample, time, thread))
            chains += [(sample, *frame, 0) for frame in frames[function : function + 1]]
            samples.append((row, time, FUNCTIONS[function]))
    columns = ("start", "end", "globalPid", "deviceId", "contextId", "streamId", "shortName", "demangledName")
    operations = [
        (begin, end, processes[process], gpu, 1, 7, 1, 1)
        for process, of_gpu in kernels.items()
        for gpu, spans in of_gpu.items()
        for begin, end in spans
    ]
    tables = {
        "CUPTI_ACTIVITY_KIND_KERNEL": (columns, operations),
        "OSRT_API": (("start", "end", "globalTid", "nameId"), [(0, END, thread, 0) for thread, _ in threads]),
        "COMPOSITE_EVENTS": (("id", "start", "globalTid"), composite),
        "SAMPLING_CALLCHAINS": (("id", "symbol", "module", "unresolved", "stackDepth"), chains),
        "TARGET_INFO_GPU": (("id", "name", "uuid"), [(gpu, "GPU", f"uuid {gpu}") for gpu in range(3)]),
    }
    path = export(folder / "sampled.sqlite", _STRINGS, tables)
    return SampledReport(path, kernels, samples, [process for _, process in threads])


def _make_kernels(rng: random.Random) -> list[tuple[int, int]]:
    """Return start and end of short and long kernels, with gaps of any length."""
    limits = sorted(rng.sample(range(END), 400))
    return list(zip(limits[::2], limits[1::2], strict=True))
