"""Every preset, checked by the checker on traces with and without its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.sources.registry import SOURCES
from tests.cfgs.cfg_checker import check_cfg, read_contents
from tests.conftest import REPOSITORY
from tests.tiers import cases
from tests.translated import translated_set

SETS = {
    "ddp-2x2": [f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "mpi-4": [f"mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "single-graph": ["single-graph.sqlite"],
}
EVERYTHING = ",".join(source.name for source in SOURCES)


@pytest.fixture(scope="module", params=cases(SETS, quick=["single-graph"]))
def trace(request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return translated_set([samples / name for name in SETS[request.param]], folder, EVERYTHING).trace.path


def test_the_checker_finds_nothing_in_any_preset(trace: Path) -> None:
    contents = read_contents(trace)
    presets = list_presets()
    assert len(presets) == len(list((REPOSITORY / "cfgs").glob("*/*.cfg"))) > 40
    for preset in presets:
        report = check_cfg(preset.path, contents.config, contents.header, contents.types)
        assert report.problems == [], preset.name
        assert report.windows > 0


def test_presets_warn_only_of_events_that_the_trace_lacks(trace: Path) -> None:
    contents = read_contents(trace)
    for preset in list_presets():
        report = check_cfg(preset.path, contents.config, contents.header, contents.types)
        for warning in report.warnings:
            assert "in the trace" in warning.message, (preset.name, warning)
