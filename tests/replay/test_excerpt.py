"""Excerpts of jobs that are too large: the steps they have, what is loaded, and what they predict."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import nsys2prv_ng
from nsys2prv_ng.analysis.path.lanes import Lanes, join_lanes, load_lanes, load_reports
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.api.plans import make_summary_options
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.job.open_job import Job, open_job
from nsys2prv_ng.options.calls import PredictionOptions
from nsys2prv_ng.replay import what_if
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.steps.steps import Steps
from nsys2prv_ng.summary.job import JobSummary
from tests.conftest import SAMPLES
from tests.report_sets import find_set, sets

DDP, MPI = (sorted(SAMPLES.glob(f"{name}.rank*.sqlite")) for name in ("ddp-2x2", "mpi-4"))
LIMITS = {"mpi-4": (MPI, 400), "ddp-2x2": (DDP, 38_000)}


@contextmanager
def opened(reports: list[Path], scratch: Path) -> Iterator[Job]:
    with open_job(reports, scratch, make_summary_options(PredictionOptions()), Progress()) as job:
        yield job


# ---- predictions -----------------------------------------------------------------------------------------------------


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize("name", LIMITS)
def test_an_excerpt_predicts_what_the_whole_job_does_for_its_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reports, limit = LIMITS[name]
    whole = nsys2prv_ng.what_if(reports)
    monkeypatch.setattr(what_if, "MOST", limit)
    part = nsys2prv_ng.what_if(reports)
    assert whole.replayed is None and part.replayed is not None
    assert (part.replayed.of_steps, part.noise_ns) == (whole.steps, whole.noise_ns)
    first, last = part.replayed.steps
    assert part.steps == last - first + 1 < whole.steps
    monkeypatch.undo()
    # A median is that of all that is replayed.
    tried = [scenario for scenario in part.scenarios if not scenario.change.endswith("median")]
    truth = nsys2prv_ng.what_if(reports, change=[scenario.change for scenario in tried], steps=(first, last))
    assert (truth.steps, truth.step_ns, truth.replayed) == (part.steps, part.step_ns, None)
    for own, other in zip(tried, truth.scenarios, strict=True):
        # Ranks that never wait drift apart since the start of what is replayed.
        off = 0.005 if own.change == "waits = 0" else 0.001
        assert own.saving_ns == pytest.approx(other.saving_ns, abs=off * truth.step_ns), own.change
        for rank, of_truth in zip(own.ranks, other.ranks, strict=True):
            assert rank.saving_ns == pytest.approx(of_truth.saving_ns, abs=2 * off * truth.step_ns), own.change


@pytest.mark.all_sets
@pytest.mark.slow
def test_steps_that_the_user_chose_and_that_fit_are_all_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = nsys2prv_ng.what_if(MPI, steps=(4, 5), change=["network = ideal"])
    monkeypatch.setattr(what_if, "MOST", 400)
    chosen = nsys2prv_ng.what_if(MPI, steps=(4, 5), change=["network = ideal"])
    assert (chosen.steps, chosen.replayed, chosen.step_ns, chosen.noise_ns) == (2, None, truth.step_ns, truth.noise_ns)
    assert chosen.scenarios[0].saving_ns == pytest.approx(truth.scenarios[0].saving_ns, rel=0.001)


@pytest.mark.all_sets
@pytest.mark.slow
def test_what_cannot_be_replayed_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(what_if, "MOST", 400)
    with pytest.raises(UsageError, match=r"^savings were not predicted: [\d,]+ operations and calls are too many"):
        nsys2prv_ng.what_if(MPI, output=tmp_path / "out.prv", change=["network = ideal"])
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(what_if, "MOST", 80)
    with pytest.raises(UsageError, match="too many"):
        nsys2prv_ng.what_if(MPI)
    summary = nsys2prv_ng.summarize(MPI)
    assert summary.what_if is None
    assert [text for text in summary.warnings if text.startswith("savings were not predicted")]


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize(("few", "is_shorter"), [(2, True), (5, False)])
def test_enough_steps_are_no_more_than_needed(few: int, is_shorter: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An excerpt is shorter than what fits if it has enough steps."""
    monkeypatch.setattr(what_if, "MOST", 800)
    longest = nsys2prv_ng.what_if(MPI, change=["network = ideal"]).steps
    monkeypatch.setattr(what_if, "_ENOUGH", 400)
    monkeypatch.setattr(what_if, "_FEW", few)
    found = nsys2prv_ng.what_if(MPI, change=["network = ideal"]).steps
    assert found == longest if not is_shorter else few <= found < longest


