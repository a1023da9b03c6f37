"""Times long after the end of a capture, planted in every table of events: the trace stays as long, without them."""

from __future__ import annotations

import numpy as np
import pytest

from nsys2prv_ng.report.database import NULL
from nsys2prv_ng.sources.shared.reasons import AFTER_CAPTURE, find_unsound_points, find_unsound_times, move_late_times
from tests.report_truth import Report
from tests.translated import changed, translated_set

LATE = 100 * 10**9
NOT_EVENTS = ("META", "TARGET", "ANALYSIS", "DIAGNOSTIC", "MPI_COMMUNICATORS")
"""Starts of tables without events, and nsys's own messages, which it may send after the capture."""


def list_times(report: Report) -> dict[str, str]:
    """The column with the latest time of each table of events."""
    tables = [name for (name,) in report.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {}
    for table in tables:
        columns = {row[1] for row in report.connection.execute(f'PRAGMA table_info("{table}")')}
        time = next((name for name in ("end", "timestamp", "start") if name in columns), None)
        if time is not None and not table.startswith(NOT_EVENTS):
            found[table] = time
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpi-4.rank0", "ddp-2x2.rank0"])
def test_one_late_event_in_each_table(samples, tmp_path, name):
    sample = samples / f"{name}.sqlite"
    times = list_times(Report(sample))
    planted, expected = [], set()
    for table, time in times.items():
        events = " AND eventType IN (59, 60)" if table == "NVTX_EVENTS" else ""
        row = f'SELECT rowid FROM "{table}" WHERE "{time}" IS NOT NULL{events} LIMIT 1 OFFSET 2'
        if Report(sample).connection.execute(row).fetchone():
            planted.append(f'UPDATE "{table}" SET "{time}" = "{time}" + {LATE} WHERE rowid = ({row})')
            expected.add(table)
    report = changed(sample, tmp_path / "r.sqlite", planted)
    got, whole = (translated_set([path], tmp_path / path.stem, None) for path in (report, sample))
    assert len(expected) >= 7
    assert got.trace.duration == whole.trace.duration
    counts = {account.name: account.dropped.get(AFTER_CAPTURE, 0) for account in got.summary.sources}
    assert sum(count > 0 for count in counts.values()) >= len(expected) - 3, counts  # MPI has several tables
    for account in got.summary.sources:
        assert account.read == account.written + sum(account.dropped.values())


def test_marked_times_stay_apart_and_in_order():
    times = np.array([NULL, -5, 0, 99, 100, 101, 5_000, 2**62 + 1, 2**63 - 1])
    moved = move_late_times(times, 100)
    assert moved[[0, 1, 2, 3, 4, 7, 8]].tolist() == times[[0, 1, 2, 3, 4, 7, 8]].tolist()
    assert np.diff(moved[5:7]).tolist() == [4_899]
    assert find_unsound_points(moved)[AFTER_CAPTURE].tolist() == [False] * 5 + [True, True, True, False]
    masks = find_unsound_times(np.zeros_like(moved) + 1, moved)
    assert masks[AFTER_CAPTURE].tolist() == [False] * 5 + [True, True, True, False]
    assert (sum(mask.astype(int) for mask in masks.values()) <= 1).all()
