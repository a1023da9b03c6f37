"""FLOPs of operators in a DataFrame, as the program itself counted them with PyTorch's FlopCounterMode."""

from __future__ import annotations

from pathlib import Path

import pytest

import nsys2prv_ng
from tests.conftest import DATA, Unpacked

BY_FLOP_COUNTER = {
    "whatif/w-shapes": 6_236_292_513_792,
    "attn": 129_388_077_056,  # attention in four shapes and three types, causal and not, forward and backward
    # No later operator takes the result of the 3D convolution, and its text has no stride.
    "hand": 8_365_569_024 - 2 * (2 * 4 * 14 * 30 * 30) * (8 * 3 * 3 * 3),
}


@pytest.mark.slow
@pytest.mark.parametrize("program", BY_FLOP_COUNTER)
def test_a_step_has_the_flops_that_pytorch_counts(program: str, shared_reports: Path, unpacked: Unpacked) -> None:
    name = f"{program}.rank0.sqlite"
    report = unpacked(shared_reports / name if "/" in program else DATA / f"h100/{name}.xz")
    with nsys2prv_ng.open(report) as job:
        by_step = job.nvtx.groupby("step").flops.sum()
        assert len(by_step) > 1
        assert by_step.tolist() == [BY_FLOP_COUNTER[program]] * len(by_step)
