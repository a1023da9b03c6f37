"""Overviews against plain loops over the text of the whole trace of the same reports."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from nsys2prv_ng import TranslationResult, translate
from nsys2prv_ng.errors import TranslationError
from nsys2prv_ng.translation import overview_rows
from tests.conftest import SAMPLES
from tests.trace_reader import Trace, compare_tables, pair_intervals, read_trace

pytestmark = pytest.mark.slow

DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
MPI_4 = sorted(SAMPLES.glob("mpi-4.*.sqlite"))
ACTIVITY, IN_FLIGHT, WITH_WAITS = 63000400, 63000402, 63000413
PART, RANK, REASON, STEP, HOST_STEP = 63000410, 63000411, 63000412, 63000430, 63000431
COMPUTES, COMMUNICATES, EXPOSED, WAITS_EXPOSED, MEMORY, IDLE, MEAN_IN_FLIGHT, GRAPHS = range(63000440, 63000448)
ALWAYS_DECLARED = 63000007
SOURCES = ["kernels", "memory_operations", "nccl", "cuda_api", "nvtx", "gpu_metrics", "os_runtime"]
SMALL = 150_000
"""Bytes of an overview for which DDP has too many states and waits."""


class Traces(NamedTuple):
    whole: Trace
    whole_result: TranslationResult
    overview: Trace
    result: TranslationResult
    small: Trace
    small_result: TranslationResult


def translate_into(folder: Path, reports: list[Path], **options: object) -> tuple[Trace, TranslationResult]:
    folder.mkdir()
    result = translate(reports, folder / "trace.prv", **options)  # type: ignore[arg-type]
    return read_trace(folder / "trace.prv"), result


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Traces:
    folder = tmp_path_factory.mktemp("overview")
    made = [*translate_into(folder / "whole", DDP, sources=SOURCES)]
    made += translate_into(folder / "overview", DDP, sources=SOURCES, overview_trace=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview_rows, "MOST_BYTES", SMALL)
        made += translate_into(folder / "small", DDP, sources=SOURCES, overview_trace=True)
    return Traces(*made)


def get_step(trace: Trace, *event_types: int) -> int:
    """Return the length (ns) of steps, as the greatest common divisor of the times of counters."""
    return int(np.gcd.reduce(trace.events.loc[trace.events["type"].isin(event_types), "time"]))


def hold_values(trace: Trace, event_type: int) -> pd.DataFrame:
    """Return row, begin, end and value of each value but 0 of a type; the last one of a row lasts for no time."""
    events = trace.events[trace.events["type"] == event_type]
    held = []
    for row, own in events.groupby("row"):
        times, values = own["time"].tolist(), own["value"].tolist()
        for i in range(len(times) - 1):
            if values[i] and times[i + 1] > times[i]:
                held.append((row, times[i], times[i + 1], values[i]))
    return pd.DataFrame(held, columns=["row", "begin", "end", "value"]).astype("int64")


def split_by_bin(held: pd.DataFrame, step: int) -> dict[tuple[int, int], dict[int, int]]:
    """Return how long (ns) each value lasts in each bin, by row and bin."""
    bins: dict[tuple[int, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for row, begin, end, value in held.itertuples(index=False):
        while begin < end:
            until = min(end, (begin // step + 1) * step)
            bins[row, begin // step][value] += until - begin
            begin = until
    return bins


def choose_values(held: pd.DataFrame, step: int, duration: int) -> dict[tuple[int, int], int]:
    """Return the value that covers most of each bin, by row and bin; bins of nothing are absent."""
    chosen = {}
    for (row, number), values in split_by_bin(held, step).items():
        length = min(duration, (number + 1) * step) - number * step
        values = {0: length - sum(values.values()), **values}
        best = max(sorted(values), key=lambda value: values[value])
        if best:
            chosen[row, number] = best
    return chosen


def get_shown(held: pd.DataFrame, step: int, duration: int) -> dict[tuple[int, int], int]:
    """Return the value of each bin of what is shown: all of it must have one."""
    shown = {}
    for row, begin, end, value in held.itertuples(index=False):
        assert begin % step == 0 and (end % step == 0 or end == duration)
        for number in range(begin // step, -(-end // step)):
            assert (row, number) not in shown
            shown[row, number] = value
    return shown


def list_held(trace: Trace) -> dict[str, pd.DataFrame]:
    """Return states, and what GPUs do, as row, begin, end and value."""
    states = trace.states.rename(columns={"state": "value"})[["row", "begin", "end", "value"]]
    return {"states": states, **{str(number): hold_values(trace, number) for number in (ACTIVITY, WITH_WAITS)}}


# ---- the same trace --------------------------------------------------------------------------------------------------


@pytest.mark.all_sets
def test_objects_times_and_labels_are_those_of_the_whole_trace(traces: Traces) -> None:
    for other in (traces.overview, traces.small):
        whole, own = (trace.path.read_bytes().split(b"\n1:", 1)[0] for trace in (traces.whole, other))
        assert whole.split(b"\n2:")[0] == own.split(b"\n2:")[0]  # the header with the communicators
        assert traces.whole.path.with_suffix(".row").read_bytes() == other.path.with_suffix(".row").read_bytes()
        used = set(other.events["type"])
        assert set(other.types) == used | {ALWAYS_DECLARED}
        shared = set(other.types) & set(traces.whole.types)
        assert set(other.types) - shared <= set(range(COMPUTES, MEAN_IN_FLIGHT + 1))
        assert {number: other.types[number] for number in shared} == {n: traces.whole.types[n] for n in shared}
        for number in shared & used:
            assert other.values.get(number) == traces.whole.values.get(number)
    assert traces.result.start_utc_ns == traces.whole_result.start_utc_ns
    assert traces.result.duration_ns == traces.whole_result.duration_ns


def test_what_fits_is_exact(traces: Traces) -> None:
    assert traces.result.overview is not None and traces.result.overview.state_rows == 0
    expected, found = list_held(traces.whole), list_held(traces.overview)
    for key, table in expected.items():
        assert len(table) > 1000
        assert compare_tables(found[key], table, ["row", "begin", "end", "value"]) == "", key
    steps = [pair_intervals(trace, STEP) for trace in (traces.whole, traces.overview, traces.small)]
    assert len(steps[0]) > 0
    for own in steps[1:]:
        assert compare_tables(own, steps[0], ["row", "begin", "end", "value"]) == ""


# ---- in steps of time ------------------------------------------------------------------------------------------------


def test_the_bytes_are_kept(traces: Traces) -> None:
    assert 0.6 * SMALL < traces.small.path.stat().st_size <= SMALL


def test_rows_are_exact_or_show_what_covers_most_of_each_step(traces: Traces) -> None:
    facts = traces.small_result.overview
    assert facts is not None and facts.state_rows > 0
    step, duration = facts.state_step_ns, traces.whole.duration
    lines_of_exact, lines_of_coarse, coarse_rows = [], [], set()
    found = list_held(traces.small)
    for key, table in list_held(traces.whole).items():
        for row, own in table.groupby("row"):
            shown = found[key][found[key]["row"] == row]
            ends = 0 if key == "states" else int((~np.isin(own["end"], own["begin"])).sum())
            if len(shown) == len(own) and (shown.to_numpy() == own.to_numpy()).all():
                lines_of_exact.append(len(own) + ends)
                continue
            lines_of_coarse.append(len(own) + ends)
            coarse_rows.add(row)
            assert get_shown(shown, step, duration) == choose_values(own, step, duration), (key, row)
    assert len(coarse_rows) == facts.state_rows
    assert lines_of_exact and max(lines_of_exact) < min(lines_of_coarse)


def _get_counter(trace: Trace, event_type: int, row: int, step: int, bins: int) -> list[int]:
    """Return the value of a counter in each bin: it holds until the next."""
    events = trace.events[(trace.events["type"] == event_type) & (trace.events["row"] == row)]
    values, at = [0] * bins, dict(zip(events["time"], events["value"], strict=True))
    assert all(time % step == 0 or time == trace.duration for time in at)
    for number in range(bins):
        values[number] = at.get(number * step, values[number - 1] if number else 0)
    return values


@pytest.mark.parametrize("which", ["overview", "small"])
def test_counters_are_the_shares_of_each_step(traces: Traces, which: str) -> None:
    trace: Trace = getattr(traces, which)
    facts = getattr(traces, "result" if which == "overview" else "small_result").overview
    step, duration = facts.counter_step_ns, traces.whole.duration
    bins = -(-duration // step)
    activity, with_waits, in_flight = (
        split_by_bin(hold_values(traces.whole, number), step) for number in (ACTIVITY, WITH_WAITS, IN_FLIGHT)
    )
    rows = {row for row, _ in activity}
    assert len(rows) == facts.counter_rows == 4
    wanted = {
        COMPUTES: lambda row, number: sum(ns for value, ns in activity[row, number].items() if value & 1),
        COMMUNICATES: lambda row, number: sum(ns for value, ns in activity[row, number].items() if value & 2),
        EXPOSED: lambda row, number: sum(ns for value, ns in activity[row, number].items() if value & 3 == 2),
        MEMORY: lambda row, number: sum(ns for value, ns in activity[row, number].items() if value & 4),
        IDLE: lambda row, number: activity[row, number].get(8, 0),
        WAITS_EXPOSED: lambda row, number: with_waits[row, number].get(4, 0),
        MEAN_IN_FLIGHT: lambda row, number: sum(value * ns for value, ns in in_flight[row, number].items()) / 100,
    }
    for event_type, measure in wanted.items():
        nonzero = 0
        for row in rows:
            shown = _get_counter(trace, event_type, row, step, bins)
            for number, value in enumerate(shown):
                length = min(duration, (number + 1) * step) - number * step
                assert abs(value - 10_000 * measure(row, number) / length) <= 0.5, (event_type, row, number)
                nonzero += value > 0
        assert nonzero, event_type


def test_whole_graphs_have_a_share(shared_reports: Path, tmp_path: Path) -> None:
    reports = sorted(shared_reports.glob("exercises/tpgraph-1x4.rank[01].sqlite"))
    options = {"sources": ["kernels", "cuda_graphs", "memory_operations", "nccl"]}
    whole, _ = translate_into(tmp_path / "whole", reports, **options)
    trace, result = translate_into(tmp_path / "overview", reports, overview_trace=True, **options)
    assert result.overview is not None
    step = result.overview.counter_step_ns
    activity = split_by_bin(hold_values(whole, ACTIVITY), step)
    shares: dict[int, int] = {}
    for row in {row for row, _ in activity}:
        shown = _get_counter(trace, GRAPHS, row, step, -(-whole.duration // step))
        for number, value in enumerate(shown):
            length = min(whole.duration, (number + 1) * step) - number * step
            ns = sum(ns for kind, ns in activity[row, number].items() if kind & 17 == 16)
            assert abs(value - 10_000 * ns / length) <= 0.5, (row, number)
            shares[row] = shares.get(row, 0) + value
    assert sorted(value > 0 for value in shares.values()) == [False, True], "rank 0 shows the nodes of its graphs"


@pytest.mark.parametrize("which", ["overview", "small"])
def test_metrics_are_the_means_of_each_step(traces: Traces, which: str) -> None:
    trace: Trace = getattr(traces, which)
    facts = getattr(traces, "result" if which == "overview" else "small_result").overview
    step, duration = facts.metric_step_ns, traces.whole.duration
    metrics = [
        number for number in traces.whole.types if 9400 <= number < 9500 or (number >= 9_000_000 and number < 9_100_000)
    ]
    events = traces.whole.events[traces.whole.events["type"].isin(metrics)]
    assert len(metrics) > 5 and facts.metric_rows == events["row"].nunique() > 0
    compared = 0
    for row, of_row in events.groupby("row"):
        last = int(of_row["time"].max())
        for metric, own in of_row.groupby("type"):
            times, values = [*own["time"].tolist(), last], own["value"].tolist()
            sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
            for i, value in enumerate(values):
                begin = times[i]
                while begin < times[i + 1]:
                    until = min(times[i + 1], (begin // step + 1) * step)
                    sums[begin // step][0] += value * (until - begin)
                    sums[begin // step][1] += until - begin
                    begin = until
            shown = _get_counter(trace, int(metric), int(row), step, -(-duration // step))
            for number, (weighted, ns) in sums.items():
                mean = weighted / ns
                assert abs(shown[number] - mean) <= 0.5 + 1e-9 * abs(mean), (metric, row, number)
                compared += shown[number] > 0
    assert compared > 100


# ---- waits and accounts ----------------------------------------------------------------------------------------------


def list_waits(trace: Trace) -> pd.DataFrame:
    """Return row, begin, end, rank and reason of the intervals of waiting."""
    waits = pair_intervals(trace, PART)
    waits = waits[waits["value"] == 1]
    for name, number in (("rank", RANK), ("reason", REASON)):
        waits = waits.assign(**{name: waits["line"].map(trace.get_attribute(number)).fillna(0).astype(int)})
    return waits


def test_all_waits_are_shown_or_the_longest(traces: Traces) -> None:
    columns = ["row", "begin", "end", "rank", "reason"]
    every = list_waits(traces.whole)
    assert len(every) > 100
    assert compare_tables(list_waits(traces.overview), every, columns) == ""
    shortest = traces.small_result.overview.shortest_wait_ns  # type: ignore[union-attr]
    long = every[every["end"] - every["begin"] >= shortest]
    assert shortest > 0 and 0 < len(long) < len(every)
    assert compare_tables(list_waits(traces.small), long, columns) == ""
    assert set(pair_intervals(traces.small, PART)["value"]) == {1}


@pytest.mark.parametrize("which", ["overview", "small"])
def test_each_event_is_written_or_dropped(traces: Traces, which: str) -> None:
    trace: Trace = getattr(traces, which)
    result = getattr(traces, "result" if which == "overview" else "small_result")
    whole = {account.name: account for account in traces.whole_result.sources}
    own = {account.name: account for account in result.sources}
    assert set(whole) - set(own) == {"critical_path", "path_lines"}  # they are not computed
    assert set(own) - set(whole) == {"overview"}
    for name, account in own.items():
        assert account.read == account.written + sum(account.dropped.values()), name
        if name in whole:
            assert account.read == whole[name].read
            for reason, count in whole[name].dropped.items():
                assert account.dropped[reason] >= count
    written = {name: account.written for name, account in own.items() if account.written}
    steps, waits = (sum(len(pair_intervals(trace, kind)) for kind in kinds) for kinds in ((STEP, HOST_STEP), (PART,)))
    others = trace.events[~trace.events["type"].isin((STEP, HOST_STEP, PART, RANK, REASON))]
    assert written == {"steps": steps, "waits": waits, "overview": others["line"].nunique()}
    assert (result.states, result.communications) == (len(trace.states), 0) and not len(trace.communications)


# ---- options and jobs ------------------------------------------------------------------------------------------------


@pytest.mark.all_sets
def test_windows_and_cores(tmp_path: Path) -> None:
    """In two windows of time: exact where it fits, and the same bytes for any number of cores."""
    sources = ["mpi", "kernels", "nvtx", "cuda_api"]
    options = {"nvtx_range": "iteration 1*", "sources": sources}
    whole, _ = translate_into(tmp_path / "whole", MPI_4, **options)
    overview, result = translate_into(tmp_path / "overview", MPI_4, overview_trace=True, **options)
    assert compare_tables(overview.states, whole.states, ["row", "begin", "end", "state"]) == "" and len(whole.states)
    columns = ["row", "begin", "end", "rank", "reason"]
    assert compare_tables(list_waits(overview), list_waits(whole), columns) == "" and len(list_waits(whole))
    assert all(account.read == account.written + sum(account.dropped.values()) for account in result.sources)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview_rows, "MOST_BYTES", 20_000)
        made = []
        for jobs in (1, 2):
            trace, own = translate_into(
                tmp_path / str(jobs), MPI_4[:2], overview_trace=True, jobs=jobs, sources=sources
            )
            assert own.overview is not None and own.overview.state_rows and own.bytes <= 20_000
            made.append([trace.path.with_suffix(suffix).read_bytes() for suffix in (".prv", ".pcf", ".row")])
    assert made[0] == made[1]


def test_more_steps_than_fit(tmp_path: Path) -> None:
    """The first rows show theirs, the others none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview_rows, "MOST_BYTES", 10_000)
        trace, result = translate_into(tmp_path / "small", MPI_4[:2], sources=["nvtx"], overview_trace=True)
    whole, _ = translate_into(tmp_path / "whole", MPI_4[:2], sources=["nvtx"])
    found, every = (pair_intervals(own, STEP) for own in (trace, whole))
    kept = sorted(set(every["row"]))[: found["row"].nunique()]
    assert 0 < len(kept) < every["row"].nunique()
    assert compare_tables(found, every[every["row"].isin(kept)], ["row", "begin", "end", "value"]) == ""
    account = next(account for account in result.sources if account.name == "steps")
    assert account.dropped == {"more steps than an overview takes": len(every) - len(found)}
    facts = result.overview
    assert facts is not None and (facts.step_rows, facts.rows_with_steps) == (len(kept), every["row"].nunique())
    assert f"steps of the first {len(kept)} of {every['row'].nunique()} rows are shown" in result.text()


@pytest.mark.parametrize(("most", "rows"), [(100_000_000, 2), (18_000, 1)])
def test_steps_in_several_windows_are_counted_once(tmp_path: Path, most: int, rows: int) -> None:
    """A step lasts from the first to the last of the ranges within it, with time between them that is not shown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview_rows, "MOST_BYTES", most)
        options = {"sources": ["nvtx"], "nvtx_range": "co*"}
        trace, result = translate_into(tmp_path / "small", MPI_4[:2], overview_trace=True, **options)
    found = pair_intervals(trace, STEP)
    assert found["row"].nunique() == rows and len(found) > rows * 8  # in pieces
    account = next(account for account in result.sources if account.name == "steps")
    dropped = {"more steps than an overview takes": (2 - rows) * 8}
    assert (account.read, account.written) == (16, rows * 8)
    assert account.dropped == {reason: count for reason, count in dropped.items() if count}


def test_nothing_to_show(tmp_path: Path) -> None:
    """Samples alone have neither states nor counters: no trace is written."""
    with pytest.raises(TranslationError, match="overview of these reports is empty"):
        translate(MPI_4[:1], tmp_path / "x.prv", sources=["launch_lines"], overview_trace=True)
    assert not list(tmp_path.iterdir())
