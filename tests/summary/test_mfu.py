"""The MFU of a job, worked out by hand, and the published peaks."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import FlopNumbers, KernelNumbers, MfuNumbers, OperatorFlops
from nsys2prv_ng.summary.mfu import PEAKS, add_mfu, find_peaks
from tests.summary.made_summary import STEPS, make_losses, make_summary
from tests.summary.test_tables import make_gpu

SXM = "NVIDIA H100 80GB HBM3"
STEP_S = 0.02
"""Length of the five steps in a tenth of a second."""


def make_job(*names: str, kernel_class: str = "GEMM BF16", flops: FlopNumbers | None = None) -> JobSummary:
    kernel = KernelNumbers(
        name="kernel", kernel_class=kernel_class, count=1, total_ns=9, min_ns=9, max_ns=9, busiest_task="", busiest_ns=9
    )
    gpus = [replace(make_gpu(number, [number], []), name=name, span_ns=100) for number, name in enumerate(names)]
    return replace(make_summary(make_losses(compute=100)), gpus=gpus, kernels=[kernel], flops=flops)


def make_flops(*types: tuple[str, float]) -> FlopNumbers:
    operators = [
        OperatorFlops(operator="aten::mm", number_type=name, count=1, flops=flops, kernel_ns=1) for name, flops in types
    ]
    return FlopNumbers(tasks=2, steps=5, operators=operators, explained_ns=1, of_ns=2)


def rate(job: JobSummary, flops: float | None = None, peak: float | None = None) -> MfuNumbers:
    numbers = add_mfu(job, flops, peak).mfu
    assert numbers is not None
    return numbers


def describe(job: JobSummary) -> list[str]:
    return [line.text for line in answer(job).statements if line.label == "MFU"]


def test_given_flops_are_those_of_all_gpus() -> None:
    found = rate(make_job(SXM, SXM), 8e12)
    assert found.peak_flops_per_s == 2 * 989.4e12
    assert found.mfu == pytest.approx(8e12 / (STEP_S * 2 * 989.4e12), rel=1e-12)
    assert (found.is_given, found.number_type, found.gpus, found.refused) == (True, "BF16", 2, "")
    assert describe(add_mfu(make_job(SXM, SXM), 8e12)) == [
        "20.2%: 8.00 TFLOP a step on 2 GPUs of 989 TFLOP/s (dense BF16)"
    ]


def test_flops_of_shapes_are_a_lower_bound_of_the_type_with_most_of_them() -> None:
    job = make_job(SXM, flops=make_flops(("TF32", 3e12), ("", 9e12), ("FP32", 1e12)))
    found = rate(job)
    assert found.mfu == pytest.approx(13e12 / 5 / (STEP_S * 494.7e12), rel=1e-12)
    assert (found.is_given, found.number_type) == (False, "TF32")
    assert describe(add_mfu(job)) == ["at least 26.3%: 2.60 TFLOP a step on 1 GPU of 495 TFLOP/s (dense TF32)"]


def test_a_given_peak_needs_neither_name_nor_type() -> None:
    job = make_job("some GPU", "other", kernel_class="Attention")
    assert rate(job, 1e12, 100).mfu == pytest.approx(1e12 / (STEP_S * 200e12), rel=1e-12)
    assert describe(add_mfu(job, 1e12, 100)) == ["25.0%: 1.00 TFLOP a step on 2 GPUs of 100 TFLOP/s (given)"]


def test_different_gpus_have_different_peaks() -> None:
    found = rate(make_job(SXM, "NVIDIA L4"), 1e12)
    assert found.peak_flops_per_s == pytest.approx((989.4 + 121) * 1e12)
    assert found.source.count(";") == 1


@pytest.mark.parametrize(
    ("job", "flops", "reason"),
    [
        (make_job("NVIDIA \x1b[0m"), 1e12, r"no BF16 peak of `NVIDIA [^\x1b]*` is known: give the peak"),
        (make_job(SXM, SXM + " MIG 1g.10gb"), 1e12, "no BF16 peak of .*MIG"),
        (make_job("Tesla V100-SXM2-16GB"), 1e12, "no BF16 peak of .*V100"),
        (make_job(SXM, kernel_class="Attention"), 1e12, "no kernel name contains the number type: give the peak"),
        (make_job(SXM), 20e12, "101.1% of the peak is impossible: check the number type of the peak, whether the"),
        (
            make_job(SXM, flops=make_flops(("BF16", 100e12))),
            None,
            "101.1% of the peak is impossible: check the n.*peak$",
        ),
        (replace(make_job(SXM), steps=None), 1e12, "no steps that GPUs finish were found"),
        (replace(make_job(SXM), steps=replace(STEPS, ends_on="host")), 1e12, "no steps that GPUs finish"),
        (make_job(), 1e12, "no steps that GPUs finish"),
    ],
)
def test_what_is_not_known_is_refused_with_the_reason(job: JobSummary, flops: float | None, reason: str) -> None:
    found = rate(job, flops)
    assert found.mfu is None and re.search(reason, found.refused), found.refused
    shown = found.refused.replace("(peak_tflops)", "(--peak-tflops)")
    assert describe(add_mfu(job, flops)) == [f"not known: {shown}"]


def test_without_flops_there_is_no_mfu() -> None:
    job = make_job(SXM)
    assert add_mfu(job).mfu is None
    asked = add_mfu(job, None, 989).mfu
    assert asked is not None and asked.mfu is None and "flops_per_step" in asked.refused
    assert add_mfu(replace(job, flops=replace(make_flops(("BF16", 1e12)), steps=0))).mfu is None
    assert describe(job) == []


# ---- peaks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("Tesla V100-SXM2-32GB", 125),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA L40", 181.05),
        ("NVIDIA H100 PCIe", 756.5),
        ("NVIDIA H200", 989.4),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
    ],
)
def test_names_of_drivers(name: str, tflops: float) -> None:
    peaks = find_peaks(name)
    assert peaks is not None and peaks.tflops["FP16"] == tflops


@pytest.mark.parametrize(
    "name", ["", "NVIDIA A100-SXM-64GB", "NVIDIA A10G", "NVIDIA H100", "NVIDIA H200 MIG 1g.18gb", "NVIDIA H200 NVL"]
)
def test_names_with_other_peaks(name: str) -> None:
    assert find_peaks(name) is None


def test_peaks_are_plausible() -> None:
    """Each narrower type of Tensor Cores is about twice as fast; every entry has a document with its year."""
    for peaks in PEAKS:
        assert re.search(r"20[12]\d", peaks.source)
        known = peaks.tflops
        for slow, fast in (("TF32", "BF16"), ("FP16", "FP8")):
            if slow in known and fast in known:
                assert known[fast] / known[slow] == pytest.approx(2, rel=0.03), peaks.source
        assert known.get("BF16", known["FP16"]) == known["FP16"]
        assert known.get("FP32", 0) < known["FP16"]
