"""A part of a node that several reports sampled: each value is there once."""

from __future__ import annotations

import random
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from nsys2prv_ng.paraver.event_types import NCCL_KERNEL
from nsys2prv_ng.sources.shared.reasons import REPEATED
from tests.sources.node.node_reports import (
    CARD,
    COMPONENTS,
    CONGESTION,
    DATA,
    EVENTS,
    FIELDS,
    LIST,
    METRIC,
    NAMES,
    OTHER_CARD,
    PERF_RAW,
    SOURCES,
    TYPES,
    collect_lines,
    make_nic_tables,
    tabulate_events,
)
from tests.sources.small_reports import MAIN, UTC, Rows, export, get_account, translate_reports
from tests.tiers import cases

NAME = "network_metrics"
CALL = ("start", "end", "globalTid", "nameId")


def report(path: Path, times: range, *, utc: int = UTC, host: str = "host", card: str = "mlx5_0") -> Path:
    """Samples of a card at some times, whose values tell the time (UTC) and the report."""
    rows = [(t, t + 10, CARD, LIST, 6, (utc - UTC + t) * 100 + int(path.stem)) for t in times]
    tables: dict[str, Rows] = make_nic_tables(rows)
    columns, [nic] = tables["TARGET_INFO_NIC_INFO"]
    tables["TARGET_INFO_NIC_INFO"] = columns, [(*nic[:3], card, *nic[4:])]
    return export(path, [], tables, utc=utc, host=host)