@pytest.mark.all_sets
@pytest.mark.slow
def test_a_summary_tells_which_steps_were_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(what_if, "MOST", 400)
    summary = nsys2prv_ng.summarize(MPI)
    assert summary.what_if is not None and summary.what_if.replayed is not None
    first, last = summary.what_if.replayed.steps
    text = f"only steps {first} to {last} of 7 were replayed: the whole job has"
    assert summary.verdict is not None
    assert [doubt for doubt in summary.verdict.trust if doubt.startswith(text)]
    assert not [warning for warning in summary.warnings if "savings" in warning]
    assert JobSummary.from_dict(summary.to_dict()) == summary
    # Rates of all steps do not follow from some of them.
    assert summary.efficiency is not None and summary.efficiency.in_steps is not None
    host = summary.efficiency.in_steps.nccl_as_communication.host
    assert host is not None and host.mpi_transfer is None


# ---- what is loaded --------------------------------------------------------------------------------------------------


def list_operations(lanes: Lanes) -> dict[int, tuple[int, ...]]:
    """The identity of each operation by its index."""
    operations = lanes.operations
    columns = (lanes.operation_row, lanes.operation_name, operations.begin, operations.end, operations.launched)
    return dict(enumerate(zip(*(column.tolist() for column in columns), strict=True)))


def list_calls(lanes: Lanes) -> list[tuple[int, ...]]:
    """Row, name and times of each call, and the operation that it waits for, or ()."""
    operations, calls = list_operations(lanes), lanes.calls
    rows = lanes.thread_row[calls.thread].tolist()
    waited = [
        operations[target] if sync == 1 else ()
        for sync, target in zip(calls.sync.tolist(), calls.target.tolist(), strict=True)
    ]
    return list(zip(rows, calls.begin.tolist(), calls.end.tolist(), waited, strict=True))


