"""Which changes are likely: not those of what is the whole step by another name."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.replay.analyse import Totals, list_candidates
from nsys2prv_ng.replay.what_if import Experiment
from tests.replay.jobs import opened_model
from tests.replay.simulated_reports import write_programs
from tests.replay.simulator import GEMM, OWN, Action, Program, simulate

STEPS = 6
CODE = 400_000
"""Time of host code in each step (ns)."""


@pytest.mark.parametrize("launches", [True, False])
@pytest.mark.parametrize("outside", [CODE // 10, CODE])
def test_ranges_of_nearly_the_whole_step(tmp_path: Path, launches: bool, outside: int) -> None:
    """The range `cycle` covers nine tenths, or less than four fifths of each step; `part` is within it."""
    program = Program([0], 0, 16_000)
    program.threads[0, 0] = [Action("launch", 0, 800, name=OWN, stream=10, run=160)]
    for step in range(STEPS):
        own, cycle, part = (f"step {step}",), (f"step {step}", "cycle"), (f"step {step}", "cycle", "part")
        launch = Action("launch", 1_600, 1_600, part if launches else own, name=GEMM, stream=10, run=CODE // 4)
        program.threads[0, 0] += [
            Action("push", 1_600, name=own[0]),
            Action("launch", 1_600, 1_600, own, name=OWN, stream=10, run=1_600),
            *([] if launches else [launch]),
            Action("push", 0, name="cycle", ranges=own),
            Action("push", 0, name="part", ranges=cycle),
            *([launch] if launches else []),
            Action("plain", CODE // 4, CODE // 4, part),
            Action("pop", 0, name="part", ranges=part),
            Action("plain", CODE // 4, CODE // 4, cycle),
            Action("pop", 0, name="cycle", ranges=cycle),
            Action("plain", outside // 2, outside // 2, own),
            Action("device", 1_600, 1_600, own),
            Action("pop", 1_600, name=own[0], ranges=own),
        ]
    reports = [write_programs([program], [simulate(program)], tmp_path / "steps.sqlite")]
    with opened_model(reports, tmp_path) as model:
        totals = Totals(model, Experiment(model).observed)
        ranges = totals.measure_ranges()
        changes = [str(change) for change in list_candidates(totals, ranges, {}, None)]
    named = [name for name in ("cycle", "part") if any(f"'{name}'" in change for change in changes)]
    covered = launches and outside < CODE
    assert named == (["part"] if covered else ["cycle", "part"])
    assert set(ranges) == {"cycle", "part"} and totals.launching == ({"cycle", "part"} if launches else set())
