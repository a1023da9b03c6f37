"""Scaling of made runs, with rates that were worked out by hand, and of real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsys2prv_ng.comparison.comparability import check_comparability
from nsys2prv_ng.comparison.model import Scaling, ScalingRun, Side
from nsys2prv_ng.comparison.scaling import format_scaling, make_scaling, tabulate_scaling
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.text.grid import Term
from tests.comparison.made_runs import MS, hide_in_graphs, make_facts, make_run
from tests.conftest import Unpacked
from tests.summary.made import summarize_reports

HOSTILE = ("\x1b[31mred", "a\nb\r", "| x | `y` <b>", "\ud800", "", "name " * 100)


def list_rows(scaling: Scaling) -> list[list[str]]:
    """Return the titles and then the rows of the table."""
    grid = tabulate_scaling(scaling, str)
    return [[column.title for column in grid.columns], *([str(cell) for cell in row] for row in grid.rows)]


def find_scaling(sides: Sequence[Side], scaling: str | None = None) -> Scaling | None:
    return make_scaling(sides, check_comparability(sides), scaling)


def scale(*sides: Side, scaling: str | None = None) -> Scaling:
    made = find_scaling(sides, scaling)
    assert made is not None
    return made


def rates(run: ScalingRun) -> list[float | None]:
    return [run.speedup, run.efficiency, run.computation_scalability, run.parallel, run.global_efficiency]


ONE = make_run("one", [800], 100)
"""One GPU that is useful 800 of 1000 ms, in 10 steps."""


# ---- made runs -------------------------------------------------------------------------------------------------------


def test_ideal_strong_scaling() -> None:
    """Four GPUs do a fourth of the work each, in a fourth of the time; three runs in any order."""
    made = scale(make_run("four", [200] * 4, 25), ONE, make_run("two", [400] * 2, 50))
    assert [run.label for run in made.runs] == ["one", "two", "four"]
    assert (made.kind, made.is_chosen, made.step_name) == ("strong", False, "step")
    assert [rates(run) for run in made.runs] == [[speedup, 1.0, 1.0, 0.8, 0.8] for speedup in (1.0, 2.0, 4.0)]
    assert [run.time_ns for run in made.runs] == [100 * MS, 50 * MS, 25 * MS]
    assert [run.useful_ns for run in made.runs] == [80 * MS] * 3


def test_ideal_weak_scaling() -> None:
    """Four GPUs do four times the work in the same time."""
    made = scale(ONE, make_run("four", [800] * 4, 100))
    assert made.kind == "weak"
    assert rates(made.runs[1]) == [4.0, 1.0, 1.0, 0.8, 0.8]


def test_runs_are_ordered_by_gpus_then_by_processes() -> None:
    sizes = [(2, 1), (1, 2), (2, 2), (1, 1)]
    sides = [make_run(f"{gpus} {ranks}", [400] * gpus, 50, ranks=ranks) for gpus, ranks in sizes]
    assert [(run.gpus, run.processes) for run in scale(*sides).runs] == [(1, 1), (1, 2), (2, 1), (2, 2)]


def test_more_steps_are_no_more_work() -> None:
    """The same run with three times the steps is ideal as well."""
    made = scale(ONE, make_run("two", [1200] * 2, 50, steps=30))
    assert rates(made.runs[1]) == [2.0, 1.0, 1.0, 0.8, 0.8]


def test_more_work_is_lost_in_computation_scalability() -> None:
    """Two GPUs need 25 % more useful time, in a step of 62.5 ms, which keeps them as busy: 80 % efficient."""
    made = scale(make_run("one", [1600], 200), make_run("two", [1000] * 2, 125))
    assert made.kind == "strong"
    assert rates(made.runs[1]) == [1.6, 0.8, 0.8, 0.8, 0.8 * 0.8]


def test_imbalance_is_lost_in_load_balance() -> None:
    """One of two GPUs has three times the work of the other: mean 400, most 600; the step is as long as that needs."""
    made = scale(ONE, make_run("two", [600, 200], 75))
    first, second = (run.device for run in made.runs)
    assert first is not None and second is not None
    assert (second.load_balance, second.communication, second.orchestration) == (400 / 600, 1.0, 0.8)
    assert (first.load_balance, first.communication, first.orchestration) == (1.0, 1.0, 0.8)
    assert made.runs[1].computation_scalability == 1.0
    assert made.runs[1].efficiency == pytest.approx(100 / 75 / 2)


def test_communication_is_lost_in_communication() -> None:
    made = scale(ONE, make_run("two", [400] * 2, 62, active=[500, 496]))
    device = made.runs[1].device
    assert device is not None
    assert (device.load_balance, device.communication, device.orchestration) == (1.0, 0.8, 500 / 620)


def test_the_rates_of_a_replay_are_a_tree_of_their_own() -> None:
    """They are no factors of the global efficiency, and runs without them have empty cells."""
    four = make_run("four", [200] * 4, 25)
    assert not any("POP" in row[0] for row in list_rows(scale(ONE, four)))
    efficiency = four.summary.efficiency
    assert efficiency is not None and efficiency.in_steps is not None
    trees = efficiency.in_steps.nccl_as_communication
    assert trees.device is not None
    device = replace(trees.device, pop_communication=0.8, serialisation=1.0, transfer=0.8)
    in_steps = replace(efficiency.in_steps, nccl_as_communication=replace(trees, device=device))
    four = four._replace(summary=replace(four.summary, efficiency=replace(efficiency, in_steps=in_steps)))
    grid = tabulate_scaling(scale(ONE, four), str)
    rows = {term.text: (term.depth, *map(str, cells)) for term, *cells in grid.rows if isinstance(term, Term)}
    assert rows["POP communication"] == (0, "", "80.0%")
    assert rows["serialisation"] == (1, "", "100.0%") and rows["transfer"] == (1, "", "80.0%")


def test_useful_time_in_whole_graphs_is_not_known() -> None:
    made = scale(ONE, hide_in_graphs(make_run("two", [400] * 2, 50), 0.25))
    assert [run.useful_ns for run in made.runs] == [80 * MS, None]
    assert made.kind is None and [run.computation_scalability for run in made.runs] == [None, None]
    assert any("CUDA graphs that were traced as a whole may compute" in note for note in made.notes)
    assert not any("CUDA graphs" in note for note in scale(ONE, make_run("two", [400] * 2, 50)).notes)


def test_idle_gpus_are_lost_in_orchestration() -> None:
    made = scale(ONE, make_run("two", [400] * 2, 80))
    device = made.runs[1].device
    assert device is not None
    assert (device.load_balance, device.communication, device.orchestration) == (1.0, 1.0, 0.5)
    assert rates(made.runs[1]) == [1.25, 0.625, 1.0, 0.5, 0.5]


@given(
    useful=st.lists(st.integers(1, 1000), min_size=2, max_size=8),
    idle=st.integers(0, 500),
    scaling=st.sampled_from([None, "strong", "weak"]),
)
def test_products_hold_exactly(useful: list[int], idle: int, scaling: str | None) -> None:
    made = scale(ONE, make_run("more", useful, max(useful) + idle, steps=7), scaling=scaling)
    for run in made.runs:
        assert run.device is not None and run.parallel is not None and run.computation_scalability is not None
        assert run.speedup is not None and run.efficiency is not None
        assert run.parallel == run.device.load_balance * run.device.communication * run.device.orchestration
        assert run.global_efficiency == run.parallel * run.computation_scalability
        assert run.efficiency == pytest.approx(run.speedup / run.gpus)
    work = sum(useful) / 7 / 80
    ideal = {"strong": 1, "weak": len(useful)}[str(made.kind)]
    assert made.runs[1].computation_scalability == pytest.approx(ideal / work)
    assert scaling in (None, made.kind)
    assert scaling or (made.kind == "weak") == (work**2 > len(useful))


@given(useful=st.lists(st.integers(1, 1000), min_size=2, max_size=8), scaling=st.sampled_from(["strong", "weak"]))
def test_efficiency_is_the_ratio_of_global_efficiencies(useful: list[int], scaling: str) -> None:
    """Where all steps take as long and follow each other without a break: POP's identity."""
    first, run = scale(ONE, make_run("more", useful, max(useful) + 5), scaling=scaling).runs
    assert first.global_efficiency is not None and run.global_efficiency is not None
    assert run.efficiency == pytest.approx(run.global_efficiency / first.global_efficiency)


