"""The options --flops-per-step and --peak-tflops of summary."""

from __future__ import annotations

import json

import pytest

from tests.cli.program_runs import run
from tests.cli.test_program import assert_one_line
from tests.conftest import SAMPLES

REPORTS = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]


@pytest.mark.slow
def test_the_mfu_is_what_flops_steps_and_peak_give() -> None:
    done = run("summary", *REPORTS, "-q", "--json", "--flops-per-step", "10T", "--peak-tflops", "500")
    summary = json.loads(done.stdout)
    steps, found = summary["steps"], summary["mfu"]
    begin, end = steps["window_ns"]
    assert found["mfu"] == pytest.approx(1e13 / ((end - begin) / 1e9 / steps["count"] * 4 * 500e12), rel=1e-9)
    assert (found["gpus"], found["is_given"], found["refused"]) == (4, True, "")
    [line] = [line["text"] for line in summary["verdict"]["statements"] if line["label"] == "MFU"]
    assert line == f"{100 * found['mfu']:.1f}%: 10.0 TFLOP a step on 4 GPUs of 500 TFLOP/s (given)"


def test_a_peak_alone_asks_for_flops() -> None:
    done = run("summary", SAMPLES / "single-graph.sqlite", "-q", "--json", "--peak-tflops", "500")
    summary = json.loads(done.stdout)
    assert summary["mfu"]["refused"].endswith("give the FLOPs of a step (flops_per_step)")
    [line] = [line["text"] for line in summary["verdict"]["statements"] if line["label"] == "MFU"]
    assert line.startswith("not known: ") and line.endswith("(--flops-per-step)")


@pytest.mark.parametrize(
    ("option", "value"), [("--flops-per-step", "6.2X"), ("--flops-per-step", "1e400"), ("--peak-tflops", "-1")]
)
def test_what_is_no_amount_is_refused_before_reading(option: str, value: str) -> None:
    done = run("summary", "no-such.nsys-rep", option, value)
    assert_one_line(done, 2)
    assert option in done.stderr
