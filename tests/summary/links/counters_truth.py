"""Counters of links by plain SQL and loops over each sample: in windows, and while NCCL all-reduces transfer data."""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

Spans = list[tuple[int, int]]
"""Start and end (UTC in ns), which do not touch."""


class Numbers(NamedTuple):
    """Mean and number of samples, in all the time and during NCCL; `plain` is the mean without weights."""

    mean: float
    samples: int
    nccl_mean: float | None
    nccl_samples: int
    plain: float


_KERNELS = """SELECT k.start + u.utcEpochNs, k."end" + u.utcEpochNs, k.globalPid, d.gpuId
    FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN TARGET_INFO_SESSION_START_TIME u JOIN StringIds s ON s.id = k.shortName
    JOIN TARGET_INFO_CUDA_DEVICE d ON d.cudaId = k.deviceId AND d.pid = (k.globalPid >> 24 & 0xFFFFFF)
    WHERE s.value LIKE 'ncclDevKernel_AllReduce%' ORDER BY k.start"""
_SAMPLES = """SELECT m.typeId & 255, n.metricName, m.timestamp + u.utcEpochNs, m.value
    FROM GPU_METRICS m JOIN TARGET_INFO_SESSION_START_TIME u JOIN TARGET_INFO_GPU_METRICS n USING (typeId, metricId)
    WHERE n.metricName LIKE 'NVLink%\\%]' ESCAPE '\\' OR n.metricName LIKE 'PCIe%\\%]' ESCAPE '\\'
    ORDER BY m.timestamp"""


def read_all_reduces(reports: Sequence[Path], *, splits: bool = True) -> dict[int, Spans]:
    """Return when all-reduces transfer data, by GPU: from the last start of the k-th one of any process to its end.

    Without `splits`, return the kernels.
    """
    by_process: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for number, report in enumerate(reports):
        with closing(sqlite3.connect(report)) as database:
            for begin, end, process, gpu in database.execute(_KERNELS):
                by_process[number, process].append((begin, end, gpu))
    spans: dict[int, Spans] = defaultdict(list)
    for operation in zip(*by_process.values(), strict=True):
        last = max(begin for begin, _, _ in operation)
        for begin, end, gpu in operation:
            spans[gpu].append((min(last, end) if splits else begin, end))
    return {gpu: unite(own) for gpu, own in spans.items()}


def unite(spans: Spans) -> Spans:
    united: Spans = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if united and begin <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], end)
        else:
            united.append((begin, end))
    return united


def read_counters(reports: Sequence[Path]) -> dict[tuple[int, str], list[tuple[int, float]]]:
    """Return time and value of each sample of links, by GPU and name of the counter."""
    counters: dict[tuple[int, str], list[tuple[int, float]]] = defaultdict(list)
    for report in reports:
        with closing(sqlite3.connect(report)) as database:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'GPU_METRICS'").fetchone():
                for gpu, name, time, value in database.execute(_SAMPLES):
                    counters[gpu, name].append((time, value))
    return dict(counters)


def find_last(reports: Sequence[Path]) -> dict[int, int]:
    """Return the time of the last sample of each GPU, of any counter."""
    last: dict[int, int] = {}
    for report in reports:
        with closing(sqlite3.connect(report)) as database:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'GPU_METRICS'").fetchone():
                rows = database.execute(
                    """SELECT typeId & 255, MAX(timestamp) + utcEpochNs FROM GPU_METRICS
                    JOIN TARGET_INFO_SESSION_START_TIME GROUP BY 1"""
                )
                last |= dict(rows.fetchall())
    return last


def measure(
    samples: Sequence[tuple[int, float]], windows: Spans, spans: Spans, last: int, longest: float = float("inf")
) -> Numbers:
    """Return the numbers of one counter. A value lasts to the next, the last one to `last`; none lasts over `longest`.

    A value before a longer gap lasts for no time.
    """
    weighted, length, samples_seen, plain = 0.0, 0, 0, []
    nccl_weighted, nccl_length, nccl_samples = 0.0, 0, 0
    begins = [begin for begin, _ in spans]
    for number, (begin, value) in enumerate(samples):
        end = samples[number + 1][0] if number + 1 < len(samples) else last
        end = end if end - begin <= longest else begin
        for low, high in windows:
            inside = min(end, high) - max(begin, low)
            if inside > 0 or (begin == end and low <= begin <= high):
                samples_seen += 1
                plain.append(value)
                weighted += value * inside
                length += inside
                at = bisect_right(begins, begin) - 1
                if inside > 0 and at >= 0 and end <= spans[at][1]:
                    nccl_samples += 1
                    nccl_weighted += value * inside
                    nccl_length += inside
    return Numbers(
        weighted / length,
        samples_seen,
        nccl_weighted / nccl_length if nccl_samples >= 5 else None,
        nccl_samples,
        sum(plain) / len(plain),
    )
