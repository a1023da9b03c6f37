"""Compute time of GPUs by kernel class, by plain SQL and a loop over the times at which kernels begin and end.

Only the class of a kernel's name is the package's own; tests of the classes look at names by themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from nsys2prv_ng.paraver.value_tables import KERNEL_CLASSES
from nsys2prv_ng.sources.cuda.kernel_classes import classify
from tests.analysis.efficiency.efficiency_truth import Truth, WindowList
from tests.report_truth import Report, uses_nccl

Kernel = tuple[int, int, str]
"""Begin and end (UTC), and the class."""
Pieces = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Begins and ends of the time of each class of a GPU, in order and apart."""

_KERNELS = """SELECT k.globalPid >> 24, k.deviceId, k.start, k."end", s.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN StringIds s ON s.id = k.shortName JOIN StringIds d ON d.id = k.demangledName"""
_GRAPHS = 'SELECT globalPid >> 24, deviceId, start, "end" FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE'


def list_pieces(truth: Truth) -> dict[tuple[str, str], Pieces]:
    """Return the time of each class of each GPU (host and uuid)."""
    of_gpu: dict[tuple[str, str], list[Kernel]] = {key: [] for key in truth.gpus}
    for report in truth.reports:
        for process, device, begin, end, name in _read(report, has_graphs=not uses_nccl(truth.reports)):
            key = report.host, report.find_gpu_uuid(report.find_gpu(process, device))
            of_gpu[key].append((begin + report.utc, end + report.utc, name))
    return {key: _split(kernels) for key, kernels in of_gpu.items()}


def _read(report: Report, *, has_graphs: bool) -> Iterator[tuple[int, int, int, int, str]]:
    """Yield process, device, begin, end and class of what computes, graphs as a whole included or not."""
    if report.has("CUPTI_ACTIVITY_KIND_KERNEL"):
        rows = report.connection.execute(_KERNELS).fetchall()
        names = sorted({demangled for *_, demangled in rows})
        class_of = {name: KERNEL_CLASSES[n] for name, n in zip(names, classify(names).tolist(), strict=True)}
        for *limits, short, demangled in rows:
            if not short.startswith("nccl"):
                yield (*limits, class_of[demangled])
    if has_graphs and report.has("CUPTI_ACTIVITY_KIND_GRAPH_TRACE"):
        for limits in report.connection.execute(_GRAPHS):
            yield (*limits, "Opaque CUDA graph")


def _split(kernels: Sequence[Kernel]) -> Pieces:
    """Look between each two neighbouring times at which of the kernels that run began first; else which is longest."""
    waiting = sorted(kernels, reverse=True)
    running: list[Kernel] = []
    pieces = defaultdict(list)
    times = sorted({time for begin, end, _ in kernels for time in (begin, end)})
    for low, high in pairwise(times):
        while waiting and waiting[-1][0] <= low:
            running.append(waiting.pop())
        running = [kernel for kernel in running if kernel[1] > low]
        if running:
            *_, name = min(running, key=lambda kernel: (kernel[0], -kernel[1]))
            pieces[name].append((low, high))
    return {name: (np.array(own)[:, 0], np.array(own)[:, 1]) for name, own in pieces.items()}


def sum_pieces(pieces: Pieces, windows: WindowList) -> Counter[str]:
    """Return the time (ns) of each class in windows, which are apart."""
    sums: Counter[str] = Counter()
    limits = np.array(windows, np.int64).reshape(-1, 2)
    for name, (begin, end) in pieces.items():
        before = np.append(0, np.cumsum(end - begin))

        def measure_until(
            time: np.ndarray, begin: np.ndarray = begin, end: np.ndarray = end, before: np.ndarray = before
        ) -> np.ndarray:
            at = np.searchsorted(begin, time)
            return before[at] - np.maximum(np.append(0, end)[at] - time, 0)

        sums[name] += int((measure_until(limits[:, 1]) - measure_until(limits[:, 0])).sum())
    return sums
