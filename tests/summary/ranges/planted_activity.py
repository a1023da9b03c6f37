"""Small reports with kernels in NVTX ranges and samples of GPU metrics, whose causes are planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.sources.nccl.nccl_reports import Call, Kernel, write_nccl_report
from tests.sources.node.test_gpu_metrics import GPU_TYPE
from tests.sources.small_reports import UTC, Rows
from tests.summary.ranges.activity_truth import COUNTERS, Groups, Samples

GEMM, NORM = "ampere_sgemm_128x64_nn", "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>"
GEMM_CLASS, NORM_CLASS = "GEMM FP32", "Normalisation"
PERIOD = 100
"""ns between samples."""
Span = tuple[int, int]


def list_times(low: int, high: int) -> list[int]:
    """Return the times of the samples from a time to another, both included."""
    return list(range(low, high + 1, PERIOD))


def write_report(
    path: Path,
    kernels: Sequence[Kernel],
    times: Sequence[int],
    *,
    names: Sequence[str] = tuple(COUNTERS),
    ranges: Mapping[str, Span] | None = None,
    graphs: Sequence[Span] = (),
    calls: Sequence[Call] = (),
    rank: int | None = None,
    held: int = 1,
) -> Path:
    """Write a report; each GPU with kernels has a sample of all metrics at each time, whose values are `make_value`.

    `graphs`: whole graphs on a stream of their own. `held`: number of samples in a row with the same value.
    """
    gpus = sorted({kernel.device for kernel in kernels})
    samples = [
        (time, GPU_TYPE + gpu, number, make_value(time, number, held))
        for time in times
        for gpu in gpus
        for number in range(len(names))
    ]
    more: dict[str, Rows] = {
        "GPU_METRICS": (("timestamp", "typeId", "metricId", "value"), samples),
        "TARGET_INFO_GPU_METRICS": (
            ("typeId", "metricId", "metricName"),
            [(GPU_TYPE + gpu, number, name) for gpu in gpus for number, name in enumerate(names)],
        ),
        "TARGET_INFO_GPU": (("id", "name", "uuid"), [(gpu, "GPU", f"uuid {gpu}") for gpu in gpus]),
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": (
            (
                *("start", "end", "globalPid", "deviceId", "contextId", "streamId"),
                *("correlationId", "graphId", "graphExecId"),
            ),
            [(begin, end, 1 << 48 | 77 << 24, 0, 1, 99, 900 + n, 1, 1) for n, (begin, end) in enumerate(graphs)],
        ),
    }
    opened = [Call(begin, end, name, domain=0) for name, (begin, end) in (ranges or {}).items()]
    if not times:
        del more["GPU_METRICS"], more["TARGET_INFO_GPU_METRICS"]
    if rank is not None:
        environment = [("Hostname", "host"), ("DeviceEnvironment", f"RANK={rank}")]
        more["TARGET_INFO_SYSTEM_ENV"] = ("name", "value"), environment
    return write_nccl_report(path, [*opened, *calls], kernels, more=more)


def make_value(time: int, number: int, held: int = 1) -> int:
    return (7 * (time // PERIOD // held) + 3 * number) % 45


def list_samples(times: Sequence[int], names: Sequence[str] = tuple(COUNTERS), gpu: int = 0) -> Samples:
    """Return the samples of a GPU, by the names that the summary has for their quantities."""
    return {
        (gpu, name): [(UTC + time, make_value(time, number)) for time in times] for number, name in enumerate(names)
    }


def shift(groups: Mapping[object, Sequence[Span]], gpu: int = 0) -> Groups:
    """Return when kernels of each group run on a GPU, in UTC."""
    return {gpu: {key: [(UTC + low, UTC + high) for low, high in spans] for key, spans in groups.items()}}
