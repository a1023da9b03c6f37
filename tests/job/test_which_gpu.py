"""GPUs of jobs whose reports do not name them for each process: the same as in the reports that do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import nsys2prv_ng
from tests.report_truth import Report
from tests.translated import changed, translated_set

DROPPED = "DROP TABLE TARGET_INFO_CUDA_DEVICE"
UNSET = [
    "UPDATE TARGET_INFO_SYSTEM_ENV SET value = replace(value, 'CUDA_VISIBLE_DEVICES=', 'UNUSED=')",
    "DELETE FROM META_DATA_CAPTURE WHERE value LIKE 'CUDA_VISIBLE_DEVICES=%'",
]


def use_device_0(report: Path, visible: str | None) -> list[str]:
    """Statements that give all work to device 0 of a process, and a value to CUDA_VISIBLE_DEVICES."""
    tables = [name for (name,) in Report(report).connection.execute("SELECT name FROM sqlite_master")]
    moved = [
        f"UPDATE {table} SET deviceId = 0"
        for table in tables
        if table.startswith(("CUPTI", "CUDA", "TARGET_INFO_CUDA_CONTEXT"))
        and Report(report)
        .connection.execute(f"SELECT 1 FROM pragma_table_info('{table}') WHERE name = 'deviceId'")
        .fetchone()
    ]
    name = "PROCESS_0:ENVIRONMENT_VARIABLE"
    given = (
        []
        if visible is None
        else [f"INSERT INTO META_DATA_CAPTURE VALUES ('{name}', 'CUDA_VISIBLE_DEVICES=\"{visible}\"')"]
    )
    return [*moved, *UNSET, *given]


def make(samples: Path, folder: Path, name: str, visible: Sequence[str | None], *more: str) -> list[Path]:
    reports = sorted(samples.glob(f"{name}.*.sqlite"))
    return [
        changed(report, folder / report.name, [*use_device_0(report, value), *more])
        for report, value in zip(reports, visible, strict=True)
    ]


def list_gpus(reports: Sequence[Path]) -> list[tuple[str, int, list[int], int]]:
    summary = nsys2prv_ng.summarize(reports)
    return [(gpu.node, gpu.gpu, gpu.ranks, gpu.compute_ns) for gpu in summary.gpus]


def measure_kernels(reports: Sequence[Path]) -> list[int]:
    """The time (ns) in which kernels of each report ran; kernels of these reports do not overlap."""
    return [Report(path).value("SELECT SUM(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL") for path in reports]


@pytest.mark.slow
def test_devices_that_are_visible(samples, tmp_path):
    """By ordinals and by uuids: as in the sample, whose table names the GPUs."""
    sample = sorted(samples.glob("ddp-2x2.*.sqlite"))
    uuids = dict(Report(sample[0]).connection.execute("SELECT id, uuid FROM TARGET_INFO_GPU"))
    for number, visible in enumerate((list("0123"), [f"GPU-{uuids[rank][:10]}" for rank in range(4)])):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert list_gpus(make(samples, folder, "ddp-2x2", visible, DROPPED)) == list_gpus(sample)


@pytest.mark.slow
def test_instances_of_one_gpu(samples, tmp_path):
    """Each has a row of its own, with the work of its rank alone."""
    instances = [f"MIG-{rank}c000000-1111-2222-3333-444444444444" for rank in range(4)]
    reports = make(samples, tmp_path, "mpi-4", instances, "UPDATE TARGET_INFO_CUDA_DEVICE SET gpuId = 2")
    translated = translated_set(reports, tmp_path / "trace", "kernels")
    labels = translated.trace.names["THREAD"]
    assert (labels.count("Metrics GPU2"), labels.count("CUDA-D2.S7")) == (4, 4)
    summary = nsys2prv_ng.summarize(reports, time=":")
    assert [(gpu.gpu, gpu.ranks, gpu.busy_ns) for gpu in summary.gpus] == [
        (2, [rank], busy) for rank, busy in enumerate(measure_kernels(reports))
    ]


@pytest.mark.slow
def test_ranks_of_a_communicator_that_seem_to_share_a_gpu(samples, tmp_path):
    """NCCL would refuse it: the reports do not tell which GPUs they used. MPI ranks may share one."""
    warnings = nsys2prv_ng.summarize(make(samples, tmp_path, "ddp-2x2", [None] * 4, DROPPED)).warnings
    assert [warning.split(",")[0] for warning in warnings if "refuses" in warning] == [
        "rank 0 and rank 1 share an NCCL communicator and seem to use one GPU (gpunode01 GPU 0)",
        "rank 2 and rank 3 share an NCCL communicator and seem to use one GPU (gpunode02 GPU 0)",
    ]
    warnings = nsys2prv_ng.summarize(make(samples, tmp_path, "mpi-4", [None] * 4, DROPPED)).warnings
    assert not [warning for warning in warnings if "refuses" in warning]
