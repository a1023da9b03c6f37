"""The estimate of a trace by its rows, beside the trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nsys2prv_ng.inspection.inspect import inspect
from nsys2prv_ng.inspection.model import estimate_details, estimate_load
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import SOURCES
from nsys2prv_ng.translation.translate import translate
from tests.conftest import SAMPLES

SETS = [sorted(SAMPLES.glob(f"{name}*.sqlite")) for name in ("ddp-2x2.rank[01]", "single-graph")]


@pytest.mark.slow
@pytest.mark.parametrize("reports", SETS, ids=lambda reports: reports[0].stem)
def test_the_estimate_is_near_the_trace(reports: list[Path], tmp_path: Path) -> None:
    inspection = inspect(reports, Progress(), 1)
    result = translate(reports, tmp_path / "x.prv")
    assert inspection.load.record_memory == pytest.approx(result.load.record_memory, rel=0.2)
    assert inspection.load.text_bytes == pytest.approx(result.bytes, rel=0.4)
    lines = next(source for source in result.sources if source.name == "launch_lines")
    details = estimate_details(inspection.rows_of_sources)
    assert details["launch_lines"].communications == pytest.approx(lines.load.communications, rel=0.1)
    written = json.loads(json.dumps(inspection.to_dict()))["estimate"]
    assert written["paraver_memory"] == inspection.load.memory
    assert written["trace_bytes"] == inspection.load.text_bytes
    present = {source.name for source in result.sources if source.load.pairs or source.load.communications}
    selectable = set(inspection.list_selectable_sources())
    assert present & {source.name for source in SOURCES} <= selectable


def test_parts_add_up() -> None:
    rows = {source.name: 1000 + i for i, source in enumerate(SOURCES) if source.counted_tables}
    parts = estimate_details(rows).values()
    assert sum(part.record_memory for part in parts) == pytest.approx(estimate_load(rows).record_memory, rel=0.02)
    assert estimate_load({}).record_memory == 0
