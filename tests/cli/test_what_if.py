"""The command what-if as a user runs it: changes, what is printed, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsys2prv_ng import summarize, what_if
from tests.cli.program_runs import run
from tests.tiers import cases


@pytest.fixture(scope="module")
def report(samples: Path) -> Path:
    return samples / "single-graph.sqlite"


@pytest.mark.slow
def test_json_is_the_numbers_of_each_change_in_the_order_given(report: Path) -> None:
    texts = ["copies = 0", "host = ideal and copies = 0", "host * 1"]
    changes = [part for text in texts for part in ("--change", text)]
    done = run("what-if", report, *changes, "--json", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    numbers = json.loads(done.stdout)
    assert [scenario["change"] for scenario in numbers["scenarios"]] == texts
    assert numbers["scenarios"][2]["saving_ns"] == 0
    assert numbers == what_if(report, change=texts).to_dict()
    for scenario in numbers["scenarios"]:
        assert scenario["predicted_step_ns"] == pytest.approx(numbers["step_ns"] - scenario["saving_ns"], abs=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases(["mpi-4", "ddp-2x2"], push=1))
def test_a_summary_has_the_changes_that_are_tried_by_default(samples: Path, name: str) -> None:
    reports = sorted(samples.glob(f"{name}.rank*.sqlite"))
    predicted, found = what_if(reports), summarize(reports).what_if
    assert found is not None and found.slack == []
    assert found.scenarios == predicted.scenarios and found.step_ns == predicted.step_ns
    assert not any(scenario.measurable and scenario.saving_ns < 0 for scenario in predicted.scenarios)


@pytest.mark.slow
def test_a_name_that_matches_nothing_is_one_line_with_the_nearest(report: Path) -> None:
    done = run("what-if", report, "--change", "call 'cudaGraphLaunc' = 0", "-q")
    assert done.returncode == 2 and done.stdout == ""
    [line] = done.stderr.splitlines()
    assert "no call is named 'cudaGraphLaunc'" in line and "'cudaGraphLaunch" in line


@pytest.mark.parametrize("text", ["faster", "range a = 0", "rank 0 = ideal"])
def test_a_text_that_is_no_change_names_the_option_and_the_forms(report: Path, text: str) -> None:
    done = run("what-if", report, "--change", text)
    assert done.returncode == 2 and done.stdout == ""
    assert "--change" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_trace_needs_one_change(report: Path, tmp_path: Path) -> None:
    output = tmp_path / "predicted.prv"
    for changes in ([], ["--change", "copies = 0", "--change", "host = ideal"]):
        done = run("what-if", report, output, *changes, "-q")
        assert done.returncode == 2 and "needs one change" in done.stderr
        assert not list(tmp_path.iterdir())
