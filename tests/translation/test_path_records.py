"""Records of the critical path in a trace, compared by plain loops with its ranges, operations and calls."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.analysis.path.critical_path import CriticalPath
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.paraver.labels import Labels
from nsys2prv_ng.reading.open_reports import ReadOptions, Selection
from nsys2prv_ng.records.columns import Records
from nsys2prv_ng.records.runs import load_records
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.translation.derived_records import derive_path
from nsys2prv_ng.translation.result import TranslationResult
from tests.conftest import SAMPLES
from tests.spans import list_report_sets, unite
from tests.steps.step_truth import count_warmup
from tests.trace_reader import PATH, PATH_LINE, Trace, pair_intervals, read_trace

COMPUTE, MOVING, NOT_SPLIT, MEMORY, LAUNCH, GAP, CUDA_CALL, SYSTEM_CALL, HOST, MPI = range(1, 11)
OF_DEVICE = {COMPUTE, MOVING, NOT_SPLIT, MEMORY, LAUNCH, GAP}
OF_HOST = {CUDA_CALL, SYSTEM_CALL, HOST, MPI}
SHOWS = {
    COMPUTE: (63000006, 63000008),
    MOVING: (63000007, 63000001),
    NOT_SPLIT: (63000007,),
    MEMORY: (63000001,),
    MPI: (50000001, 50000002, 50000003),
}
"""Types of the operations and calls in which the path is, by its kind."""
CUDA_API, STEP, RANGE = 63000000, 63000430, 9600
STEPS = {
    "samples/ddp-2x2": "step",
    "samples/single-graph": None,
    "samples/mpi-4": "iteration",
    "gpu/oneproc-4gpu": "step",
    "exercises/ex3a-pp2": "iteration",
}
"""Ranges that are the steps of each set; single-graph has none."""
SETS = {
    name: [f"{name}.sqlite"] if name.endswith(("graph", "4gpu")) else [f"{name}.rank{rank}.sqlite" for rank in range(4)]
    for name in STEPS
}
DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
MPI_4 = sorted(SAMPLES.glob("mpi-4.*.sqlite"))


@dataclass(frozen=True)
class Made:
    result: TranslationResult
    trace: Trace
    path: pd.DataFrame
    """The intervals of the path in the order of time."""

    @property
    def lines(self) -> pd.DataFrame:
        return self.trace.communications[self.trace.communications["tag"] == PATH_LINE]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("whole"), DDP)


def make(folder: Path, reports: list[Path], **keywords: object) -> Made:
    result = translate(reports, folder / "x.prv", force=True, **keywords)  # type: ignore[arg-type]
    trace = read_trace(folder / "x.prv")
    return Made(result, trace, pair_intervals(trace, PATH).sort_values("begin", ignore_index=True))


def count_account(made: Made, name: str) -> tuple[int, int, dict[str, int]]:
    account = next(account for account in made.result.sources if account.name == name)
    return account.read, account.written, account.dropped


@pytest.fixture(scope="module", params=list_report_sets(SETS, push=set(SETS) - {"exercises/ex3a-pp2"}))
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("path"), [Path(report) for report in request.param])


def find_window(trace: Trace, steps: str | None) -> tuple[int, int]:
    """Return the time of the steps after the warm-up, which other tests compare with SQL; or the main thread's time."""
    if steps is None:
        times = trace.events.query("row == 0 and type != @PATH")["time"]
        return int(times.min()), int(times.max())
    spans = pair_intervals(trace, STEP).groupby("value")[["begin", "end"]].first().sort_index()
    assert trace.get_labels(STEP, spans.index)[0].startswith(steps)
    first = count_warmup((spans["end"] - spans["begin"]).tolist())
    return int(spans["begin"].iloc[first]), int(spans["end"].max())


def list_changes(path: pd.DataFrame) -> list[tuple[int, int, int]]:
    """Return (time, row before, row after) of each time at which the path goes to another row."""
    spans = list(zip(path["begin"], path["end"], path["row"], strict=True))
    return [(b, row, after) for (_, e, row), (b, _, after) in pairwise(spans) if b == e and row != after]


def test_intervals_fill_the_steps(made: Made, request: pytest.FixtureRequest) -> None:
    """To the nanosecond, one row at a time, and no longer than a kind lasts."""
    name = request.node.callspec.id
    path = made.path
    assert (path["begin"].iloc[0], path["end"].iloc[-1]) == find_window(made.trace, STEPS[name])
    assert path["begin"].tolist()[1:] == path["end"].tolist()[:-1]
    assert (path["end"] > path["begin"]).all()
    same = (path["row"].diff() == 0) & (path["value"].diff() == 0)
    assert not same.any()


