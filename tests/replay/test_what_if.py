"""Predictions for a sample: their noise, their controls, the slack, and what limits the job."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nsys2prv_ng.replay import analyse as analysis
from nsys2prv_ng.replay.analyse import analyse
from nsys2prv_ng.replay.changes import Change, parse_changes
from nsys2prv_ng.replay.what_if import Experiment, measure_noise
from nsys2prv_ng.runtime.progress import LogProgress, Progress, QuietProgress
from tests.conftest import SAMPLES
from tests.replay.jobs import opened_model


@pytest.fixture(scope="module", params=["ddp-2x2", "mpi-4"])
def experiment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    reports = sorted(SAMPLES.glob(f"{request.param}*.sqlite"))
    scratch: Path = tmp_path_factory.mktemp("scratch")
    with opened_model(reports, scratch) as model:
        yield Experiment(model)


def mean_step(experiment: Experiment, change: Change) -> float:
    return experiment.play([change])[0].mean_ns


def test_noise_is_the_standard_deviation_of_few_steps(experiment: Experiment) -> None:
    lengths = experiment.observed.lengths.tolist()
    assert 1 < len(lengths) < 8
    assert experiment.noise_ns == round(statistics.stdev(lengths))


def test_noise_is_the_median_deviation_of_many_steps() -> None:
    lengths = np.array([1000, 1003, 998, 1010, 990, 1001, 1004, 90_000])
    middle = statistics.median(lengths.tolist())
    assert measure_noise(lengths) == round(1.4826 * statistics.median(abs(lengths - middle).tolist()))
    assert measure_noise(lengths) < 10
    assert measure_noise(lengths[:1]) == 0


def test_a_change_to_nothing_saves_nothing(experiment: Experiment) -> None:
    scenario = experiment.run(parse_changes("host * 1 and copies * 1"))
    assert scenario.saving_ns == 0 and not scenario.measurable
    assert scenario.predicted_step_ns == round(experiment.observed.mean_ns)


def test_a_zero_carries_its_control(experiment: Experiment) -> None:
    """Ten times as long, what is connected shows; what is not changes nothing."""
    seen = set()
    for name in experiment.model.ranges.names:
        change = Change("range", name, 0.999)
        scenario = experiment.run([change])
        saving = experiment.observed.mean_ns - mean_step(experiment, change)
        grown = mean_step(experiment, Change("range", name, 10.0)) - experiment.observed.mean_ns
        assert scenario.saving_ns == round(saving)
        assert scenario.connected == (abs(saving) >= 1 or grown > 1), name
        seen.add(scenario.connected)
    assert True in seen


def test_slack_is_where_a_step_begins_to_grow(experiment: Experiment) -> None:
    observed = experiment.observed.mean_ns
    found = analyse(experiment).slack
    assert found
    for slack in found:
        target, _, name = slack.target.partition(" ")

        def grows(ns: float, target: str = target, name: str = name.strip("'"), own: int = slack.own_ns) -> bool:
            return mean_step(experiment, Change(target, name, 1 + ns / own)) > observed * 1.001

        if slack.slack_ns is None:
            assert not grows(4 * observed)
            continue
        # To a thousandth of four steps.
        assert not slack.slack_ns or not grows(slack.slack_ns - 1)
        assert grows(slack.slack_ns + 4 * observed / 1_000)


def test_parts_of_the_path_add_up(experiment: Experiment) -> None:
    limits = experiment.list_limits(experiment.observed, experiment.model.graph.weight)
    assert sum(limit.share for limit in limits) == pytest.approx(1)
    assert [limit.share for limit in limits] == sorted((limit.share for limit in limits), reverse=True)
    assert len({(limit.what, limit.rank) for limit in limits}) == len(limits)


class Seen(Progress):
    """Keeps what would be shown."""

    def __init__(self) -> None:
        self.pieces: list[tuple[str, int, bool]] = []
        self.done = 0

    @contextmanager
    def step(self, title: str, total: int, unit: str, *, logged: bool = True) -> Iterator[Seen]:
        assert unit
        self.pieces.append((title, total, logged))
        yield self

    def update(self, done: int) -> None:
        self.done += done


def test_each_change_and_slack_is_progress(experiment: Experiment) -> None:
    named, likely = Seen(), Seen()
    changes = [parse_changes(text) for text in ("copies = 0", "host = ideal")]
    numbers = analyse(experiment, changes, progress=named)
    assert named.pieces == [("replaying changes", 2 + len(numbers.slack), False)]
    found = analyse(experiment, with_slack=False, progress=likely)
    [(_, total, _)] = likely.pieces
    assert total >= len(found.scenarios) > 0
    assert (named.done, likely.done) == (2 + len(numbers.slack), total)


def test_a_log_has_no_line_for_each_piece(capsys: pytest.CaptureFixture[str]) -> None:
    for progress, lines in ((LogProgress(), "reading\n"), (QuietProgress(), "")):
        for title, logged in (("reading", True), ("replaying", False)):
            with progress.step(title, 1, "piece", logged=logged) as step:
                step.update(1)
        assert capsys.readouterr() == ("", lines)


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 22, 34])
@pytest.mark.parametrize("cores", [1, 2, 4, 16])
def test_no_more_processes_than_save_time(pieces: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    edges, fitting = np.zeros(1000, np.int32), 12
    monkeypatch.setattr(analysis, "get_default_memory", lambda: fitting * analysis._BYTES * edges.size)
    model: Any = SimpleNamespace(
        graph=SimpleNamespace(to=edges), job=SimpleNamespace(engine=SimpleNamespace(cores=cores))
    )
    turns = {n: ceil(pieces / n) for n in range(1, min(cores, fitting) + 1)}
    workers = min(n for n in turns if turns[n] == min(turns.values()))
    assert analysis._choose_engine(model, pieces).workers == workers
