"""Laws of predictions on whole jobs: what is longer is never shorter, and nobody saves more than there is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng.replay.apply import apply_changes
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.graph import NONE, play
from nsys2prv_ng.replay.what_if import Experiment
from tests.replay.jobs import opened_model
from tests.report_sets import find_set, list_sets, sets

SETS = list_sets()
FACTORS = (0, 0.5, 0.9, 1, 1.5, 3, 30)


def write(target: str, factor: float) -> str:
    return f"{target} = {'ideal' if target == 'host' else 0}" if not factor else f"{target} * {factor}"


@pytest.fixture(
    scope="module",
    params=sets(SETS, push=["samples/ddp-2x2", "samples/mpi-4", "samples/single-graph", "exercises/tpgraph-1x4"]),
)
def experiment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Experiment]:
    scratch: Path = tmp_path_factory.mktemp("scratch")
    with opened_model(find_set(request.param), scratch) as model:
        yield Experiment(model)


@pytest.fixture(scope="module")
def targets(experiment: Experiment) -> list[str]:
    """What can change in the job, some names of each kind."""
    model, chance = experiment.model, random.Random(1)
    lanes = model.lanes
    calls = {lanes.names[n] for n in np.unique(lanes.call_name).tolist()}
    kernels = {lanes.names[n] for n in np.unique(lanes.operation_name[~model.is_memory]).tolist()}
    named = [
        f"{kind} '{name}'"
        for kind, names in (("range", set(model.ranges.names)), ("call", calls), ("kernel", kernels))
        for name in chance.sample(sorted(names), min(6, len(names)))
        if "'" not in name and "\n" not in name
    ]
    groups = [("range '*'", model.ranges.names), ("call '*'", calls), ("kernel '*'", kernels)]
    return [*named, "host", "copies", *(text for text, names in groups if names)]


def save(experiment: Experiment, text: str) -> float:
    return experiment.observed.mean_ns - experiment.play(parse_changes(text))[0].mean_ns


def test_what_takes_longer_never_saves_more(experiment: Experiment, targets: list[str]) -> None:
    for target in targets:
        savings = [save(experiment, write(target, factor)) for factor in FACTORS]
        assert all(more >= less for more, less in pairwise(savings)), (target, savings)
        assert savings[FACTORS.index(1)] == 0
        assert savings[0] <= experiment.observed.mean_ns


def test_the_order_of_joined_changes_has_no_influence(experiment: Experiment, targets: list[str]) -> None:
    chance = random.Random(2)
    bounds = ["waits = 0", f"rank {experiment.model.job.whole.ranks[0] or 0} = median"]
    if None in experiment.model.job.whole.ranks:
        bounds = []
    texts = [write(target, chance.choice((0, 0.3, 0.7, 2, 3))) for target in targets] + bounds
    for _ in range(12):
        one, other = chance.sample(texts, 2)
        changes = parse_changes(f"{one} and {other}")
        weight = apply_changes(experiment.model, changes)
        assert (weight == apply_changes(experiment.model, changes[::-1])).all(), (one, other)


def test_nothing_that_gets_shorter_makes_a_step_longer(experiment: Experiment) -> None:
    texts = ["host * 0.99 and copies * 0.5", "host = ideal and copies = 0", "waits = 0", "waits = 0 and host * 0.5"]
    for text in texts:
        assert 0 <= save(experiment, text) <= experiment.observed.mean_ns, text


def test_only_what_a_process_does_first_has_a_time_of_its_own(experiment: Experiment) -> None:
    """Or an operation that was launched before its capture, and ran before anything of its process."""
    model = experiment.model
    graph, lanes, numbers = model.graph, model.lanes, model.numbers
    alone = graph.order[np.diff(graph.first) == 0]
    is_call = (alone >= numbers.call_begin) & (alone < numbers.call_end)
    thread, process = lanes.calls.thread, lanes.threads.process[lanes.calls.thread]
    for call in (alone[is_call] - numbers.call_begin).tolist():
        own = (process == process[call]) & (thread != thread[call])
        assert not (lanes.calls.begin[own] < lanes.calls.begin[call]).any()
        assert call == 0 or thread[call - 1] != thread[call]
    is_operation = alone < numbers.operation_end
    for operation in alone[is_operation].tolist():
        assert model.launching[operation] == NONE
        own = process == lanes.operations.process[operation]
        assert not (lanes.calls.begin[own] < lanes.operations.begin[operation]).any()
    assert (is_call | is_operation).all()


def test_what_changes_before_the_steps_is_not_a_saving(experiment: Experiment) -> None:
    """Whatever is longer before the first step that counts, these steps begin and end as they were observed."""
    if not experiment.has_steps:
        return
    graph = experiment.model.graph
    weight = graph.weight.copy()
    steps = experiment.model.job.steps
    assert steps is not None
    early = graph.time[graph.to] < steps.host_begin.min()
    weight[early] *= 3
    assert experiment.replay(weight).lengths.tolist() == experiment.observed.lengths.tolist()
    assert early.any() == (play(graph, weight) != graph.time).any()
