"""Every preset, checked by the checker on traces with and without its events."""

from __future__ import annotations

from pathlib import Path

import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.paraver.checker.cfg import check_cfg
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.sources.registry import SOURCES
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.cfgs.sampled_report import make_sampled_report
from tests.cfgs.test_node_presets import make_node_trace
from tests.conftest import REPOSITORY
from tests.sources.small_reports import MAIN, PROCESS, export, translate_reports
from tests.tiers import cases
from tests.translated import translated_set

SETS = {
    "ddp-2x2": [f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)],
    "mpi-4": [f"mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "single-graph": ["single-graph.sqlite"],
}
EVERYTHING = ",".join(source.name for source in SOURCES)

_CALLS = ("start", "end", "globalTid", "nameId")
_UCX = ("start", "end", "globalTid", "textId")
_OPENACC = ("start", "end", "globalTid", "eventKind", "srcFile", "lineNo")
RARE = {
    "SYSCALL": (_CALLS, [(10, 20, MAIN, 0)]),
    "NVTX_EVENTS": (
        ("start", "eventType", "globalTid", "domainId", "text", "jsonText"),
        [
            (1, 75, MAIN, 1, "Python Periodic Sampling", None),
            (10, 34, MAIN, 1, "", '{"Python Periodic Sampling":{"Frames":[{"Function":0,"File":0,"Line":1}]}}'),
        ],
    ),
    "UCP_EVENTS": (_UCX, [(10, 20, MAIN, 0)]),
    "UCP_PROGRESS_EVENTS": (_UCX, [(10, 20, MAIN, 0)]),
    "CUPTI_ACTIVITY_KIND_OPENACC_OTHER": (_OPENACC, [(10, 20, MAIN, 1, 0, 1)]),
    "CUPTI_ACTIVITY_KIND_OPENACC_DATA": (_OPENACC, [(10, 20, MAIN, 1, 0, 1)]),
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH": (_OPENACC, [(10, 20, MAIN, 1, 0, 1)]),
    "NVVIDEO_ENCODER_API": (_CALLS, [(10, 20, MAIN, 0)]),
    "NVVIDEO_DECODER_API": (_CALLS, [(10, 20, MAIN, 0)]),
    "NVVIDEO_JPEG_API": (_CALLS, [(10, 20, MAIN, 0)]),
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": (
        ("start", "end", "globalPid", "deviceId", "numberOfPageFaults"),
        [(10, 20, PROCESS, 0, 5)],
    ),
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (("start", "globalPid", "CpuInstruction"), [(10, PROCESS, 0)]),
    "GPU_CONTEXT_SWITCH_EVENTS": (
        ("tag", "contextId", "timestamp", "gpuId", "globalPid"),
        [(8, 1, 10, 0, PROCESS), (7, 1, 20, 0, PROCESS)],
    ),
}
"""One event of each kind that no sample has."""


@pytest.fixture(scope="module", params=cases(SETS, quick=["single-graph"]))
def trace(request: pytest.FixtureRequest, samples: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    return translated_set([samples / name for name in SETS[request.param]], folder, EVERYTHING).trace.path


def test_the_checker_finds_nothing_in_any_preset(trace: Path) -> None:
    contents = check_trace(trace).contents
    presets = list_presets()
    assert len(presets) == len(list((REPOSITORY / "cfgs").glob("*/*.cfg"))) > 40
    for preset in presets:
        report = check_cfg(preset.path, contents.config, contents.header, contents.types)
        assert report.problems == [], preset.name
        assert report.windows > 0


def test_presets_warn_only_of_events_that_the_trace_lacks(trace: Path) -> None:
    contents = check_trace(trace).contents
    for preset in list_presets():
        report = check_cfg(preset.path, contents.config, contents.header, contents.types)
        for warning in report.warnings:
            assert "in the trace" in warning.message, (preset.name, warning)


@pytest.mark.slow
def test_every_preset_has_its_events_in_some_trace(samples: Path, tmp_path: Path) -> None:
    """No preset may be empty in all traces. Reports with the events that the samples lack are made here."""
    traces = [
        translated_set([samples / report for report in reports], tmp_path / name, EVERYTHING).trace.path
        for name, reports in SETS.items()
    ]
    for report in (export(tmp_path / "rare.sqlite", ["name"], RARE), make_sampled_report(tmp_path).path):
        output = tmp_path / f"{report.stem}.prv"
        traces.append(translate_reports([report], output, EVERYTHING, SourceOptions(osrt_min=0))[0].path)
    traces.append(make_node_trace(tmp_path).path)
    overview = tmp_path / "overview.prv"
    translate([samples / report for report in SETS["ddp-2x2"]], overview, overview_trace=True)
    traces.append(overview)
    empty = {preset.name for preset in list_presets()}
    for trace in traces:
        contents = check_trace(trace).contents
        for preset in list_presets():
            checked = check_cfg(preset.path, contents.config, contents.header, contents.types)
            if not any("none of the event types" in warning.message for warning in checked.warnings):
                empty.discard(preset.name)
    assert empty == set()
