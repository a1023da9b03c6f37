"""What calls wait for on GPUs, in jobs where some processes and GPUs have no operations."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from nsys2prv_ng.replay import devices
from nsys2prv_ng.replay.columns import WAKE
from tests.conftest import SAMPLES
from tests.replay.jobs import opened_model

TABLES = [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET")]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_without_operations_waits_for_none(
    rank: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls name groups of streams that do not exist. As Python, the loop raises an error for a wrong index."""
    monkeypatch.setattr(devices, "_follow", devices._follow.py_func)  # type: ignore[attr-defined]
    reports = [tmp_path / f"mpi-4.rank{n}.sqlite" for n in (0, 1)]
    for report in reports:
        shutil.copyfile(SAMPLES / report.name, report)
    with closing(sqlite3.connect(reports[rank], isolation_level=None)) as sql:
        existing = {name for (name,) in sql.execute("SELECT name FROM sqlite_master")}
        for table in existing.intersection(TABLES):
            sql.execute(f"DELETE FROM {table}")
    with opened_model(reports, tmp_path) as model:
        graph, lanes = model.graph, model.lanes
        wakes = (graph.kind == WAKE) & (graph.since < model.numbers.call_begin) & (model.edge_call >= 0)
        assert wakes.any()
        operation = graph.since[wakes] % model.numbers.operations
        thread = lanes.calls.thread[model.edge_call[wakes]]
        assert (lanes.operations.process[operation] == lanes.threads.process[thread]).all()