@pytest.mark.parametrize(
    ("reports", "most"),
    [pytest.param(DDP[:2], 20_000, id="ddp", marks=pytest.mark.all_sets), pytest.param(MPI, 400, id="mpi")],
)
def test_what_runs_in_the_span_is_loaded(
    reports: list[Path], most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with opened(reports, tmp_path) as job:
        monkeypatch.setattr(what_if, "MOST", most)
        chosen = what_if.choose_excerpt(job)
        assert what_if.is_too_large(job)
        assert chosen is not None
        low, high = chosen.span
        waits = find_waits(job)
        whole, part = load_lanes(job, waits), load_lanes(job, waits, chosen.span)
        assert part.operations.begin.size + part.calls.begin.size <= most
        # Of a graph that runs into the span, its first node is loaded, too.
        inside = {n for n, own in list_operations(whole).items() if own[3] >= low and own[2] <= high}
        kept = inside | {n for n in whole.launch[sorted(inside)].tolist() if n >= 0}
        assert list(list_operations(part).values()) == [own for n, own in list_operations(whole).items() if n in kept]
        found = list_operations(whole)
        for column, of_part in ((whole.launch, part.launch), (whole.operations.producer, part.operations.producer)):
            wanted = [found[n] if n in kept else () for n in column[sorted(kept)].tolist()]
            own = list_operations(part)
            assert [own[n] if n >= 0 else () for n in of_part.tolist()] == wanted
        loaded = {own for n, own in found.items() if n in kept}
        wanted_calls = [
            (row, begin, end, waited if waited in loaded else ())
            for row, begin, end, waited in list_calls(whole)
            if end >= low and begin <= high
        ]
        assert list_calls(part) == wanted_calls


@pytest.mark.parametrize(
    "name", sets(["samples/mpi-4", "gpu/autograd-1", "gpu/single-graph", "exercises/tpgraph-1x4", "cpu/2024.2.3-2node"])
)
def test_several_spans_are_loaded_at_once_as_each_alone(name: str, tmp_path: Path) -> None:
    with opened(find_set(name), tmp_path) as job:
        waits = find_waits(job)
        whole = load_lanes(job, waits)
        first = min(column.min() for column in (whole.operations.begin, whole.calls.begin) if column.size)
        last = max(column.max() for column in (whole.operations.end, whole.calls.end) if column.size)
        shares = (0.0, 1.0), (0.3, 0.6), (0.5, 0.501)
        cuts = [(int(first + low * (last - first)), int(first + high * (last - first))) for low, high in shares]
        spans = [cuts[1], None, *cuts]
        for span, loaded in zip(spans, load_reports(job, spans), strict=True):
            found, truth = join_lanes(job, waits, loaded), load_lanes(job, waits, span)
            assert not loaded
            for field in fields(Lanes):
                own, alone = getattr(found, field.name), getattr(truth, field.name)
                assert str(to_lists(own)) == str(to_lists(alone)), field.name


def to_lists(value: object) -> object:
    """Return arrays within tuples as lists."""
    if isinstance(value, tuple):
        return [to_lists(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_an_excerpt_has_the_steps_before_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with opened(MPI, tmp_path) as job:
        monkeypatch.setattr(what_if, "MOST", 400)
        chosen = what_if.choose_excerpt(job)
        assert chosen is not None and chosen.replayed is not None and job.steps is not None
        steps, counted = chosen.job.steps, chosen.job.scope.counted
        assert steps is not None and counted is not None
        assert (steps.number[counted[0]], steps.number[counted[-1]]) == chosen.replayed.steps
        assert counted[-1] == steps.number.size - 1 and counted[0] >= 1
        assert chosen.span[0] <= steps.start[1] and chosen.span[1] >= steps.stop[-1]
        assert chosen.lengths.tolist() == (job.steps.stop - job.steps.start)[1:].tolist()
        assert what_if.choose_excerpt(replace(job, steps=None)) is None


# ---- the choice ------------------------------------------------------------------------------------------------------


def make_steps(lengths: list[int]) -> Steps:
    ends = np.cumsum(lengths)
    none = np.zeros(0, np.int64)
    columns = dict.fromkeys(("task", "row", "step", "begin", "end", "host_begin", "host_end"), none)
    number = np.arange(len(lengths))
    kinds = {"kinds": ("",), "kind": np.zeros(number.size, np.int64), "batches": np.zeros((number.size, 0), np.int64)}
    start = ends - lengths
    return Steps("step", "", 1.0, 1, True, number=number, warmup=0, start=start, stop=ends, **columns, **kinds)


@pytest.mark.parametrize("seed", range(200))
def test_the_choice_is_that_of_a_plain_search(seed: int) -> None:
    rng = random.Random(seed)
    count, lead = rng.randint(1, 12), rng.randint(1, 2)
    lengths = [rng.randint(1, 30) for _ in range(count)]
    sizes = [rng.randint(1, 9) for _ in range(count)]
    counted = sorted(rng.sample(range(count), rng.randint(1, count)))
    most = rng.randint(1, 60)
    after = np.cumsum(sizes)

    def fits(i: int, j: int) -> bool:
        run = counted[i : j + 1]
        follow = all(b == a + 1 for a, b in pairwise(run))
        return follow and sum(sizes[max(run[0] - lead, 0) : run[-1] + 1]) <= most and len(run) >= lead

    runs = [(i, j) for i in range(len(counted)) for j in range(i, len(counted)) if fits(i, j)]
    runs = [(i, j) for i, j in runs if not any(a <= i and j <= b and (a, b) != (i, j) for a, b in runs)]
    least = float(np.median([j - i + 1 for i, j in runs])) if runs else 0
    middle = float(np.median([lengths[n] for n in counted]))

    def rate(run: tuple[int, int]) -> float:
        return abs(float(np.mean([lengths[n] for n in counted[run[0] : run[1] + 1]])) - middle)

    best = min((run for run in runs if run[1] - run[0] + 1 >= least), key=rate, default=None)
    found = what_if._choose_run(make_steps(lengths), np.array(counted), after - sizes, after, lead, most)
    assert found == (None if best is None else (counted[best[0]], counted[best[1]]))
