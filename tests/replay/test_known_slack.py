"""Slack and controls of small programs in which both are known to the ns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsys2prv_ng.replay.analyse import measure_slack
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.what_if import Experiment
from tests.replay.jobs import opened_model
from tests.replay.simulated_reports import write_programs
from tests.replay.simulator import GEMM, OWN, Action, Program, simulate

STEPS = 6
LONG = 1_600_000
"""How long the kernels run for which each step waits (ns)."""
HOST, SIDE = 80_000, 8_000
"""Time of the ranges `beta` on the main thread and `alpha` on the side thread in each step (ns)."""


@contextmanager
def opened_steps(folder: Path, gemm: int) -> Iterator[Experiment]:
    """Open a program whose steps wait for two kernels side by side, one of `gemm` ns, the other of LONG ns.

    Between the launches and the wait, the main thread is in the range `beta`. Nothing waits for the side thread.
    """
    program = Program([0], 0, 16_000)
    program.threads[0, 0] = [Action("launch", 0, 800, name=OWN, stream=10, run=160)]
    program.threads[0, 1] = [Action("launch", 0, 800, ("side",), name=OWN, stream=20, run=160)]
    for step in range(STEPS):
        name = f"step {step}"
        own, inside, side = (name,), (name, "beta"), ("side", "alpha")
        program.threads[0, 0] += [
            Action("push", 1_600, name=name),
            Action("signal", 1_600, 16_000, own, group=step, waits=False),
            Action("launch", 1_600, 1_600, own, name=GEMM, stream=11, run=gemm),
            Action("launch", 1_600, 1_600, own, name=OWN, stream=10, run=LONG),
            Action("push", 0, name="beta", ranges=own),
            Action("plain", HOST // 2, HOST // 2, inside),
            Action("pop", 0, name="beta", ranges=inside),
            Action("device", 1_600, 1_600, own),
            Action("pop", 1_600, name=name, ranges=own),
        ]
        program.threads[0, 1] += [
            Action("wait", 1_600, 0, ("side",), group=step, is_needed=False),
            Action("push", 0, name="alpha", ranges=("side",)),
            Action("plain", SIDE // 2, SIDE // 2, side),
            Action("pop", 0, name="alpha", ranges=side),
        ]
    times = simulate(program)
    with opened_model([write_programs([program], [times], folder / "steps.sqlite")], folder) as model:
        experiment = Experiment(model)
        assert set(experiment.observed.lengths.tolist()) == {int(experiment.observed.mean_ns)}
        assert 1 < experiment.observed.lengths.size <= STEPS and not experiment.noise_ns
        yield experiment


def close_to(slack: int | None, known: int, step: float) -> bool:
    """Return whether a slack is what is known, and the thousandth of a step from which growth counts.

    The bisection finds it to four steps / 2 ** 10.
    """
    return slack is not None and known + 0.001 * step - 4 * step / 1_024 <= slack <= known + 0.001 * step + 1


@pytest.mark.parametrize("shorter", [1_600, 320_000, 1_440_000])
def test_the_slack_of_kernels_beside_longer_ones(tmp_path: Path, shorter: int) -> None:
    """GEMM kernels start 3,200 ns before the longer ones."""
    with opened_steps(tmp_path, LONG - shorter) as experiment:
        step, known = experiment.observed.mean_ns, shorter + 3_200
        slack = measure_slack(experiment, "class", "GEMM FP32", LONG - shorter)
        assert close_to(slack.slack_ns, known, step)
        assert (slack.target, slack.own_ns) == ("class 'GEMM FP32'", LONG - shorter)
        exact = 1 + known / (LONG - shorter)
        for factor, grows in ((exact, 0), (exact + 160 / (LONG - shorter), 160)):
            [change] = parse_changes(f"class 'GEMM FP32' * {factor:.12f}")
            assert experiment.play([change])[0].mean_ns - step == pytest.approx(grows, abs=1)
        assert close_to(measure_slack(experiment, "kernel", OWN, LONG).slack_ns, 0, step)


def test_the_slack_of_host_code_before_a_wait(tmp_path: Path) -> None:
    with opened_steps(tmp_path, 1_600) as experiment:
        slack = measure_slack(experiment, "range", "beta", HOST)
        # The kernel starts with its launch call. The range starts as this returns; more code follows it.
        assert close_to(slack.slack_ns, LONG - 1_600 - HOST - 1_600, experiment.observed.mean_ns)


def test_what_no_step_waits_for_is_not_connected(tmp_path: Path) -> None:
    with opened_steps(tmp_path, LONG) as experiment:
        scenario = experiment.run(parse_changes("range 'alpha' = 0"))
        assert (scenario.saving_ns, scenario.connected, scenario.measurable) == (0, False, False)
        assert measure_slack(experiment, "range", "alpha", SIDE).slack_ns is None
        assert measure_slack(experiment, "range", "alpha", 0).slack_ns is None
        assert experiment.run(parse_changes(f"kernel '{OWN}' = 0")).connected


@pytest.mark.parametrize(("beyond", "is_connected"), [(-160, False), (0, False), (160, True)])
def test_a_control_makes_something_ten_times_longer(tmp_path: Path, beyond: int, is_connected: bool) -> None:
    """Nine times its own time is the most slack at which something still counts as connected."""
    gemm = (LONG + 3_200 + beyond) // 10
    with opened_steps(tmp_path, gemm) as experiment:
        assert gemm * 10 == LONG + 3_200 + beyond
        scenario = experiment.run(parse_changes("class 'GEMM FP32' = 0"))
        assert (scenario.saving_ns, scenario.connected) == (0, is_connected)
        assert not scenario.measurable
