"""Computes the model FLOPs utilisation (MFU) of a job from the numbers of its summary.

MFU = FLOPs per step / (time of a step x peak of all GPUs), with steps as GPUs finish them: the definition of PaLM
(arXiv:2204.02311, appendix B), with the mean of the steps. FLOPs come from shapes or from the user. From shapes they
include what activation checkpointing computes again, and lack what has no shapes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from nsys2prv_ng.sources.cuda.kernel_classes import find_number_types
from nsys2prv_ng.summary.gpus.numbers import GpuNumbers
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.kernels.numbers import MfuNumbers
from nsys2prv_ng.summary.kernels.peaks import find_peaks
from nsys2prv_ng.text.formatting import format_percent, join_first
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
