"""The summary of a job too large to be replayed: one process replays an excerpt, another finds the whole path."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import Any

import pytest

import nsys2prv_ng
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.replay import what_if
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.path import measure
from tests.conftest import SAMPLES

MPI = sorted(SAMPLES.glob("mpi-4.*.sqlite"))


@pytest.fixture(scope="module")
def whole() -> JobSummary:
    return nsys2prv_ng.summarize(MPI, jobs=1)


@pytest.mark.parametrize("jobs", [1, 3])
def test_the_path_is_of_the_whole_job_and_the_replay_of_the_excerpt(
    jobs: int, whole: JobSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(what_if, "MOST", 400)
    found, alone = nsys2prv_ng.summarize(MPI, jobs=jobs), nsys2prv_ng.what_if(MPI, jobs=1)
    assert found.critical_path == whole.critical_path
    assert found.what_if is not None and alone.replayed is not None
    assert found.what_if.replayed == alone.replayed
    truth = {scenario.change: scenario for scenario in alone.scenarios}
    tried = [scenario for scenario in found.what_if.scenarios if scenario.change in truth]
    assert len(tried) > 3
    assert tried == [truth[scenario.change] for scenario in tried]


@pytest.mark.parametrize("times", [1, 9])
def test_the_process_that_replays_is_killed(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "MOST", 400)
    truth = nsys2prv_ng.summarize(MPI, jobs=1)
    made = multiprocessing.get_context("fork").Value("i", 0)
    real = measure.make_experiment

    def make(*arguments: Any) -> Any:
        with made:
            made.value += 1
            is_turn = made.value <= times
        if is_turn:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments)

    monkeypatch.setattr(measure, "make_experiment", make)
    if times == 1:
        assert nsys2prv_ng.summarize(MPI, jobs=3) == truth
    else:
        with pytest.raises(TranslationError, match="the system ended a process of this program"):
            nsys2prv_ng.summarize(MPI, jobs=3)
    assert made.value >= 2
    assert not multiprocessing.active_children()