def test_rows_are_those_of_what_runs_there(made: Made) -> None:
    """The path is in an operation or call only where the same row shows one."""
    names = made.trace.names["THREAD"]
    on_stream = np.array([names[row].startswith("CUDA-D") for row in made.path["row"]])
    assert set(made.path["value"][on_stream]) <= OF_DEVICE
    assert set(made.path["value"][~on_stream]) <= OF_HOST
    checked = 0
    for kind, types in SHOWS.items():
        shown = dict(iter(pair_intervals(made.trace, *types).groupby("row")))
        for row, own in made.path.query("value == @kind").groupby("row"):
            begins, ends = np.array(unite(shown[row])).T
            at = np.searchsorted(begins, own["begin"], "right") - 1
            assert (at >= 0).all() and (ends[at] >= own["end"]).all(), kind
            checked += len(own)
    calls = dict(iter(pair_intervals(made.trace, CUDA_API).groupby("row")))
    for row, own in made.path.query("value == @HOST").groupby("row"):
        begins, ends = np.array(unite(calls[row])).T if row in calls else np.zeros((2, 0))
        at = np.searchsorted(ends, own["begin"], "right")
        assert (np.append(begins, np.inf)[at] >= own["end"]).all()
        checked += len(own)
    assert checked > 50


def test_lines_join_rows_that_follow_each_other(made: Made) -> None:
    lines = made.lines
    for side in ("send_physical", "receive_logical", "receive_physical"):
        assert (lines[side] == lines["send_logical"]).all()
    drawn = Counter(zip(lines["send_logical"], lines["send_row"], lines["receive_row"], strict=True))
    assert drawn == Counter(list_changes(made.path)) and len(drawn) > 10


def test_the_account_counts_intervals_and_lines(made: Made) -> None:
    assert count_account(made, "critical_path") == (len(made.path), len(made.path), {})
    assert count_account(made, "path_lines") == (len(made.lines), len(made.lines), {})


@pytest.mark.all_sets
@pytest.mark.slow
def test_a_chosen_time_has_a_path_of_its_own(whole: Made, tmp_path: Path) -> None:
    low, high = int(whole.path["begin"].iloc[2000]) + 1, int(whole.path["end"].iloc[3000]) - 1
    cut = make(tmp_path, DDP, time=(low, high))
    shift = whole.result.start_utc_ns - cut.result.start_utc_ns
    assert (cut.path["begin"].iloc[0], cut.path["end"].iloc[-1]) == (low + shift, high + shift)
    assert (cut.path["end"] - cut.path["begin"]).sum() == high - low
    late = make(tmp_path, DDP, time=(low, whole.trace.duration * 10))
    assert late.path["end"].max() <= late.trace.duration
    assert (late.path["end"] - late.path["begin"]).sum() == late.path["end"].max() - late.path["begin"].min()


@pytest.mark.slow
def test_ranges_have_a_path_each(whole: Made, tmp_path: Path) -> None:
    """In all windows together, and no line leads from one to the next."""
    ranges = pair_intervals(whole.trace, RANGE)
    windows = unite(ranges[[label == "forward" for label in whole.trace.get_labels(RANGE, ranges["value"])]])
    cut = make(tmp_path, DDP, nvtx_range="forward")
    shift = whole.result.start_utc_ns - cut.result.start_utc_ns
    assert unite(cut.path) == [(begin + shift, end + shift) for begin, end in windows]
    assert (cut.path["end"] - cut.path["begin"]).sum() == sum(end - begin for begin, end in windows)
    lines = cut.lines
    assert sorted(zip(lines["send_logical"], lines["send_row"], lines["receive_row"], strict=True)) == sorted(
        list_changes(cut.path)
    )


@pytest.mark.slow
def test_nothing_is_derived_unasked(tmp_path: Path) -> None:
    plain = make(tmp_path, MPI_4, derived=False)
    assert PATH not in plain.trace.types and plain.path.empty and plain.lines.empty
    assert not {"critical_path", "path_lines"} & {account.name for account in plain.result.sources}


@pytest.mark.slow
def test_all_else_keeps_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_path = make(tmp_path, MPI_4)
    lines = (tmp_path / "x.prv").read_text().splitlines()
    own = {*with_path.path["line"], *with_path.path["end_line"], *with_path.lines["line"]}
    monkeypatch.setattr("nsys2prv_ng.translation.plan_trace.find_critical_path", lambda *_, **__: None)
    without = make(tmp_path, MPI_4)
    assert without.path.empty and without.lines.empty and PATH not in without.trace.types
    assert (tmp_path / "x.prv").read_text().splitlines() == [
        line for number, line in enumerate(lines, 1) if number not in own
    ]
    assert len(own) == 2 * len(with_path.path) + len(with_path.lines)


