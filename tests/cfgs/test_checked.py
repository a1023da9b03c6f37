"""Every preset against the checker, on traces with and without its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.paraver.checker.cfg import check_cfg, read_contents
from nsys2prv_ng.presets import presets
from nsys2prv_ng.sources import SOURCES
from tests.cfgs.test_node_presets import made
from tests.translated import translated_set

SETS = {
    "ddp-2x2": [f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "mpi-4": [f"mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "single-graph": ["single-graph.sqlite"],
}
EVERYTHING = ",".join(source.name for source in SOURCES)


@pytest.fixture(scope="module", params=SETS)
def trace(request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return translated_set([samples / name for name in SETS[request.param]], folder, EVERYTHING).trace.path


def test_the_checker_finds_nothing_in_any_preset(trace: Path) -> None:
    contents = read_contents(trace)
    found = presets()
    assert len(found) == 41
    for preset in found:
        report = check_cfg(preset.path, contents.config, contents.header, contents.types)
        assert report.problems == [], preset.name
        assert report.windows > 0


def test_presets_warn_only_of_events_that_the_trace_has_not(trace: Path) -> None:
    contents = read_contents(trace)
    for preset in presets():
        report = check_cfg(preset.path, contents.config, contents.header, contents.types)
        for warning in report.warnings:
            assert "in the trace" in warning.message, (preset.name, warning)


def test_every_preset_has_its_events_in_some_sample(samples: Path, tmp_path: Path) -> None:
    """Or in what is made for presets of what samples do not have, so that none is only ever seen empty."""
    empty = {preset.name for preset in presets()}
    traces = [
        translated_set([samples / report for report in reports], tmp_path / name, EVERYTHING).trace.path
        for name, reports in SETS.items()
    ]
    for trace in (*traces, made(tmp_path).path):
        contents = read_contents(trace)
        for preset in presets():
            report = check_cfg(preset.path, contents.config, contents.header, contents.types)
            if not any("none of the event types" in warning.message for warning in report.warnings):
                empty.discard(preset.name)
    assert empty == set()
