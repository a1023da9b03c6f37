"""Steps of small programs in which each takes as long as the slower of host and GPU, whichever was ahead before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.what_if import Experiment
from tests.replay.jobs import opened_model
from tests.replay.simulated_reports import write_programs
from tests.replay.simulator import GEMM, OWN, Action, Program, simulate

STEPS = 7
LATENCY = 1_600


@contextmanager
def opened_steps(folder: Path, host: int, gpu: int, first: int) -> Iterator[Experiment]:
    """Open a program that never waits: its host needs `host` ns a step, its GPU `gpu` ns, in the first step `first` ns.

    The kernel that a step launches last runs for a quarter of the time.
    """
    program = Program([0], LATENCY, 16_000)
    program.threads[0, 0] = [Action("launch", 0, 800, name=OWN, stream=10, run=160)]
    for step in range(STEPS):
        name = f"step {step}"
        whole = gpu if step else first
        program.threads[0, 0] += [
            Action("push", 0, name=name),
            Action("launch", host // 2, 800, (name,), name=GEMM, stream=10, run=3 * whole // 4 - LATENCY),
            Action("launch", host // 2 - 1_600, 800, (name,), name=OWN, stream=10, run=whole // 4 - LATENCY),
            Action("pop", 0, name=name, ranges=(name,)),
        ]
    times = simulate(program)
    with opened_model([write_programs([program], [times], folder / "steps.sqlite")], folder) as model:
        yield Experiment(model)


@pytest.mark.parametrize("first", [160_000, 3_200_000])
@pytest.mark.parametrize(("host", "gpu"), [(320_000, 800_000), (800_000, 320_000), (640_000, 640_000)])
@pytest.mark.parametrize(
    ("text", "on_host", "on_gpu"),
    [
        ("kernel '*' * 0.25", 1, 0.25),
        ("kernel '*' * 0.5", 1, 0.5),
        ("kernel '*' * 3", 1, 3),
        ("host * 0.5", 0.5, 1),
        ("host * 4", 4, 1),
        (f"kernel '{OWN}' * 0.5", 1, 0.875),
        (f"kernel '{OWN}' * 2", 1, 1.25),
        ("kernel '*' * 0.5 and host * 0.25", 0.25, 0.5),
    ],
)
def test_steps_take_as_long_as_the_slower_of_host_and_gpu(
    text: str, on_host: float, on_gpu: float, host: int, gpu: int, first: int, tmp_path: Path
) -> None:
    """A host that is far ahead when the steps begin, after a long first one, gains nothing for them."""
    with opened_steps(tmp_path, host, gpu, first) as experiment:
        predicted = experiment.play(parse_changes(text))[0]
        saving = (experiment.observed.mean_ns - predicted.mean_ns) * predicted.lengths.size
        count = predicted.lengths.size
        # Without a waiting host, only one of both is played; the other one may be the slower one once.
        before, after = max(host, gpu), max(on_host * host, on_gpu * (gpu - 2 * LATENCY) + 2 * LATENCY)
        assert saving / count == pytest.approx(before - after, abs=2 * LATENCY + (first > gpu and host >= gpu) * first)
        assert experiment.observed.begin == predicted.begin
