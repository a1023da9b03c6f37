"""Traces of the sides of a comparison: their names, the steps in them, and equal numbers for equal names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import nsys2prv_ng
from nsys2prv_ng.bundled.presets import list_presets as list_shipped
from nsys2prv_ng.comparison.model import Side, SideTraces
from nsys2prv_ng.comparison.side_traces import (
    _EVERYTHING,
    _PRESETS,
    choose_common_steps,
    describe_traces,
    name_traces,
)
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.summary.efficiency.windows import COMPUTE, IN_CUDA, IN_MPI, PARTS
from nsys2prv_ng.text.names import USER_CODE
from tests.comparison.made import MS, make_summary
from tests.conftest import SAMPLES
from tests.report_truth import Report
from tests.steps.step_truth import StepTruth, list_ranges
from tests.trace_reader import pair_intervals, read_trace

DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
STEP = 63000430


def test_names_are_distinct_and_safe() -> None:
    labels = ["a b", "a_b", "../x", "", "é/..", "a b"]
    assert name_traces(labels) == ["a_b.prv", "a_b-2.prv", "x.prv", "run.prv", "é.prv", "a_b-3.prv"]
    assert len(name_traces(["x" * 500])[0]) < 100


def test_presets_are_shipped_and_parts_are_known() -> None:
    shipped = {preset.name for preset in list_shipped()}
    assert {*_PRESETS.values(), _EVERYTHING} <= shipped
    assert set(_PRESETS) <= {*PARTS.values(), COMPUTE, USER_CODE, IN_CUDA, IN_MPI}
    assert {"host-bound", "data transfer", "wait time"} <= set(_PRESETS)


@pytest.mark.all_sets
@pytest.mark.slow
def test_traces_of_the_same_steps_and_numbers(tmp_path: Path) -> None:
    """Two ranks against all four: the steps of both are 1 to 5."""
    folder = tmp_path / "new" / "traces"
    comparison = nsys2prv_ng.compare([DDP[:2], DDP], labels=["two", "four"], traces=folder)
    made = comparison.traces
    assert (
        made is not None and made.steps == (1, 5) and made.files == [str(folder / n) for n in ("two.prv", "four.prv")]
    )
    assert comparison.to_dict()["traces"]["steps"] == (1, 5)
    two, four = (read_trace(Path(file)) for file in made.files)
    for reports, trace in ((DDP[:2], two), (DDP, four)):
        own = [Report(path) for path in reports]
        truth = StepTruth(own, list_ranges(own, "step"))
        (start, _), (_, stop) = truth.get_limits(1), truth.get_limits(5)
        assert trace.duration == stop - start + 2
        assert set(pair_intervals(trace, STEP)["value"]) == {2, 3, 4, 5, 6}
    checked = 0
    for number, values in two.values.items():
        numbers = {label: value for value, label in four.values.get(number, {}).items()}
        shared = [(value, numbers[label]) for value, label in values.items() if label in numbers]
        assert all(value == other for value, other in shared), number
        checked += len(shared)
    assert checked > 100 and two.types.items() <= four.types.items()
    with pytest.raises(UsageError, match=r"two.prv is there already; choose another folder"):
        nsys2prv_ng.compare([DDP[:2], DDP], labels=["two", "four"], traces=folder)


def test_traces_need_reports(tmp_path: Path) -> None:
    saved = tmp_path / "a.json"
    saved.write_text("{}")
    with pytest.raises(UsageError, match="traces are made of reports, and a side is a saved summary"):
        nsys2prv_ng.compare([[saved], DDP], traces=tmp_path)
    with pytest.raises(UsageError, match="is no folder"):
        nsys2prv_ng.compare([DDP[:1], DDP], traces=saved)


def make_side(count: int, name: str = "step") -> Side:
    summary = make_summary([{"compute_ns": MS}] * count)
    return Side("x", summary if summary.steps is None else replace(summary, steps=replace(summary.steps, name=name)))


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        ([make_side(5), make_side(3), make_side(4)], (1, 3)),
        ([make_side(1), make_side(3)], (1, 1)),
        ([make_side(5), make_side(5, "other")], None),
        ([make_side(5), make_side(0)], None),
    ],
)
def test_steps_that_all_sides_have(sides: list[Side], expected: tuple[int, int] | None) -> None:
    assert choose_common_steps(sides) == expected


@pytest.mark.parametrize(
    ("steps", "text"),
    [((2, 5), "steps 2 to 5 of each run"), ((3, 3), "step 3 of each run"), (None, "no steps in common")],
)
def test_text(steps: tuple[int, int] | None, text: str) -> None:
    assert text in describe_traces(SideTraces(["a.prv"], steps, ["views/x"]))
