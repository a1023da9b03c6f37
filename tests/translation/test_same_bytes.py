"""The same bytes whatever a translation may use of the machine, and in whatever order reports are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nsys2prv_ng.reading.open_reports import Selection
from nsys2prv_ng.runtime.limits import Resources
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from nsys2prv_ng.translation.plan_trace import TranslationPlan
from nsys2prv_ng.translation.translate import translate
from tests.conftest import SAMPLES
from tests.tiers import cases

pytestmark = pytest.mark.slow

DDP = sorted(SAMPLES.glob("ddp-2x2.*.sqlite"))

DRIFTING = """
[node."gpunode01"]
offset_us = 0.0
drift_ppm = 0.0
since_utc_ns = 0
[node."gpunode02"]
offset_us = 12.5
drift_ppm = 180.0
since_utc_ns = 1790000000000000000
"""

ALL = TranslationPlan(source_options=SourceOptions(osrt_min=0))
WINDOWS = TranslationPlan(source_options=SourceOptions(nvtx_range="forward"), selection=Selection(nvtx_range="forward"))
FEW = TranslationPlan(selection=Selection(ranks=frozenset({1, 2}), shortest={"cuda_api": 10_000}))
SCARCE = [Resources(2, 10**9), Resources(3, 0), Resources(1, 200_000)]


def written(folder, options, resources, reports=DDP):
    summary = translate(reports, folder / "out.prv", replace(options, resources=resources, force=True))
    account = [(each.name, each.read, each.written, each.dropped) for each in summary.sources]
    lines = (summary.states, summary.events, summary.communications)
    return [(folder / f"out.{suffix}").read_bytes() for suffix in ("prv", "pcf", "row")], account, lines


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """What is written with all sources on one core, with enough memory."""
    return written(tmp_path_factory.mktemp("plain"), ALL, Resources(1, 10**9))


@pytest.mark.parametrize("options", cases([ALL, WINDOWS, FEW], push=1), ids=["all", "windows", "few"])
def test_cores_and_memory(tmp_path, options, plain):
    expected = plain if options is ALL else written(tmp_path, options, Resources(1, 10**9))
    assert len(expected[0][0]) > 10**5
    for resources in SCARCE:
        assert written(tmp_path, options, resources, DDP[::-1]) == expected, resources
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.pcf", "out.prv", "out.row"]


@pytest.mark.parametrize("ways", cases([1, 3], push=1))
def test_clocks_that_drift(tmp_path, plain, ways):
    (tmp_path / "clocks.toml").write_text(DRIFTING)
    drifting = replace(ALL, align=tmp_path / "clocks.toml", several_jobs=True)
    expected = written(tmp_path, drifting, Resources(1, 10**9))
    assert expected[0][0] != plain[0][0]
    for resources in SCARCE[:ways]:
        assert written(tmp_path, drifting, resources) == expected, resources


def test_events_wait_in_the_folder_for_them(tmp_path, plain):
    """With no memory to hold them, all are written there; it is left empty."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "out").mkdir()
    assert written(tmp_path / "out", ALL, Resources(2, 0, tmp_path / "tmp")) == plain
    assert list((tmp_path / "tmp").iterdir()) == []
