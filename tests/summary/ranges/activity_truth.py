"""What GPU metrics saw while kernels of one group ran, by plain SQL and loops over each sample and kernel."""

from __future__ import annotations

import sqlite3
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from nsys2prv_ng.sources.cuda.kernel_classes import KERNEL_CLASSES, classify
from tests.summary.links.counters_truth import Spans, unite
from tests.summary.ranges.tree_truth import list_launched

COUNTERS = {
    "SMs Active [Throughput %]": "sm_active",
    "SM Issue [Throughput %]": "sm_issue",
    "Tensor Active [Throughput %]": "tensor_active",
    "DRAM Read Bandwidth [Throughput %]": "dram_read",
    "DRAM Write Bandwidth [Throughput %]": "dram_write",
    **{f"NVLink RX {kind} User Data [Throughput %]": "nvlink_received" for kind in ("Requests", "Responses")},
    **{f"NVLink TX {kind} User Data [Throughput %]": "nvlink_transmitted" for kind in ("Requests", "Responses")},
}
"""The field of each counter; a field has the sum of the means of its counters."""
_FIRST = "SMs Active [Throughput %]"
_KERNELS = """SELECT d.gpuId, s.value, k.start + u.utcEpochNs, k."end" + u.utcEpochNs
    FROM CUPTI_ACTIVITY_KIND_KERNEL k
    JOIN TARGET_INFO_CUDA_DEVICE d ON d.cudaId = k.deviceId AND d.pid = (k.globalPid >> 24 & 0xFFFFFF)
    JOIN TARGET_INFO_SESSION_START_TIME u JOIN StringIds s ON s.id = k.demangledName ORDER BY k.start"""
_SAMPLES = """SELECT m.typeId & 255, n.metricName, m.timestamp + u.utcEpochNs, m.value FROM GPU_METRICS m
    JOIN TARGET_INFO_SESSION_START_TIME u JOIN TARGET_INFO_GPU_METRICS n USING (typeId, metricId)
    ORDER BY m.timestamp"""
_GPUS = """SELECT d.pid, d.cudaId, d.gpuId, u.utcEpochNs FROM TARGET_INFO_CUDA_DEVICE d
    JOIN TARGET_INFO_SESSION_START_TIME u"""
Samples = dict[tuple[int, str], list[tuple[int, int]]]
"""Time (UTC) and value of each sample by GPU and name of the counter."""
Groups = dict[int, dict[object, Spans]]
"""When kernels of each group run, in UTC, by GPU."""
Numbers = tuple[int, int, dict[str, float]]
"""Time (ns), samples and mean of each counter of a group."""


def read_classes(reports: Sequence[Path]) -> Groups:
    """Return when kernels of each class run."""
    spans: dict[int, dict[object, Spans]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        with closing(sqlite3.connect(report)) as database:
            rows = database.execute(_KERNELS).fetchall()
        names = sorted({name for _, name, _, _ in rows})
        classes = dict(zip(names, (KERNEL_CLASSES[number] for number in classify(names)), strict=True))
        for gpu, name, begin, end in rows:
            spans[gpu][classes[name]].append((begin, end))
    return _unite(spans)


def read_paths(reports: Sequence[Path], names: Mapping[Path, dict[str, str]]) -> Groups:
    """Return when kernels launched in each path of NVTX ranges run. `names`: of the texts of each report."""
    spans: dict[int, dict[object, Spans]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        with closing(sqlite3.connect(report)) as database:
            gpus = {(pid, device): (gpu, utc) for pid, device, gpu, utc in database.execute(_GPUS)}
        for each in list_launched(report, names[report]):
            if each.table in ("KERNEL", "GRAPH_TRACE"):
                gpu, utc = gpus[each.process >> 24 & 0xFFFFFF, each.device]
                spans[gpu][each.path].append((each.begin + utc, each.end + utc))
    return _unite(spans)


def merge(groups: Groups, target: Mapping[object, object]) -> Groups:
    """Return the kernels of the groups that have the same target, as one group."""
    spans: dict[int, dict[object, Spans]] = defaultdict(lambda: defaultdict(list))
    for gpu, own in groups.items():
        for key, each in own.items():
            spans[gpu][target[key]] += each
    return _unite(spans)


def _unite(groups: Mapping[int, Mapping[object, Spans]]) -> Groups:
    return {gpu: {key: unite(own) for key, own in spans.items()} for gpu, spans in groups.items()}


def read_samples(reports: Sequence[Path]) -> Samples:
    samples: Samples = defaultdict(list)
    for report in reports:
        with closing(sqlite3.connect(report)) as database:
            if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'GPU_METRICS'").fetchone():
                for gpu, name, time, value in database.execute(_SAMPLES):
                    samples[gpu, name].append((time, value))
    return samples


def measure(samples: Samples, groups: Groups, windows: Spans) -> dict[object, Numbers]:
    """Return what the module promises, for the groups with five samples or more."""
    sums: dict[object, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for (gpu, name), own in samples.items():
        if name not in COUNTERS:
            continue
        spans = groups.get(gpu, {})
        first = dict.fromkeys(spans, 0)
        held = [end - begin for (begin, _), (end, _) in pairwise(own)]
        longest = 2 * statistics.median(ns for ns in held if ns) if any(held) else 0
        for (begin, value), (end, _) in pairwise(own):
            if end - begin > longest:  # samples were lost
                continue
            covered = {key: cover(each, begin, end, first, key) for key, each in spans.items()}
            key = max(covered, key=lambda each: covered[each], default=None)
            others = sum(ns for other, ns in covered.items() if other != key)
            if not covered or covered[key] < 0.9 * (end - begin) or others > 0.1 * (end - begin):
                continue
            inside = sum(max(0, min(end, high) - max(begin, low)) for low, high in windows)
            if inside:
                sums[key][name].append((value, inside))
    found: dict[object, Numbers] = {}
    for key, counters in sums.items():
        if len(counters[_FIRST]) >= 5:
            means: dict[str, float] = defaultdict(float)
            for name, own in counters.items():
                means[COUNTERS[name]] += sum(value * ns for value, ns in own) / sum(ns for _, ns in own)
            found[key] = sum(ns for _, ns in counters[_FIRST]), len(counters[_FIRST]), means
    return found


def cover(spans: Spans, begin: int, end: int, first: dict[object, int], key: object) -> int:
    """Return how much (ns) of a time the spans cover. `first`: the first span of each group that may."""
    while first[key] < len(spans) and spans[first[key]][1] <= begin:
        first[key] += 1
    ns, at = 0, first[key]
    while at < len(spans) and spans[at][0] < end:
        ns += min(spans[at][1], end) - max(spans[at][0], begin)
        at += 1
    return ns
