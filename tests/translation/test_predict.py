"""Predicted traces, read back: their times are those of the replay, and nothing of the real trace gets lost."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import nsys2prv_ng
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.api.plans import make_prediction_plan
from nsys2prv_ng.errors import UsageError
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.options.calls import WhatIfOptions
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.model import load_model
from nsys2prv_ng.replay.what_if import Experiment
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import write_prediction
from tests.conftest import SAMPLES
from tests.report_sets import find_set, list_sets, sets
from tests.trace_reader import Trace, pair_intervals, read_trace
from tests.translated import CUDA_API, GRAPH, KERNEL, MEMORY, NCCL_KERNEL, bytes_of_trace

SETS = list_sets()
OPERATIONS = (KERNEL, NCCL_KERNEL, MEMORY, GRAPH)
GPU_ACTIVITY, KERNELS_RUNNING, GPU_IDLE = 63000400, 63000401, 8
DERIVED = {*range(63000400, 63000404), *range(63000410, 63000500)}
"""What is computed again for the predicted job."""
CHANGES = (
    "host = ideal",
    "network = ideal",
    "rank 0 = median",
    "kernel '*' * 2",
    "copies = 0 and waits = 0",
    "class '*' * 0.5 and call '*' = 0",
)


@contextmanager
def opened(reports: Sequence[Path], folder: Path) -> Iterator[tuple[Experiment, TranslationPlan]]:
    """Open a job as what-if does for a predicted trace."""
    plan = replace(make_prediction_plan(WhatIfOptions(several_jobs=True)), force=True)
    with open_job(reports, folder, plan, Progress()) as job:
        yield Experiment(load_model(job, find_waits(job))), plan


def predict(experiment: Experiment, plan: TranslationPlan, text: str, output: Path) -> Trace:
    write_prediction(experiment, parse_changes(text), output, plan, Progress())
    return read_trace(output)


@dataclass(frozen=True)
class Played:
    """A job to predict, and its real trace."""

    experiment: Experiment
    plan: TranslationPlan
    folder: Path

    @cached_property
    def real(self) -> Trace:
        return predict(self.experiment, self.plan, "host * 1", self.folder / "real.prv")


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Played]]:
    """`play(name)`: the job of a sample, which is opened once."""
    with ExitStack() as stack:

        @cache
        def open_once(name: str) -> Played:
            folder = tmp_path_factory.mktemp("job")
            job = stack.enter_context(opened(sorted(SAMPLES.glob(f"{name}*.sqlite")), folder))
            return Played(*job, folder)

        yield open_once


def list_predictions() -> Iterator[object]:
    """Yield each change of each job; every push takes each change of one of the jobs, in turn."""
    for first, name in enumerate(("ddp-2x2", "mpi-4")):
        for number, change in enumerate(CHANGES, first):
            marks = [pytest.mark.all_sets] if number % 2 else []
            yield pytest.param((name, change), marks=marks, id=f"{change}-{name}")


@pytest.fixture(scope="module", params=list_predictions())
def predicted(
    request: pytest.FixtureRequest, play: Callable[[str], Played], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Played, str, Trace]:
    name, change = request.param
    played = play(name)
    trace = predict(played.experiment, played.plan, change, tmp_path_factory.mktemp("trace") / "predicted.prv")
    return played, change, trace


@pytest.fixture
def real(predicted: tuple[Played, str, Trace]) -> Trace:
    return predicted[0].real


def sort_rows(*columns: np.ndarray) -> list[list[int]]:
    return sorted(np.stack(columns, axis=1).tolist())


@pytest.mark.parametrize("name", sets(SETS, push=["samples/ddp-2x2", "samples/single-graph"]))
def test_a_change_to_nothing_changes_no_byte(name: str, tmp_path: Path) -> None:
    reports = find_set(name)
    real = bytes_of_trace(reports, tmp_path)
    with opened(reports, tmp_path) as (experiment, plan):
        output = tmp_path / "trace.prv"
        predict(experiment, plan, "host * 1", output)
    prv, pcf, row = (output.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row"))
    assert (prv, pcf) == real[:2]
    assert row == real[2].replace(b"\ntrace\n", b"\ntrace: prediction with host * 1\n")


def test_operations_and_calls_are_when_the_replay_has_them(predicted: tuple[Played, str, Trace]) -> None:
    played, text, trace = predicted
    model = played.experiment.model
    time = played.experiment.predict_times(parse_changes(text))
    lanes, n, new_row = model.lanes, model.numbers, model.job.new_row
    begin, end = time[: n.operations], time[n.operation_end : n.call_begin]
    shown = pair_intervals(trace, *(number for number in OPERATIONS if number in trace.types))
    origin = int(begin.min()) - int(shown["begin"].min())
    found = sort_rows(*(shown[column].to_numpy() for column in ("row", "begin", "end")))
    assert found == sort_rows(new_row[lanes.operation_row], begin - origin, end - origin)
    # Of calls within each other, the replay has the outermost one, which may be of any kind.
    row = new_row[lanes.thread_row[lanes.calls.thread]]
    events = trace.events
    opens = events["value"] != 0
    for times, chosen in ((time[n.call_begin : n.call_end], opens), (time[n.call_end : n.others], ~opens)):
        known = set(zip(events["row"][chosen].tolist(), events["time"][chosen].tolist(), strict=True))
        assert set(zip(row.tolist(), (times - origin).tolist(), strict=True)) <= known
    assert CUDA_API in trace.types


def test_the_activity_of_gpus_is_that_of_the_predicted_operations(predicted: tuple[Played, str, Trace]) -> None:
    trace = predicted[2]
    shown = pair_intervals(trace, *(number for number in OPERATIONS if number in trace.types))
    activity = trace.events[trace.events["type"] == GPU_ACTIVITY]
    task_of_row = np.array(trace.task_of_row)
    gpus = activity["row"].unique()
    assert len(gpus) == len(set(task_of_row[gpus])) == 4  # a GPU of each rank
    for gpu in gpus:
        own = shown[task_of_row[shown["row"]] == task_of_row[gpu]]
        changes = pd.concat([own["begin"].value_counts(), -own["end"].value_counts()]).groupby(level=0).sum()
        running = changes.sort_index().cumsum()
        length = np.diff(running.index.to_numpy())
        busy = int(length[running.to_numpy()[:-1] > 0].sum())
        values = activity[activity["row"] == gpu]
        works = (values["value"] != 0) & (values["value"] != GPU_IDLE)
        passed = np.diff(values["time"].to_numpy())
        assert int(passed[works.to_numpy()[:-1]].sum()) == busy
        assert passed.min() > 0


def test_streams_have_states_while_their_operations_run(predicted: tuple[Played, str, Trace]) -> None:
    trace = predicted[2]
    shown = pair_intervals(trace, *(number for number in OPERATIONS if number in trace.types))
    states = trace.states[trace.states["row"].isin(shown["row"])]
    runs, lasts = (
        (table["end"] - table["begin"]).groupby(table["row"]).sum().loc[lambda ns: ns > 0].to_dict()
        for table in (shown, states)
    )
    assert runs == lasts


def test_states_and_limits_are_those_of_the_predicted_job(predicted: tuple[Played, str, Trace]) -> None:
    trace = predicted[2]
    states = trace.states.sort_values(["row", "begin"])
    same = states["row"].diff()[1:].to_numpy() == 0
    assert (states["begin"] < states["end"]).all()
    assert (states["begin"].to_numpy()[1:] >= states["end"].to_numpy()[:-1])[same].all()
    lines = trace.communications[["send_logical", "send_physical", "receive_logical", "receive_physical"]].to_numpy()
    times = np.concatenate([trace.events["time"], states["begin"], states["end"], lines.ravel()])
    assert (times.min(), times.max()) == (0, trace.duration)
    assert (lines[:, 3] >= lines[:, 1]).all()
    assert not nsys2prv_ng.check(trace.path).problems


def test_host_threads_have_states_as_long_as_in_the_real_trace(
    predicted: tuple[Played, str, Trace], real: Trace
) -> None:
    """From their first event to their last, without a gap; the same number of events is before and after."""

    def describe(trace: Trace) -> dict[int, tuple[int, int]]:
        found = {}
        own = trace.events[~trace.events["type"].isin(DERIVED)]
        for row, name in enumerate(trace.names["THREAD"]):
            times = own["time"][own["row"] == row]
            states = trace.states[trace.states["row"] == row].sort_values("begin")
            if times.nunique() > 1 and not name.startswith(("CUDA", "Metrics")):
                assert states["begin"].tolist()[1:] == states["end"].tolist()[:-1]
                found[row] = (times < states["begin"].min()).sum(), (times > states["end"].max()).sum()
        return found

    found, wanted = describe(predicted[2]), describe(real)
    assert found
    assert found == {row: wanted[row] for row in found}


def test_no_event_gets_lost(predicted: tuple[Played, str, Trace], real: Trace) -> None:
    def count(trace: Trace) -> pd.Series:
        events = trace.events[~trace.events["type"].isin(DERIVED) & (trace.events["value"] != 0)]
        return events.groupby(["row", "type", "value"]).size()

    pd.testing.assert_series_equal(count(predicted[2]), count(real))
    assert predicted[2].names["THREAD"] == real.names["THREAD"]


# ---- as a user writes it ---------------------------------------------------------------------------------------------


def test_compressed_it_is_the_same(tmp_path: Path) -> None:
    reports = [SAMPLES / "single-graph.sqlite"]
    for name in ("t.prv", "c/t.prv.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        nsys2prv_ng.what_if(reports, change=["host = ideal"], output=tmp_path / name)
    assert gzip.decompress((tmp_path / "c/t.prv.gz").read_bytes()) == (tmp_path / "t.prv").read_bytes()
    assert (tmp_path / "c/t.row").read_text() == (tmp_path / "t.row").read_text()
    assert "t: prediction with host = ideal" in (tmp_path / "t.row").read_text()


def test_a_choice_of_steps_leaves_the_trace_whole(tmp_path: Path) -> None:
    """Only the critical path is that of the chosen steps."""
    traces = []
    for steps in (None, "2"):
        output = tmp_path / str(len(traces)) / "t.prv"
        output.parent.mkdir()
        reports = sorted(SAMPLES.glob("mpi-4*.sqlite"))
        nsys2prv_ng.what_if(reports, change=["network = ideal"], output=output, steps=steps)
        traces.append(read_trace(output).omit_path())
    for name in ("events", "states", "communications"):
        one, other = (getattr(trace, name).drop(columns="line") for trace in traces)
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "name what changes"),
        ({"change": ["host = ideal", "copies = 0"]}, "join the changes with 'and'"),
        ({"change": ["host = ideal"], "time": "1s:2s"}, "covers all time"),
        ({"change": ["host = ideal"], "nvtx_range": "step"}, "covers all time"),
        ({"change": ["call 'MPI*' = 0"]}, "no call is named"),
    ],
)
def test_a_trace_that_cannot_be_written_is_one_line_and_leaves_nothing(
    options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        nsys2prv_ng.what_if([SAMPLES / "single-graph.sqlite"], output=tmp_path / "t.prv", **options)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())
