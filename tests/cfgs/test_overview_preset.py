"""The preset of overviews: its values add up to the time that the whole trace shows, however long the steps are."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.translation import overview_rows
from tests.cfgs.recorded import show
from tests.conftest import SAMPLES
from tests.trace_reader import Trace, read_trace

pytestmark = pytest.mark.slow  # translates whole jobs

DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))
ACTIVITY, WITH_WAITS = 63000400, 63000413
WANTED = {
    "Compute [%]": (ACTIVITY, lambda value: value & 1),
    "Exposed communication [%]": (ACTIVITY, lambda value: value & 3 == 2),
    "Exposed wait [%]": (WITH_WAITS, lambda value: value == 4),
}


def sum_time(trace: Trace, event_type: int) -> dict[int, dict[int, int]]:
    """Return the time (ns) of each value by task, from 0; each task has one GPU."""
    sums: dict[int, dict[int, int]] = {}
    events = trace.events[trace.events["type"] == event_type]
    for row, own in events.groupby("row"):
        times, values = own["time"].tolist(), own["value"].tolist()
        of_task = sums.setdefault(trace.task_of_row[int(row)] - 1, {})
        for i in range(len(times) - 1):
            of_task[values[i]] = of_task.get(values[i], 0) + times[i + 1] - times[i]
    return sums


def test_shares_add_up_to_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview_rows, "MOST_BYTES", 500_000)
    sources = ["kernels", "memory_operations", "nccl"]
    translate(DDP, tmp_path / "overview.prv", sources=sources, overview_trace=True)
    translate(DDP, tmp_path / "whole.prv", sources=sources)
    overview, whole = read_trace(tmp_path / "overview.prv"), read_trace(tmp_path / "whole.prv")
    by_name = {window.name: window for window in show("views/overview", overview).windows}
    assert set(by_name) == set(WANTED)
    for name, (event_type, counts) in WANTED.items():
        for task, times in sum_time(whole, event_type).items():
            bursts = by_name[name].bursts[by_name[name].bursts["object"] == task]
            found = (bursts["value"] * (bursts["end"] - bursts["begin"])).sum() / 100
            expected = sum(ns for value, ns in times.items() if counts(value))
            assert expected > 10**6
            assert abs(found - expected) <= 0.5e-4 * overview.duration, (name, task)
