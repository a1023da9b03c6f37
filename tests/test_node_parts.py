"""A part of a node that several reports sampled: each value is there once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from nsys2prv_ng.node_parts import REPEATED
from tests.sources.node_reports import CARD, LIST, lines, nic_tables
from tests.sources.small_reports import MAIN, UTC, Rows, account, export, trace_of

NAME = "network_metrics"
CALL = ("start", "end", "globalTid", "nameId")


def report(path: Path, times: range, *, utc: int = UTC, host: str = "host", card: str = "mlx5_0") -> Path:
    """Samples of a card at some times, whose values tell the time (UTC) and the report."""
    rows = [(t, t + 10, CARD, LIST, 6, (utc - UTC + t) * 100 + int(path.stem)) for t in times]
    tables: dict[str, Rows] = nic_tables(rows)
    columns, [nic] = tables["TARGET_INFO_NIC_INFO"]
    tables["TARGET_INFO_NIC_INFO"] = columns, [(*nic[:3], card, *nic[4:])]
    return export(path, [], tables, utc=utc, host=host)


def shown(reports: list[Path], folder: Path) -> tuple[dict[str, list[tuple[int, int]]], dict[str, int]]:
    """(times and reports of the values by row, what was dropped); the same in any order of reports."""
    found = None
    for i in range(2):
        trace, summary = trace_of(reports[:: 1 - 2 * i], folder / f"x{i}.prv", NAME)
        rows: dict[str, list[tuple[int, int]]] = {}
        for row, time, said in lines(trace):
            (value,) = said.values()
            assert int(value) // 100 == time + summary.start_utc_ns - UTC
            rows.setdefault(row, []).append((int(value) // 100, int(value) % 100))
        answer = rows, account(summary, NAME).dropped
        assert found in (None, answer)
        found = answer
    assert found is not None
    return found


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


def test_other_nodes_and_other_cards_are_others(tmp_path: Path) -> None:
    reports = [
        report(tmp_path / "1.sqlite", range(0, 50, 10)),
        report(tmp_path / "2.sqlite", range(0, 50, 10), host="other"),
        report(tmp_path / "3.sqlite", range(0, 50, 10), card="mlx5_1"),
    ]
    rows, dropped = shown(reports, tmp_path)
    assert {row: len(values) for row, values in rows.items()} == {"NIC mlx5_0": 10, "NIC mlx5_1": 5}
    assert dropped == {}


def test_calls_of_processes_stay(tmp_path: Path) -> None:
    reports = []
    for i in (1, 2):
        rows = [(t, t + 10, CARD, LIST, 6, 1) for t in range(0, 100, 10)]
        calls = [(t, t + 5, MAIN + (i << 24), 0) for t in range(0, 100, 10)]
        reports.append(
            export(
                tmp_path / f"{i}.sqlite",
                ["cudaFree"],
                nic_tables(rows) | {"CUPTI_ACTIVITY_KIND_RUNTIME": (CALL, calls)},
            )
        )
    _, summary = trace_of(reports, tmp_path / "x.prv", f"{NAME},cuda_api")
    assert account(summary, NAME).written == 10
    assert (account(summary, "cuda_api").written, account(summary, "cuda_api").dropped) == (20, {})


@pytest.mark.parametrize("seed", range(4))
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
