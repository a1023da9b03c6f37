"""Steps of small programs in which each takes as long as the slower of host and GPU, whichever was ahead before."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import product
from pathlib import Path

import pytest

import nsys2prv_ng
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


@pytest.mark.parametrize(
    ("host", "gpu", "first"),
    [
        (320_000, 800_000, 160_000),
        (320_000, 800_000, 3_200_000),
        (800_000, 320_000, 160_000),
        (640_000, 640_000, 3_200_000),
    ],
)
def test_steps_take_as_long_as_the_slower_of_host_and_gpu(host: int, gpu: int, first: int, tmp_path: Path) -> None:
    """A host that is far ahead when the steps begin, after a long first one, gains nothing for them."""
    with opened_steps(tmp_path, host, gpu, first) as experiment:
        assert experiment.observed.mean_ns == max(host, gpu)
        for on_host, others, own in product((1, 0.25, 0.5, 4), (1, 0.5, 3), (1, 0.25, 2)):
            text = f"host * {on_host} and kernel '{GEMM}' * {others} and kernel '{OWN}' * {own}"
            predicted = experiment.play(parse_changes(text))[0]
            on_gpu = others * (3 * gpu / 4 - LATENCY) + own * (gpu / 4 - LATENCY) + 2 * LATENCY
            assert predicted.mean_ns == pytest.approx(max(on_host * host, on_gpu), abs=LATENCY), text
            assert predicted.begin == experiment.observed.begin


def test_threads_of_libraries_do_not_set_the_pace(samples: Path, tmp_path: Path) -> None:
    """A thread that only polls until the end of the capture changes no prediction of a job without steps."""
    reports = samples / "single-graph.sqlite", tmp_path / "polling.sqlite"
    shutil.copyfile(*reports)
    with closing(sqlite3.connect(reports[1])) as database, database:
        (end,) = database.execute("SELECT duration FROM ANALYSIS_DETAILS").fetchone()
        (tid, name) = database.execute("SELECT max(globalTid) + 1, max(nameId) FROM OSRT_API").fetchone()
        polls = [(begin, begin + 99_000_000, tid, name) for begin in range(10**8, end - 10**8, 10**8)]
        columns = 'start, "end", globalTid, nameId, eventClass, returnValue, callchainId'
        database.executemany(f"INSERT INTO OSRT_API ({columns}) VALUES (?, ?, ?, ?, 27, 0, 0)", polls)
    changes = ["host = ideal", "kernel '*' * 0.5", "copies = 0"]
    alone, polling = (nsys2prv_ng.what_if([report], change=changes).scenarios for report in reports)
    assert [each.saving_ns for each in polling] == [each.saving_ns for each in alone]
