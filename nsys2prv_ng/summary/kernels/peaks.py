"""Published peaks of GPUs: the most floating-point operations per second by the name of the GPU and the number type.

All peaks are dense. Where NVIDIA publishes a peak with sparsity alone, the dense one is half of it. Peaks of FP64 are
those of Tensor Cores, which cuBLAS uses for matrix products, if the GPU has such. With a peak of 16-bit types for each
accumulator, that for FP32 accumulation counts, which PyTorch uses. Names must match as a whole: parts of a GPU (MIG)
and variants with other clocks or fewer units have other peaks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nsys2prv_ng.light_dataclass import dataclass


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
        r"NVIDIA H100 PCIe",
        "NVIDIA H100 datasheet, seen November 2026, half of sparse",
        {"FP16": 756.5, "BF16": 756.5},
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
