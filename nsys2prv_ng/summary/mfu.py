"""Computes the model FLOPs utilisation (MFU) of a job from the numbers of its summary.

MFU = FLOPs per step / (time of a step x peak of all GPUs), with steps as GPUs finish them: the definition of PaLM
(arXiv:2204.02311, appendix B), with the mean of the steps. FLOPs come from shapes or from the user. From shapes they
include what activation checkpointing computes again, and lack what has no shapes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from nsys2prv_ng.light_dataclass import dataclass
from nsys2prv_ng.sources.cuda.kernel_classes import find_number_types
from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import MfuNumbers
from nsys2prv_ng.text.formatting import count_noun, format_flops, format_percent, join_first
from nsys2prv_ng.text.names import quote_name

_MOST_NAMES = 3
_NO_FLOPS = "no NVTX range shows shapes: give the FLOPs of a step (flops_per_step)"
_GIVE_PEAK = "give the peak (peak_tflops)"


def add_mfu(summary: JobSummary, flops_per_step: float | None = None, peak_tflops: float | None = None) -> JobSummary:
    """Return a summary with its MFU, if FLOPs follow from shapes or are given.

    `flops_per_step`: of the whole job. `peak_tflops`: dense peak of one GPU (TFLOP/s).
    """
    known = summary.flops
    is_known = known is not None and known.steps > 0
    if flops_per_step is None and not is_known and peak_tflops is None:
        return summary
    steps = summary.steps
    busy = [gpu for gpu in summary.gpus if gpu.span_ns]
    per_step = 0.0 if flops_per_step is None else flops_per_step
    if flops_per_step is None and known is not None and is_known:
        per_step = known.flops / known.steps
    numbers = MfuNumbers(
        flops_per_step=per_step,
        is_given=flops_per_step is not None,
        step_ns=0.0 if steps is None else (steps.window_ns[1] - steps.window_ns[0]) / steps.count,
        gpus=len(busy),
        number_type="" if peak_tflops is not None else _find_main_type(summary),
        peak_flops_per_s=None,
        source="",
        mfu=None,
        refused="",
    )
    if not per_step:
        return replace(summary, mfu=replace(numbers, refused=_NO_FLOPS))
    if steps is None or steps.ends_on != "gpu" or not busy or numbers.step_ns <= 0:
        return replace(summary, mfu=replace(numbers, refused="no steps that GPUs finish were found"))
    numbers = _find_peak(numbers, busy, peak_tflops)
    return replace(summary, mfu=numbers if numbers.peak_flops_per_s is None else _rate(numbers))


def _find_main_type(summary: JobSummary) -> str:
    """Return the number type of most FLOPs by shapes, else that of most kernel time; "" if no name contains any."""
    sums = Counter[str]()
    if summary.flops is not None:
        for operator in summary.flops.operators:
            sums[operator.number_type] += operator.flops  # type: ignore[assignment]
    del sums[""]
    if not sums:
        found = find_number_types(
            [kernel.name for kernel in summary.kernels], [kernel.kernel_class for kernel in summary.kernels]
        )
        for number_type, kernel in zip(found, summary.kernels, strict=True):
            sums[number_type] += kernel.total_ns
        del sums[""]
    return max(sums, key=lambda name: (sums[name], name), default="")


def _find_peak(numbers: MfuNumbers, gpus: list[GpuNumbers], peak_tflops: float | None) -> MfuNumbers:
    """Return the numbers with the peak of all GPUs, or with the reason why it is not known."""
    if peak_tflops is not None:
        return replace(numbers, peak_flops_per_s=peak_tflops * 1e12 * len(gpus))
    if not numbers.number_type:
        return replace(numbers, refused=f"no kernel name contains the number type: {_GIVE_PEAK}")
    sources: list[str] = []
    missing: list[str] = []
    peak = 0.0
    for gpu in gpus:
        peaks = find_peaks(gpu.name)
        if peaks is None or numbers.number_type not in peaks.tflops:
            missing.append(gpu.name)
        else:
            sources.append(peaks.source)
            peak += peaks.tflops[numbers.number_type] * 1e12
    if missing:
        names = join_first([quote_name(name) for name in sorted(set(missing))], _MOST_NAMES)
        return replace(numbers, refused=f"no {numbers.number_type} peak of {names} is known: {_GIVE_PEAK}")
    return replace(numbers, peak_flops_per_s=peak, source="; ".join(sorted(set(sources))))


def _rate(numbers: MfuNumbers) -> MfuNumbers:
    assert numbers.peak_flops_per_s is not None
    mfu = numbers.flops_per_step / (numbers.step_ns / 1e9 * numbers.peak_flops_per_s)
    if mfu <= 1:
        return replace(numbers, mfu=mfu)
    causes = ["the number type of the peak"]
    if numbers.is_given:
        causes += ["whether the FLOPs are those of one step", "whether the reports of all ranks are here"]
    return replace(numbers, refused=f"{format_percent(mfu, 1)} of the peak is impossible: check {_join(causes)}")


def _join(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


@dataclass(frozen=True)
class Peaks:
    """Peaks (TFLOP/s) of a GPU model by number type, and the document that publishes them."""

    names: str
    """Regular expression for the names that drivers report."""
    source: str
    tflops: Mapping[str, float]


_HOPPER_SXM = {"FP64": 66.9, "FP32": 66.9, "TF32": 494.7, "FP16": 989.4, "BF16": 989.4, "FP8": 1978.9}

# Only numbers of which a public copy was found in November 2026: others are better given by the user than wrong.
PEAKS: tuple[Peaks, ...] = (
    Peaks(
        r"(Tesla |NVIDIA )?V100-SXM2-(16|32)GB",
        "NVIDIA V100 datasheet, seen November 2026",
        {"FP64": 7.8, "FP32": 15.7, "FP16": 125},
    ),
    Peaks(
        r"(NVIDIA )?A100(-SXM4-[48]0GB|-PCIE-40GB| 80GB PCIe)",
        "NVIDIA A100 datasheet 1758950, seen November 2026",
        {"FP64": 19.5, "FP32": 19.5, "TF32": 156, "FP16": 312, "BF16": 312},
    ),
    Peaks(
        r"(NVIDIA )?A40",
        "NVIDIA A40 datasheet, seen November 2026",
        {"FP32": 37.4, "TF32": 74.8, "FP16": 149.7, "BF16": 149.7},
    ),
    Peaks(
        r"NVIDIA L4",
        "NVIDIA L4 product page, seen November 2026, half of sparse",
        {"FP16": 121, "BF16": 121, "FP8": 242.5},
    ),
    Peaks(
        r"NVIDIA L40",
        "NVIDIA L40 datasheet, seen November 2026",
        {"FP32": 90.5, "TF32": 90.5, "FP16": 181.05, "BF16": 181.05, "FP8": 362},
    ),
    Peaks(
        r"NVIDIA L40S",
        "NVIDIA L40S datasheet, seen November 2026",
        {"FP32": 91.6, "TF32": 183, "FP16": 362.05, "BF16": 362.05, "FP8": 733},
    ),
    Peaks(r"NVIDIA H100 80GB HBM3", "NVIDIA H100 architecture whitepaper, seen November 2026", _HOPPER_SXM),
    Peaks(
        r"NVIDIA H100 PCIe", "NVIDIA H100 datasheet, seen November 2026, half of sparse", {"FP16": 756.5, "BF16": 756.5}
    ),
    Peaks(
        r"NVIDIA H100 NVL",
        "NVIDIA H100 datasheet, seen November 2026, half of sparse",
        {"FP64": 60, "FP32": 60, "TF32": 417.5, "FP16": 835.5, "BF16": 835.5, "FP8": 1670.5},
    ),
    Peaks(r"NVIDIA H200", "NVIDIA H200 datasheet, seen November 2026: as H100 SXM", _HOPPER_SXM),
    Peaks(
        r"NVIDIA B200",
        "NVIDIA Blackwell datasheet (HGX B200), seen November 2026, half of sparse",
        {"FP64": 37, "FP32": 75, "TF32": 1100, "FP16": 2250, "BF16": 2250, "FP8": 4500},
    ),
    Peaks(
        r"NVIDIA GB200",
        "NVIDIA Blackwell datasheet (GB200 NVL72), seen November 2026, half of sparse",
        {"FP64": 40, "FP32": 80, "TF32": 1250, "FP16": 2500, "BF16": 2500, "FP8": 5000},
    ),
    Peaks(
        r"NVIDIA GeForce RTX 4090",
        "NVIDIA Ada GPU architecture whitepaper, seen November 2026",
        {"FP32": 82.6, "TF32": 82.6, "FP16": 165.2, "BF16": 165.2, "FP8": 330.3},
    ),
)


def find_peaks(name: str) -> Peaks | None:
    """Return the peaks of a GPU by its name; None if it is not in the table."""
    return next((peaks for peaks in PEAKS if re.fullmatch(peaks.names, name.strip())), None)


def describe_mfu(numbers: MfuNumbers | None, *, is_slowed: bool) -> str:
    """Return the MFU in words, or why it is not known; "" without FLOPs.

    `is_slowed`: whether NVTX ranges of operators slow the run.
    """
    if numbers is None:
        return ""
    if numbers.mfu is None or numbers.peak_flops_per_s is None:
        reason = numbers.refused.replace("(peak_tflops)", "(--peak-tflops)")
        return f"not known: {reason.replace('(flops_per_step)', '(--flops-per-step)')}"
    peak = format_flops(numbers.peak_flops_per_s / numbers.gpus)
    dense = f"dense {numbers.number_type}" if numbers.number_type else "given"
    text = "" if numbers.is_given else "at least "
    text += f"{format_percent(numbers.mfu, 1)}: {format_flops(numbers.flops_per_step)} a step"
    text += f" on {count_noun(numbers.gpus, 'GPU')} of {peak}/s ({dense})"
    if is_slowed:
        text += "; of this run, which NVTX ranges of operators slow"
    return text