@pytest.mark.all_sets
@pytest.mark.slow
@pytest.mark.parametrize("orders", [2, 3])
def test_order_of_reports_and_cores_change_nothing(tmp_path: Path, orders: int) -> None:
    """Nor does a summary, for which the ranges of the path are looked up."""
    digests = set()
    for reports, jobs in [(DDP, 1), (DDP[::-1], 2), (DDP[2:] + DDP[:2], 3)][:orders]:
        made = make(tmp_path, reports, jobs=jobs, summary=jobs == 2)
        assert len(made.path) > 1000
        digests.add(hashlib.sha256((tmp_path / "x.prv").read_bytes()).hexdigest())
    assert len(digests) == 1


# ---- a path by hand --------------------------------------------------------------------------------------------------


def make_path(segments: list[tuple[int, int, int, int]], windows: list[tuple[int, int]]) -> CriticalPath:
    """Return a path of segments: begin, end, row of the whole tree, kind."""
    begin, end, row, kind = np.array(segments, np.int64).T
    nothing = np.full(begin.size, -1)
    fields = {"windows": windows, "begin": begin, "end": end, "row": row, "kind": kind}
    rest = {name: nothing for name in CriticalPath._fields if name not in fields}
    return CriticalPath(**(rest | fields | {"steps": None, "names": [], "ranges": []}))


def list_events(records: Records, origin: int) -> list[tuple[int, int, int, int]]:
    """Return (time from the origin, row, type, value) of records with one pair each."""
    columns = records.time - origin, records.place, records.handle, records.value
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.slow
def test_rows_that_are_not_in_the_trace_are_dropped(tmp_path: Path) -> None:
    """Row 0 is of rank 0, which is not selected. Pieces of one kind that touch are one interval."""
    options = ReadOptions(selection=Selection(ranks=frozenset({3})))
    with open_job(MPI_4, tmp_path, options, Progress()) as job:
        out, inside, other = 0, int(np.argmax(job.new_row >= 0)), int(np.argmax(job.new_row >= 1))
        assert job.new_row[out] < 0 <= job.new_row[-1]
        t = job.scope.first
        segments = [
            (t, t + 10, inside, HOST),
            (t + 10, t + 20, inside, HOST),
            (t + 20, t + 25, inside, MPI),
            (t + 25, t + 30, out, HOST),
            (t + 30, t + 40, out, MPI),
            (t + 40, t + 50, inside, MPI),
            (t + 50, t + 60, other, COMPUTE),
            (t + 70, t + 80, other, COMPUTE),
            (t + 90, t + 100, inside, COMPUTE),
            (t + 100, t + 110, -1, HOST),
        ]
        windows = [(t, t + 60), (t + 70, t + 80), (t + 90, t + 110)]
        joined = derive_path(job, make_path(segments, windows), labels := Labels())
        shown, lines = joined.accounts["critical_path"], joined.accounts["path_lines"]
        reason = "outside the selected ranks and GPUs"
        assert (shown.read, shown.written, shown.dropped) == (9, 6, {reason: 3})
        assert (lines.read, lines.written, lines.dropped) == (4, 1, {reason: 3})
        assert [event_type.number for event_type in labels.types] == [PATH]
        found = [record for run in shown.runs for record in list_events(load_records(run, job.store), t)]
    spans = [(0, 20, 0, HOST), (20, 25, 0, MPI), (40, 50, 0, MPI), (50, 60, 1, COMPUTE), (70, 80, 1, COMPUTE)]
    spans.append((90, 100, 0, COMPUTE))
    assert sorted(found) == sorted(
        event for begin, end, row, kind in spans for event in ((begin, row, PATH, kind), (end, row, PATH, 0))
    )


@pytest.mark.slow
def test_a_path_beside_the_trace_declares_nothing(tmp_path: Path) -> None:
    with open_job(MPI_4, tmp_path, ReadOptions(selection=Selection(ranks=frozenset({1}))), Progress()) as job:
        labels = Labels()
        derive_path(
            job, make_path([(job.scope.first, job.scope.last, 0, HOST)], [(job.scope.first, job.scope.last)]), labels
        )
        assert labels.types == []
        assert derive_path(job, None, labels).accounts == {}
