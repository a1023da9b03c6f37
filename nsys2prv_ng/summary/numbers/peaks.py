"""Published peaks of GPUs: the most floating-point operations per second by the name of the GPU and the number type.

All peaks are dense. Where NVIDIA publishes a peak with sparsity alone, the dense one is half of it. Peaks of FP64 are
those of Tensor Cores, which cuBLAS uses for matrix products, if the GPU has such. With a peak of 16-bit types for each
accumulator, that for FP32 accumulation counts, which PyTorch uses. Names must match as a whole: parts of a GPU (MIG)
and variants with other clocks or fewer units have other peaks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Peaks:
    """Peaks (TFLOP/s) of a GPU model by number type, and the document that publishes them."""

    names: str
    """Regular expression for the names that drivers report."""
    source: str
    tflops: Mapping[str, float]


def _make(
    fp64: float | None,
    fp32: float,
    tf32: float | None = None,
    fp16: float | None = None,
    bf16: float | None = None,
    fp8: float | None = None,
) -> dict[str, float]:
    given = {"FP64": fp64, "FP32": fp32, "TF32": tf32, "FP16": fp16, "BF16": bf16, "FP8": fp8}
    return {name: value for name, value in given.items() if value is not None}


_HOPPER_SXM = _make(66.9, 66.9, 494.7, 989.4, 989.4, 1978.9)
_H200_NVL = _make(60, 60, 417.5, 835.5, 835.5, 1670.5)

PEAKS: tuple[Peaks, ...] = (
    Peaks(
        r"(Tesla |NVIDIA )?V100-SXM[23]-(16|32)GB.*",
        "NVIDIA V100 datasheet, January 2020",
        _make(7.8, 15.7, fp16=125),
    ),
    Peaks(r"(Tesla |NVIDIA )?V100-PCIE-(16|32)GB", "NVIDIA V100 datasheet, January 2020", _make(7, 14, fp16=112)),
    Peaks(
        r"(NVIDIA )?A100(-SXM4-[48]0GB|-PCIE-40GB| 80GB PCIe)",
        "NVIDIA A100 datasheet, June 2021",
        _make(19.5, 19.5, 156, 312, 312),
    ),
    Peaks(r"(NVIDIA )?A30", "NVIDIA A30 datasheet, March 2022", _make(10.3, 10.3, 82, 165, 165)),
    Peaks(r"(NVIDIA )?A40", "NVIDIA A40 datasheet, July 2022", _make(None, 37.4, 74.8, 149.7, 149.7)),
    Peaks(r"(NVIDIA )?A10", "NVIDIA A10 datasheet, March 2022", _make(None, 31.2, 62.5, 125, 125)),
    Peaks(r"NVIDIA L4", "NVIDIA L4 datasheet, March 2023, half of sparse", _make(None, 30.3, 60, 121, 121, 242.5)),
    Peaks(r"NVIDIA L40", "NVIDIA L40 datasheet, January 2023", _make(None, 90.5, 90.5, 181.05, 181.05, 362)),
    Peaks(r"NVIDIA L40S", "NVIDIA L40S datasheet, October 2023", _make(None, 91.6, 183, 362.05, 362.05, 733)),
    Peaks(r"NVIDIA H100 80GB HBM3", "NVIDIA H100 architecture whitepaper v1.04, 2023", _HOPPER_SXM),
    Peaks(
        r"NVIDIA H100 PCIe",
        "NVIDIA H100 datasheet, 2023, half of sparse",
        _make(51, 51, 378, 756.5, 756.5, 1513),
    ),
    Peaks(r"NVIDIA H100 NVL", "NVIDIA H100 datasheet, October 2024, half of sparse", _H200_NVL),
    Peaks(r"NVIDIA H200", "NVIDIA H200 datasheet, November 2024: as H100 SXM", _HOPPER_SXM),
    Peaks(r"NVIDIA H200 NVL", "NVIDIA H200 datasheet, November 2024, half of sparse", _H200_NVL),
    Peaks(r"NVIDIA GH200 (120GB|480GB|144G HBM3e)", "NVIDIA GH200 datasheet, 2024: as H100 SXM", _HOPPER_SXM),
    Peaks(
        r"NVIDIA B200",
        "NVIDIA Blackwell datasheet (HGX B200), 2025, half of sparse",
        _make(37, 75, 1100, 2250, 2250, 4500),
    ),
    Peaks(
        r"NVIDIA GB200",
        "NVIDIA Blackwell datasheet (GB200 NVL72), 2025, half of sparse",
        _make(40, 80, 1250, 2500, 2500, 5000),
    ),
    Peaks(
        r"NVIDIA GeForce RTX 4090",
        "NVIDIA Ada GPU architecture whitepaper v2.1, 2023",
        _make(None, 82.6, 82.6, 165.2, 165.2, 330.3),
    ),
)


def find_peaks(name: str) -> Peaks | None:
    """Return the peaks of a GPU by its name; None if it is not in the table."""
    return next((peaks for peaks in PEAKS if re.fullmatch(peaks.names, name.strip())), None)