@pytest.mark.parametrize("gpus", [2, 3, 4, 8, 64])
@pytest.mark.parametrize("before", [1, 2, 3])
def test_the_kind_is_found_for_every_growth(before: int, gpus: int) -> None:
    """Also from 3 to 4 GPUs, where strong scaling has 0.75 times the useful time for each GPU."""
    if gpus <= before:
        return
    first = make_run("few", [64 * 9 * 7] * before, 1000)
    strong = make_run("strong", [64 * 9 * 7 * before // gpus] * gpus, 500)
    assert scale(first, strong).kind == "strong"
    assert scale(first, make_run("weak", [64 * 9 * 7] * gpus, 1000)).kind == "weak"


@pytest.mark.parametrize(("useful", "kind"), [(564, "strong"), (568, "weak")])
def test_the_limit_between_the_kinds(useful: int, kind: str) -> None:
    """Of two GPUs it is the root of 2: 1.41 and 1.42 times the 800 ms of one."""
    assert scale(ONE, make_run("two", [useful] * 2, 100)).kind == kind


def test_the_user_says_what_scales() -> None:
    """The weak run as strong: four times the useful time is a loss."""
    made = scale(ONE, make_run("four", [800] * 4, 100), scaling="strong")
    assert (made.kind, made.is_chosen, made.rule) == ("strong", True, "")
    assert rates(made.runs[1]) == [1.0, 0.25, 0.25, 0.8, 0.2]
    with pytest.raises(UsageError, match="scaling='weakly': write strong or weak"):
        find_scaling([ONE], "weakly")


def test_no_scaling() -> None:
    assert find_scaling([]) is None
    assert find_scaling([ONE]) is None
    assert find_scaling([ONE, make_run("other", [500], 70)]) is None
    other = make_run("two", [400] * 2, 50, model="NVIDIA A100")
    assert find_scaling([ONE, other]) is None
    assert "GPU model: NVIDIA H200 (one) vs NVIDIA A100 (two)" in [
        finding.text for finding in check_comparability([ONE, other]).findings
    ]


# ---- what does not apply ---------------------------------------------------------------------------------------------


def without_steps(side: Side) -> Side:
    return side._replace(summary=replace(side.summary, steps=None))


def test_without_steps_times_are_of_windows() -> None:
    made = scale(without_steps(ONE), without_steps(make_run("two", [400] * 2, 50)))
    assert (made.step_name, made.kind) == (None, "strong")
    assert [run.time_ns for run in made.runs] == [2000 * MS, 1000 * MS]
    assert [run.useful_ns for run in made.runs] == [800 * MS] * 2
    assert rates(made.runs[1]) == [2.0, 1.0, 1.0, 0.4, 0.4]
    assert any("not every run has steps" in note for note in made.notes)


@pytest.mark.parametrize(
    ("two", "reason"),
    [
        (without_steps(make_run("two", [400] * 2, 50)), "not every run has steps"),
        (make_run("two", [400] * 2, 50, step_name="token"), "not the same work"),
    ],
)
def test_windows_with_different_work_show_no_kind(two: Side, reason: str) -> None:
    made = scale(ONE, two)
    assert (made.step_name, made.kind) == (None, None) and "does not show" in made.rule
    assert rates(made.runs[1]) == [2.0, None, None, 0.4, None]
    assert any(reason in note for note in made.notes)
    assert rates(scale(ONE, two, scaling="strong").runs[1]) == [2.0, 1.0, 1.0, 0.4, 0.4]


def test_other_programming_models_have_no_rates_that_compare_work() -> None:
    """One process with four GPUs after one with one."""
    four = make_run("four", [200] * 4, 25, ranks=1)
    made = scale(ONE, four)
    assert made.kind is None
    assert rates(made.runs[1]) == [4.0, None, None, 0.8, None]
    rows = {row[0].strip(): row[1:] for row in list_rows(made)}
    assert rows["speedup"] == ["1.00", "4.00"] and rows["parallel"] == ["80.0%", "80.0%"]
    assert not {"efficiency", "global efficiency", "computation scalability"} & set(rows)
    assert rates(scale(ONE, four, scaling="strong").runs[1]) == [4.0, 1.0, 1.0, 0.8, 0.8]


def test_a_run_without_gpus() -> None:
    made = scale(make_run("host", [], 400, ranks=1), ONE)
    assert [run.gpus for run in made.runs] == [0, 1]
    assert [rates(run) for run in made.runs] == [[1.0, None, None, None, None], [4.0, None, None, 0.8, None]]
    assert find_scaling([make_run("host", [], 400, ranks=1), ONE], "weak") is not None


def test_main_threads_where_no_run_has_gpus() -> None:
    """Two ranks, then four in half the time, a fifth of which they are in MPI: 2 x 100 and 4 x 40 ms are useful."""
    made = scale(make_run("two", [], 100, ranks=2), make_run("four", [], 50, ranks=4, in_mpi=100))
    assert made.kind == "strong"
    assert [run.useful_ns for run in made.runs] == [200 * MS, 160 * MS]
    assert rates(made.runs[1]) == [2.0, 1.0, 1.25, 0.8, 1.0]
    rows = {row[0].strip(): row[1:] for row in list_rows(made)}
    assert rows["MPI parallel"] == ["", "80.0%"]
    assert not {"GPUs", "device offload", "orchestration"} & set(rows)


def test_nothing_useful() -> None:
    window = make_run("two", [1, 1], 50).summary.efficiency
    assert window is not None and window.in_steps is not None and window.losses is not None
    idle = replace(window.in_steps, losses=replace(window.losses, compute_ns=0))
    two = make_run("two", [1, 1], 50, efficiency=replace(window, in_steps=idle))
    made = scale(ONE, two)
    assert (made.kind, made.runs[1].computation_scalability, made.runs[1].global_efficiency) == (None, None, None)
    assert made.runs[1].speedup == 2.0 and "does not show" in made.rule


def test_without_efficiencies() -> None:
    """Of summaries that have none, the lengths of the jobs remain."""
    sides = [make_run("a", [5], 100, efficiency=None), make_run("b", [5, 5], 50, efficiency=None)]
    made = scale(*sides)
    assert [(run.time_ns, run.speedup, run.parallel) for run in made.runs] == [
        (2000 * MS, 1.0, None),
        (1000 * MS, 2.0, None),
    ]


# ---- outputs ---------------------------------------------------------------------------------------------------------


def test_the_table() -> None:
    made = scale(ONE, make_run("two", [400] * 2, 80))
    lines = format_scaling(made, 100)
    assert " ".join(lines[:2]) == (
        "Strong scaling by steps `step`, against `one`; GPUs grow 2.00 times, useful time 1.00 times (ideal: "
        "strong 1, weak 2.00; weak above 1.41):"
    )
    assert [re.split("  +", line.strip()) for line in lines[2:]] == [
        ["one", "two"],
        ["nodes", "1", "1"],
        ["processes", "1", "2"],
        ["GPUs", "1", "2"],
        ["step", "100 ms", "80.0 ms"],
        ["speedup", "1.00", "1.25"],
        ["efficiency", "100.0%", "62.5%"],
        ["global efficiency", "80.0%", "50.0%"],
        ["computation scalability", "100.0%", "100.0%"],
        ["parallel", "80.0%", "50.0%"],
        ["load balance", "100.0%", "100.0%"],
        ["communication", "100.0%", "100.0%"],
        ["orchestration", "80.0%", "50.0%"],
        ["host, parallel", "100.0%", "100.0%"],
        ["kernels of NCCL are communication"],
    ]
    assert json.loads(json.dumps(asdict(made)))["runs"][1]["efficiency"] == 0.625


@pytest.mark.parametrize("width", range(43, 100, 3))
def test_many_runs_are_in_parts_that_fit(width: int) -> None:
    """Each run is in one part, and each part has every row."""
    sides = [make_run(f"run with {n} GPUs", [400] * n, 100 + n) for n in range(1, 30)]
    lines = format_scaling(scale(*sides), width)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert [text.count(f"with {n} GPUs") for n in range(2, 30)] == [1] * 28
    parts = text.count("\nspeedup")
    assert parts > 1 and [text.count(row) for row in ("  computation scalability ", "host, parallel ")] == [parts] * 2
    times = re.findall(r"1\d\d ms", text)
    assert times == [f"{100 + n} ms" for n in range(1, 30)]


@pytest.mark.parametrize("label", HOSTILE)
def test_hostile_labels(label: str) -> None:
    made = scale(
        ONE, make_run(label, [400] * 2, 80, step_name=label), make_run(label, [400] * 4, 60, facts=make_facts())
    )
    lines = format_scaling(made, 80)
    assert all(line.isprintable() and len(line) <= 80 for line in lines)
    assert all(cell.isprintable() for row in list_rows(made) for cell in row)
    assert len({len(row) for row in list_rows(made)}) == 1


# ---- real runs -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_some_ranks_of_a_run_are_no_smaller_run(samples: Path) -> None:
    """Neither as a selection nor as a part of its reports."""
    reports = sorted(samples.glob("mpi-4.rank*.sqlite"))
    whole = Side("whole", summarize_reports(reports))
    selected = Side("selected", summarize_reports(reports, Selection(ranks=frozenset((0, 1)))))
    part = Side("part", summarize_reports(reports[:2]))
    assert [len(side.summary.gpus) for side in (whole, selected, part)] == [4, 2, 2]
    for side, reason in (selected, "are of the same reports"), (part, "have 2 reports in common"):
        assert find_scaling([whole, side]) is None
        [found] = [own for own in check_comparability([whole, side]).findings if reason in own.text]
        assert "scaling" in found.prevents


@pytest.mark.all_sets
@pytest.mark.slow
def test_other_parallelism_on_as_many_gpus_is_no_scaling(shared_reports: Path, unpacked: Unpacked) -> None:
    names = ("ex3a-pp1", "ex3a-pp2")
    reports = [
        [unpacked(shared_reports / f"exercises/{name}.rank{rank}.sqlite") for rank in range(4)] for name in names
    ]
    sides = [Side(name, summarize_reports(own)) for name, own in zip(names, reports, strict=True)]
    assert [(side.summary.nodes, len(side.summary.gpus)) for side in sides] == [(1, 4), (2, 4)]
    assert find_scaling(sides) is None
    texts = [finding.text for finding in check_comparability(sides).findings]
    assert texts == ["number of nodes: 1 (ex3a-pp1) vs 2 (ex3a-pp2)"]


@pytest.mark.slow
def test_a_saved_summary_scales_as_well(samples: Path, tmp_path: Path) -> None:
    """Different programs of four and of one GPU: rates of each run are those of its summary."""
    four = summarize_reports(sorted(samples.glob("ddp-2x2.rank*.sqlite")))
    one = summarize_reports([samples / "single-graph.sqlite"])
    sides = []
    for label, summary in ("four", four), ("one", one):
        summary.save(tmp_path / f"{label}.json")
        sides.append(Side(label, JobSummary.load(tmp_path / f"{label}.json")))
    made = scale(*sides)
    assert [run.gpus for run in made.runs] == [1, 4]
    assert four.efficiency is not None and one.efficiency is not None
    devices = [own.nccl_as_communication.device for own in (one.efficiency, four.efficiency)]
    assert [run.device for run in made.runs] == devices
    assert made.kind is None and "does not show" in made.rule
    assert made.runs[1].speedup == one.efficiency.length_ns / four.efficiency.length_ns
    assert four.efficiency.losses is not None and one.efficiency.losses is not None
    work = four.efficiency.losses.compute_ns / one.efficiency.losses.compute_ns
    weak = scale(*sides, scaling="weak").runs[1]
    assert weak.computation_scalability == pytest.approx(4 / work)
    assert weak.speedup == pytest.approx(4 * one.efficiency.length_ns / four.efficiency.length_ns)
