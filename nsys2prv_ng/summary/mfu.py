"""Computes the model FLOPs utilisation (MFU) of a job from the numbers of its summary.

MFU = FLOPs per step / (time of a step x peak of all GPUs), with steps as GPUs finish them: the definition of PaLM
(arXiv:2204.02311, appendix B), with the mean of the steps. FLOPs come from shapes or from the user. From shapes they
include what activation checkpointing computes again, and lack what has no shapes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nsys2prv_ng.sources.cuda.kernel_classes import find_number_types
from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import MfuNumbers
from nsys2prv_ng.summary.sums import sum_by_key
from nsys2prv_ng.text.formatting import count_noun, format_flops, format_percent, join_first
from nsys2prv_ng.text.names import quote_name
from nsys2prv_ng.value_class import ValueClass

_MOST_NAMES = 3
_NO_FLOPS = "no NVTX range shows shapes: give the FLOPs of a step (flops_per_step)"
_GIVE_PEAK = "give the peak (peak_tflops)"


def add_mfu(summary: JobSummary, flops_per_step: float | None = None, peak_tflops: float | None = None) -> JobSummary:
    """Return a summary with its MFU, if FLOPs follow from shapes or are given.

    `flops_per_step`: of the whole job. `peak_tflops`: dense peak of one GPU (TFLOP/s).
    """
    shapes = summary.flops
    by_shapes = None if shapes is None or shapes.steps <= 0 else shapes.flops / shapes.steps
    if flops_per_step is None and by_shapes is None and peak_tflops is None:
        return summary
    steps = summary.steps
    busy = [gpu for gpu in summary.gpus if gpu.span_ns]
    per_step = by_shapes or 0.0 if flops_per_step is None else flops_per_step
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
    operators = [] if summary.flops is None else summary.flops.operators
    sums = sum_by_key((operator.number_type, int(operator.flops)) for operator in operators)
    del sums[""]
    if not sums:
        names, classes = ([getattr(kernel, key) for kernel in summary.kernels] for key in ("name", "kernel_class"))
        found = zip(find_number_types(names, classes), summary.kernels, strict=True)
        sums = sum_by_key((number_type, kernel.total_ns) for number_type, kernel in found)
        del sums[""]
    return max(sums, key=lambda name: (sums[name], name), default="")


def _find_peak(numbers: MfuNumbers, gpus: list[GpuNumbers], peak_tflops: float | None) -> MfuNumbers:
    """Return the numbers with the peak of all GPUs, or with the reason why it is not known."""
    if peak_tflops is not None:
        return replace(numbers, peak_flops_per_s=peak_tflops * 1e12 * len(gpus))
    if not numbers.number_type:
        return replace(numbers, refused=f"no kernel name contains the number type: {_GIVE_PEAK}")
    found = [(gpu.name, find_peaks(gpu.name)) for gpu in gpus]
    known = [peaks for _, peaks in found if peaks is not None and numbers.number_type in peaks.tflops]
    if len(known) < len(gpus):
        missing = {name for name, peaks in found if peaks not in known}
        names = join_first([quote_name(name) for name in sorted(missing)], _MOST_NAMES)
        return replace(numbers, refused=f"no {numbers.number_type} peak of {names} is known: {_GIVE_PEAK}")
    peak = sum(peaks.tflops[numbers.number_type] * 1e12 for peaks in known)
    return replace(numbers, peak_flops_per_s=peak, source="; ".join(sorted({peaks.source for peaks in known})))


def _rate(numbers: MfuNumbers) -> MfuNumbers:
    assert numbers.peak_flops_per_s is not None
    mfu = numbers.flops_per_step / (numbers.step_ns / 1e9 * numbers.peak_flops_per_s)
    if mfu <= 1:
        return replace(numbers, mfu=mfu)
    causes = "the number type of the peak"
    if numbers.is_given:
        causes += ", whether the FLOPs are those of one step and whether the reports of all ranks are here"
    return replace(numbers, refused=f"{format_percent(mfu, 1)} of the peak is impossible: check {causes}")


class Peaks(ValueClass):
    """Peaks (TFLOP/s) of a GPU model by number type, and the document that publishes them.

    `names`: regular expression for the names that drivers report.
    """

    names: str
    source: str
    tflops: Mapping[str, float]


_NUMBER_TYPES = "FP64", "FP32", "TF32", "FP16", "BF16", "FP8"
_HOPPER_SXM = (66.9, 66.9, 494.7, 989.4, 989.4, 1978.9)
# Only numbers of which a public copy was found in November 2026: others are better given by the user than wrong.
_PUBLISHED: tuple[tuple[str, str, str, tuple[float | None, ...]], ...] = (
    (r"(Tesla |NVIDIA )?V100-SXM2-(16|32)GB", "V100 datasheet", "", (7.8, 15.7, None, 125, None, None)),
    (
        r"(NVIDIA )?A100(-SXM4-[48]0GB|-PCIE-40GB| 80GB PCIe)", "A100 datasheet 1758950", "",
        (19.5, 19.5, 156, 312, 312, None),
    ),
    (r"(NVIDIA )?A40", "A40 datasheet", "", (None, 37.4, 74.8, 149.7, 149.7, None)),
    (r"NVIDIA L4", "L4 product page", ", half of sparse", (None, None, None, 121, 121, 242.5)),
    (r"NVIDIA L40", "L40 datasheet", "", (None, 90.5, 90.5, 181.05, 181.05, 362)),
    (r"NVIDIA L40S", "L40S datasheet", "", (None, 91.6, 183, 362.05, 362.05, 733)),
    (r"NVIDIA H100 80GB HBM3", "H100 architecture whitepaper", "", _HOPPER_SXM),
    (r"NVIDIA H100 PCIe", "H100 datasheet", ", half of sparse", (None, None, None, 756.5, 756.5, None)),
    (r"NVIDIA H100 NVL", "H100 datasheet", ", half of sparse", (60, 60, 417.5, 835.5, 835.5, 1670.5)),
    (r"NVIDIA H200", "H200 datasheet", ": as H100 SXM", _HOPPER_SXM),
    (r"NVIDIA B200", "Blackwell datasheet (HGX B200)", ", half of sparse", (37, 75, 1100, 2250, 2250, 4500)),
    (r"NVIDIA GB200", "Blackwell datasheet (GB200 NVL72)", ", half of sparse", (40, 80, 1250, 2500, 2500, 5000)),
    (r"NVIDIA GeForce RTX 4090", "Ada GPU architecture whitepaper", "", (None, 82.6, 82.6, 165.2, 165.2, 330.3)),
)  # fmt: skip
"""Names of a model, NVIDIA's document, a remark on its numbers, and the peak (TFLOP/s) for each number type."""
PEAKS = tuple(
    Peaks(
        names,
        f"NVIDIA {document}, seen November 2026{remark}",
        {number_type: peak for number_type, peak in zip(_NUMBER_TYPES, peaks, strict=True) if peak is not None},
    )
    for names, document, remark, peaks in _PUBLISHED
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
