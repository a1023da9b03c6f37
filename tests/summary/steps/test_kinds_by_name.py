"""Kinds that the texts of ranges tell, from the reports to the summary, the page and the trace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nsys2prv_ng import check, summarize, translate
from nsys2prv_ng.arrays.groups import make_objects
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.paraver.checker.cfg import check_cfg
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.steps import steps as finding
from nsys2prv_ng.steps.kinds import Kinds
from nsys2prv_ng.summary.steps.table import describe_kinds
from tests.conftest import SAMPLES
from tests.trace_reader import pair_intervals, read_trace

pytestmark = pytest.mark.slow

REPORTS = sorted(SAMPLES.glob("mpi-4.*.sqlite"))
STEP, STEP_KIND = 63000430, 63000432


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], str]], None]:
    """`say(write)`: the range of each step has the text that `write` returns for its index, on all tasks."""
    find = finding.find_kinds

    def install(write: Callable[[int], str]) -> None:
        def find_said(
            spans: Any, step: IntArray, length: Any, warmup: int, texts: Any, *jobs: Any, **ways: Any
        ) -> Kinds:
            return find(spans, step, length, warmup, make_objects(map(write, step.tolist())), *jobs, **ways)

        monkeypatch.setattr(finding, "find_kinds", find_said)

    return install


def write_batch(step: int) -> str:
    """A server's marker: every third step has a request in its context, and 8 tokens of 4 requests are generated."""
    return (
        f"execute_context_{int(step % 3 == 0)}({512 * (step % 3 == 0)})_generation_{4 * (step != 3)}({8 * (step != 3)})"
    )


def test_batches_of_a_server_in_a_summary(say: Callable[[Callable[[int], str]], None]) -> None:
    say(write_batch)
    summary = summarize(REPORTS)
    steps, efficiency = summary.steps, summary.efficiency
    assert steps is not None and efficiency is not None
    numbers = [step.number for step in efficiency.steps]
    expected = {n: "prefill" if n == 3 else "mixed" if n % 3 == 0 else "decode" for n in numbers}
    assert {step.number: step.kind for step in efficiency.steps} == expected
    amounts = {
        kind.name: (kind.context_requests, kind.context_tokens, kind.generation_requests, kind.generation_tokens)
        for kind in steps.kinds
    }
    decode = list(expected.values()).count("decode")
    mixed = list(expected.values()).count("mixed")
    assert amounts == {
        "prefill": (1, 512, 0, 0),
        "mixed": (mixed, 512 * mixed, 4 * mixed, 8 * mixed),
        "decode": (0, 0, 4 * decode, 8 * decode),
    }
    assert f"decode: {decode} of {len(numbers)} steps" in describe_kinds(steps)
    assert summary.to_dict()["steps"]["kinds"][0]["name"] == steps.kinds[0].name


def test_kinds_by_name_in_a_trace(say: Callable[[Callable[[int], str]], None], tmp_path: Path) -> None:
    say(lambda step: ("eval {n}", "train {n}", "train {n}")[step % 3])
    translate(REPORTS, tmp_path / "trace.prv")
    assert not check(tmp_path / "trace.prv").problems
    trace = read_trace(tmp_path / "trace.prv")
    assert trace.values[STEP_KIND] == {0: "End", 1: "train", 2: "eval"}
    steps, kinds = (pair_intervals(trace, number).sort_values(["row", "begin"]) for number in (STEP, STEP_KIND))
    assert steps[["row", "begin", "end"]].values.tolist() == kinds[["row", "begin", "end"]].values.tolist()
    number = np.array([int(trace.values[STEP][value].split()[-1]) for value in steps["value"]])
    assert kinds["value"].tolist() == np.where(number % 3 == 0, 2, 1).tolist()
    contents = check_trace(tmp_path / "trace.prv").contents
    (preset,) = [preset for preset in list_presets() if preset.name == "analysis/steps_by_kind"]
    report = check_cfg(preset.path, contents.config, contents.header, contents.types)
    assert not report.problems
    assert not any("63000432" in warning.message for warning in report.warnings)
