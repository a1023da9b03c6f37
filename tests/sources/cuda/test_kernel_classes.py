"""Kernel classes. Expected classes are a person's reading of real kernel names, not the output of the table."""

import contextlib
import json
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from nsys2prv_ng.sources.cuda import kernel_classes
from nsys2prv_ng.sources.cuda.kernel_classes import KERNEL_CLASSES, RULES, classify, classify_once
from tests.conftest import NO_REPORTS, REPORTS, SAMPLES

EXPECTED: dict[str, list[str]] = json.loads((Path(__file__).parents[2] / "data/kernel_names.json").read_text())
"""Names by class. Most are as profilers show them, with long argument lists cut."""
NAMES = [(name, label) for label, names in EXPECTED.items() for name in names]


@pytest.mark.parametrize(("name", "label"), NAMES, ids=[name[:60] for name, _ in NAMES])
def test_class_of_real_names(name: str, label: str) -> None:
    assert KERNEL_CLASSES[int(classify([name])[0])] == label


def test_every_class_is_tested() -> None:
    assert set(EXPECTED) == set(KERNEL_CLASSES.values())


def test_each_class_has_a_rule() -> None:
    assert {rule.kernel_class for rule in RULES} | {"Other"} == set(KERNEL_CLASSES.values())


def test_names_are_classed_one_by_one() -> None:
    """The class of a name depends on no other name, and keeps its place."""
    names = [name for name, _ in NAMES]
    numbers = {label: number for number, label in KERNEL_CLASSES.items()}
    expected = [numbers[label] for _, label in NAMES]
    assert classify(names).tolist() == expected
    assert classify(names[::-1]).tolist() == expected[::-1]
    assert classify(pa.array(names)).tolist() == expected
    assert classify(np.array(names, dtype=object)).tolist() == expected


def test_missing_names_and_none_at_all() -> None:
    classes = classify(["ncclDevKernel_SendRecv", None])
    assert classes.dtype == np.int64 and classes.tolist() == [22, 24]
    assert classify([]).dtype == np.int64 and len(classify([])) == 0
    assert classify([None]).tolist() == [24]


# ------------------------------------------------------------------------------------------------ all names of reports

# Reading of every kernel of the real reports: short name, words of the demangled name that decide ("" for the rest),
# and class. The first line that fits holds.
READING: list[tuple[str, str, str]] = [
    ("CatArrayBatchedCopy_vectorized", "", "Copy, cast or fill"),
    ("GammaBetaBackwardCUDAKernelTemplate", "", "Normalisation"),
    ("Kernel2", "simt_sgemm", "GEMM FP32"),
    ("Kernel2", "tensorop_s1688gemm_", "GEMM TF32"),
    ("compute_dot_do_o_specialized", "", "Attention"),
    ("convert_dq_to_16bits", "", "Attention"),
    ("cudnn_generated_fort_native_sdpa", "", "Attention"),
    ("cunn_SoftMax", "", "Softmax or loss"),
    ("cupy_fill", "", "Copy, cast or fill"),
    ("cupy_multiply__", "", "Elementwise"),
    ("distribution_elementwise_grid_stride_kernel", "", "Elementwise"),
    ("elementwise_kernel_with_index", "arange", "Elementwise"),
    ("elementwise_kernel", "direct_copy_kernel_cuda", "Copy, cast or fill"),
    ("elementwise_kernel", "", "Elementwise"),
    ("embedding_backward_feature_kernel", "", "Embedding or index"),
    ("flash_fwd_kernel", "", "Attention"),
    ("layer_norm_grad_input_kernel_vectorized", "", "Normalisation"),
    ("multi_tensor_apply_kernel", "", "Optimizer"),
    ("ncclDevKernel_", "", "NCCL"),
    ("nll_loss_", "", "Softmax or loss"),
    ("nvjet_sm90_tst_", "", "GEMM BF16"),
    ("nvjet_tst_", "", "GEMM BF16"),
    ("par_ranged1d_kernel", "", "Other"),
    ("par_ranged2d_kernel", "", "Other"),
    ("par_reduce_kernel", "", "Reduction"),
    ("reduce_kernel", "", "Reduction"),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_", "", "GEMM FP32"),
    ("softmax_warp_forward", "", "Softmax or loss"),
    ("splitKreduce_kernel", "", "GEMM other"),
    ("unrolled_elementwise_kernel", "direct_copy_kernel_cuda", "Copy, cast or fill"),
    ("unrolled_elementwise_kernel", "", "Elementwise"),
    ("vectorized_elementwise_kernel", "bfloat16_copy_kernel_cuda", "Copy, cast or fill"),
    ("vectorized_elementwise_kernel", "FillFunctor", "Copy, cast or fill"),
    ("vectorized_elementwise_kernel", "", "Elementwise"),
    ("vectorized_gather_kernel", "", "Embedding or index"),
    ("vectorized_layer_norm_kernel", "", "Normalisation"),
]


def _kernels(path: Path) -> list[tuple[str, str]]:
    """Distinct (short, demangled) names of a report, by plain SQL; none where it has no kernels."""
    with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_KERNEL'").fetchone():
            return []
        query = """SELECT DISTINCT s.value, d.value FROM CUPTI_ACTIVITY_KIND_KERNEL k
                   JOIN StringIds s ON s.id = k.shortName JOIN StringIds d ON d.id = k.demangledName"""
        return database.execute(query).fetchall()


def _read(short: str, demangled: str) -> str:
    for start, word, label in READING:
        if short.startswith(start) and word in demangled:
            return label
    raise AssertionError(f"nobody has read {short}: {demangled}")


@pytest.mark.parametrize("folder", [SAMPLES, REPORTS / "gpu", REPORTS / "public"], ids=lambda folder: folder.name)
def test_every_kernel_of_the_reports(folder: Path) -> None:
    reports = sorted(folder.glob("*.sqlite"))
    if not reports and folder.name == "public":
        pytest.skip(NO_REPORTS)
    pairs = sorted({pair for report in reports for pair in _kernels(report)})
    assert pairs
    classes = classify([demangled for _, demangled in pairs])
    for (short, demangled), number in zip(pairs, classes, strict=True):
        assert KERNEL_CLASSES[int(number)] == _read(short, demangled), (short, demangled)


def test_each_name_is_classified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for listed in EXPECTED.values() for name in listed]
    looked_at: list[str] = []

    def note(new: list[str]) -> np.ndarray:
        looked_at.extend(new)
        return classify(new)

    monkeypatch.setattr(kernel_classes, "_known", {})
    monkeypatch.setattr(kernel_classes, "classify", note)
    for order in (names, names[::-1], names[3:5] * 2):
        assert classify_once(order).tolist() == classify(order).tolist()
    assert looked_at == list(dict.fromkeys(names))
    monkeypatch.setattr(kernel_classes, "_MOST_KNOWN", 5)
    assert classify_once([*names, "a new name"]).tolist() == classify([*names, "a new name"]).tolist()
    assert list(kernel_classes._known) == ["a new name"]
    assert classify_once(names).tolist() == classify(names).tolist()