def shown(reports: list[Path], folder: Path) -> tuple[dict[str, list[tuple[int, int]]], dict[str, int]]:
    """(times and reports of the values by row, what was dropped); the same in any order of reports."""
    found = None
    for i in range(2):
        trace, summary = translate_reports(reports[:: 1 - 2 * i], folder / f"x{i}.prv", NAME)
        rows: dict[str, list[tuple[int, int]]] = {}
        for row, time, said in collect_lines(trace):
            (value,) = said.values()
            assert int(value) // 100 == time + summary.start_utc_ns - UTC
            rows.setdefault(row, []).append((int(value) // 100, int(value) % 100))
        answer = rows, get_account(summary, NAME).dropped
        assert found in (None, answer)
        found = answer
    assert found is not None
    return found


@pytest.mark.slow
def test_reports_that_overlap(tmp_path: Path) -> None:
    """The first to begin has its values; of others what is later, though their clocks are their own."""
    reports = [
        report(tmp_path / "1.sqlite", range(0, 100, 10)),
        report(tmp_path / "2.sqlite", range(0, 100, 10), utc=UTC + 55),
        report(tmp_path / "3.sqlite", range(20, 60, 10)),
        report(tmp_path / "4.sqlite", range(0, 30, 10), utc=UTC + 1000),
    ]
    rows, dropped = shown(reports, tmp_path)
    assert rows == {
        "NIC mlx5_0": [
            *((t, 1) for t in range(0, 100, 10)),
            *((t, 2) for t in range(95, 155, 10)),
            *((t, 4) for t in range(1000, 1030, 10)),
        ]
    }
    assert dropped == {REPEATED: 4 + 4}


@pytest.mark.slow
def test_other_nodes_and_other_cards_are_others(tmp_path: Path) -> None:
    reports = [
        report(tmp_path / "1.sqlite", range(0, 50, 10)),
        report(tmp_path / "2.sqlite", range(0, 50, 10), host="other"),
        report(tmp_path / "3.sqlite", range(0, 50, 10), card="mlx5_1"),
    ]
    rows, dropped = shown(reports, tmp_path)
    assert {row: len(values) for row, values in rows.items()} == {
        "host NIC mlx5_0": 5,
        "other NIC mlx5_0": 5,
        "NIC mlx5_1": 5,
    }
    assert dropped == {}


@pytest.mark.slow
def test_calls_of_processes_stay(tmp_path: Path) -> None:
    reports = []
    for i in (1, 2):
        rows = [(t, t + 10, CARD, LIST, 6, 1) for t in range(0, 100, 10)]
        calls = [(t, t + 5, MAIN + (i << 24), 0) for t in range(0, 100, 10)]
        reports.append(
            export(
                tmp_path / f"{i}.sqlite",
                ["cudaFree"],
                make_nic_tables(rows) | {"CUPTI_ACTIVITY_KIND_RUNTIME": (CALL, calls)},
            )
        )
    _, summary = translate_reports(reports, tmp_path / "x.prv", f"{NAME},cuda_api")
    assert get_account(summary, NAME).written == 10
    assert (get_account(summary, "cuda_api").written, get_account(summary, "cuda_api").dropped) == (20, {})


@pytest.mark.slow
@pytest.mark.parametrize("seed", cases(range(4), push=1))
def test_every_time_is_covered_as_before(seed: int, tmp_path: Path) -> None:
    """Brute force: of all reports sorted by their begin, a value is kept if none before reaches its time."""
    rng = random.Random(seed)
    spans = []
    for i in range(5):
        begin = rng.randrange(0, 500, 10)
        spans.append((i, range(begin, begin + rng.randrange(20, 400, 10), 10)))
    reports = [report(tmp_path / f"{i}.sqlite", times) for i, times in spans]
    rows, dropped = shown(reports, tmp_path)
    expected, reached = [], -1
    for i, times in sorted(spans, key=lambda span: (span[1][0], -span[1][-1])):
        expected += [(t, i) for t in times if t > reached]
        reached = max(reached, times[-1])
    assert [t for t, _ in rows["NIC mlx5_0"]] == [t for t, _ in sorted(expected)]
    assert sum(dropped.values()) == sum(len(times) for _, times in spans) - len(expected)


Sampled = list[tuple[int, int, int]]
"""Time, card and metric of each value."""


def kept_of(reports: list[Sampled]) -> set[tuple[int, int, int, int]]:
    """Brute force: of each card and metric the values (and their report's index) that a trace has. A report's value is
    left out if the ones kept before have its time, or times around it that are at most two periods apart."""
    kept = set()
    order = sorted(range(len(reports)), key=lambda i: (min(reports[i])[0], -max(reports[i])[0], i))
    for card, metric in sorted({(c, m) for rows in reports for _, c, m in rows}):
        series: list[int] = []
        for i in order:
            times = sorted(t for t, c, m in reports[i] if (c, m) == (card, metric))
            periods = [statistics.median([b - a for a, b in pairwise(s)]) if len(s) > 1 else 0 for s in (series, times)]
            new = []
            for t in times:
                before, after = [s for s in series if s < t], [s for s in series if s > t]
                inside = before and after and min(after) - max(before) <= 2 * min(periods)
                if t not in series and not inside:
                    new.append(t)
                    kept.add((t, card, metric, i))
            series = sorted(series + new)
    return kept


def check(reports: list[Sampled], folder: Path) -> list[int]:
    """Compare with brute force and return how many values each report has in the trace."""
    paths = []
    for i, rows in enumerate(reports):
        values = [(t, t + 1, card, LIST, metric, 10 * t + i) for t, card, metric in rows]
        paths.append(export(folder / f"{i}.sqlite", [], make_nic_tables(values)))
    trace, summary = translate_reports(paths, folder / "x.prv", NAME)
    cards = {"NIC mlx5_0": CARD, "NIC 1000000000001": OTHER_CARD}
    metrics = {f"{name} [{unit}]": index for _, index, name, _, unit in NAMES}
    found = [
        (value // 10, cards[row], metrics[said], int(value % 10))
        for row, said, value in tabulate_events(trace)[["row", "name", "value"]].itertuples(index=False)
    ]
    expected = kept_of(reports)
    assert sorted(found) == sorted(expected)
    told = get_account(summary, NAME)
    assert told.read == sum(len({(t, card) for t, card, _ in rows}) for rows in reports)
    assert told.written == len({(t, card, i) for t, card, _, i in expected})
    assert set(trace.types) == {*trace.events["type"], NCCL_KERNEL.number}  # which every trace declares
    return [sum(of == i for *_, of in expected) for i in range(len(reports))]


def test_other_metrics_of_a_card_are_no_repetition(tmp_path: Path) -> None:
    times = range(0, 1000, 10)
    shared = [(t, CARD, 6) for t in times]
    assert check([shared, [(t + 5, CARD, 7) for t in times]], tmp_path) == [100, 100]


@pytest.mark.slow
def test_two_values_do_not_stand_for_a_thousand_between_them(tmp_path: Path) -> None:
    few, many = [(t, CARD, 6) for t in (0, 100_000)], [(t, CARD, 6) for t in range(50, 100_000, 100)]
    assert check([few, many], tmp_path) == [2, 1000]


@pytest.mark.slow
def test_a_pause_is_filled_by_another_report(tmp_path: Path) -> None:
    pausing = [(t, CARD, 6) for t in (*range(0, 1000, 10), *range(5000, 6000, 10))]
    # 995 to 4995, and 5995 behind the last.
    assert check([pausing, [(t, CARD, 6) for t in range(5, 6000, 10)]], tmp_path) == [200, 401 + 1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", cases(range(6), push=2))
def test_values_of_any_times(seed: int, tmp_path: Path) -> None:
    """Reports whose samples are late, have gaps, lack metrics and begin at any time."""
    rng = random.Random(seed)
    reports: list[Sampled] = []
    for _ in range(4):
        begin, period = rng.randrange(0, 2000), rng.choice([10, 10, 10, 25])
        pause = rng.randrange(begin, begin + 2000)
        metrics = [(c, m) for c in (CARD, OTHER_CARD) for m in (6, 7, 10) if rng.random() < 0.7] or [(CARD, 6)]
        times = [begin + i * period + rng.randrange(4) for i in range(150)]
        reports.append(
            [(t, *each) for t in times if not pause < t < pause + 300 for each in metrics if rng.random() < 0.97]
        )
    assert all(check(reports, tmp_path))


@pytest.mark.slow
def test_congestion_is_none_of_a_metrics_values(tmp_path: Path) -> None:
    metrics = {"NET_IB_SWITCH_METRIC": (METRIC, [(t, t + 10, 77, LIST, 6, t) for t in range(0, 100, 10)])}
    congestion = {"NET_IB_SWITCH_CONGESTION_EVENT": (CONGESTION, [(t, 77, 0, 1, 2, *[0] * 6) for t in (15, 25, 35)])}
    reports = [export(tmp_path / "a.sqlite", [], metrics), export(tmp_path / "b.sqlite", [], congestion)]
    trace, summary = translate_reports(reports, tmp_path / "x.prv", NAME)
    assert trace.names["THREAD"] == ["IB switch 4d"]
    assert (get_account(summary, NAME).written, get_account(summary, NAME).dropped) == (13, {})


@pytest.mark.slow
def test_parts_of_one_name_are_told_by_their_ids(tmp_path: Path) -> None:
    """One report has both cores, the others one each: names that each report numbered would mix them."""

    def cores(path: Path, components: list[int], times: range) -> Path:
        rows = [(t, t + 1, 1, c, 5, 1000 * c + t) for t in times for c in components]
        named = [(c, "Core", None, 0) for c in components]
        return export(
            path, [], {"PERF_EVENT_CPU_RAW_EVENT": (PERF_RAW, rows), "TARGET_INFO_COMPONENT": (COMPONENTS, named)}
        )

    reports = [
        cores(tmp_path / "a.sqlite", [1, 2], range(0, 50, 10)),
        cores(tmp_path / "b.sqlite", [2], range(0, 90, 10)),
        cores(tmp_path / "c.sqlite", [1], range(100, 150, 10)),
    ]
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "cpu_counters")
    found = tabulate_events(trace)
    of_core = {row: set(values // 1000) for row, values in found.groupby("row")["value"]}
    assert of_core == {"Core": {1}, "Core-2": {2}}
    times = {row: sorted(values % 1000) for row, values in found.groupby("row")["value"]}
    assert times == {"Core": [*range(0, 50, 10), *range(100, 150, 10)], "Core-2": list(range(0, 90, 10))}
    assert get_account(summary, "cpu_counters").dropped == {REPEATED: 5}


def plugin(path: Path, pid: int, times: range) -> Path:
    """Values of a plugin's process, which tell the time."""
    tid = 1 << 48 | pid << 24 | pid
    tables: dict[str, Rows] = {
        "GENERIC_EVENTS": (EVENTS, [(t, t, t, 5, tid, None) for t in times]),
        "GENERIC_EVENT_DATA": (DATA, [(t, 0, 100 * t + int(path.stem), None, None, None) for t in times]),
        "GENERIC_EVENT_TYPE_FIELDS": (FIELDS, [(5, 0, 1, 0, 8, 0)]),
        "GENERIC_EVENT_TYPES": (TYPES, [(5, 9, 0, None)]),
        "GENERIC_EVENT_SOURCES": (SOURCES, [(9, 0, 0, 5, None)]),
    }
    return export(path, ["plug", "work"], tables)


@pytest.mark.slow
def test_plugins_of_each_report_are_their_own(tmp_path: Path) -> None:
    """Each rank starts its own, whose values none of the others has; capture ranges of one run have the same."""
    reports = [
        plugin(tmp_path / "1.sqlite", 100, range(0, 100, 10)),
        plugin(tmp_path / "2.sqlite", 200, range(5, 100, 10)),
        plugin(tmp_path / "3.sqlite", 100, range(50, 150, 10)),  # in another container
        plugin(tmp_path / "4.sqlite", 200, range(500, 600, 10)),
    ]
    trace, summary = translate_reports(reports, tmp_path / "x.prv", "plugin_metrics")
    assert (get_account(summary, "plugin_metrics").written, get_account(summary, "plugin_metrics").dropped) == (40, {})
    found = tabulate_events(trace)
    assert {row: set(values % 100) for row, values in found.groupby("row")["value"]} == {
        "plug plug": {1},
        "plug plug-2": {3},
        "plug plug-3": {2, 4},
    }
    assert (found["value"] // 100 == found["time"]).all()
