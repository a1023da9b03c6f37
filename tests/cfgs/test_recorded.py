"""Every preset, as Paraver shows the last part of it on a trace that has its events."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pytest

from nsys2prv_ng import translate
from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.sources.registry import SOURCES
from nsys2prv_ng.sources.shared.source_options import SourceOptions
from tests.cfgs.cfg_checker import TraceContents, check_cfg, read_contents
from tests.cfgs.recorded import Histogram, Window, show
from tests.cfgs.sampled_report import make_sampled_report
from tests.cfgs.test_node_presets import make_node_trace
from tests.cfgs.waits_trace import make_waits_trace
from tests.conftest import SAMPLES
from tests.sources.small_reports import MAIN, PROCESS, export, translate_reports
from tests.summary.steps.test_kinds_by_name import write_reports
from tests.trace_reader import Trace, read_trace

pytestmark = pytest.mark.slow  # translates whole jobs

PRESETS = {preset.name: preset.path for preset in list_presets() if preset.path.suffix == ".cfg"}
EVERYTHING = ",".join(source.name for source in SOURCES)

_CALLS = ("start", "end", "globalTid", "nameId")
_UCX = ("start", "end", "globalTid", "textId")
_OPENACC = ("start", "end", "globalTid", "eventKind", "srcFile", "lineNo")
RARE = {
    "SYSCALL": (_CALLS, [(10, 20, MAIN, 0)]),
    "NVTX_EVENTS": (
        ("start", "end", "eventType", "globalTid", "domainId", "text", "jsonText"),
        [
            (1, None, 75, MAIN, 1, "Python Periodic Sampling", None),
            (10, None, 34, MAIN, 1, "", '{"Python Periodic Sampling":{"Frames":[{"Function":0,"File":0,"Line":1}]}}'),
            (1, None, 75, MAIN, 2, "GIL Trace", None),
            (10, 20, 59, MAIN, 2, "Waiting for GIL", None),
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
        [(10, 20, PROCESS, 0, 5), (30, 40, PROCESS, 0, 5)],
    ),
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": (("start", "globalPid", "CpuInstruction"), [(10, PROCESS, 0)]),
    "GPU_CONTEXT_SWITCH_EVENTS": (
        ("tag", "contextId", "timestamp", "gpuId", "globalPid"),
        [(8, 1, 10, 0, PROCESS), (7, 1, 20, 0, PROCESS)],
    ),
}
"""One event of each kind that no sample has."""


class Made:
    """A trace, and what the checker found in it."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def contents(self) -> TraceContents:
        return read_contents(self.trace.path)

    def has_events(self, preset: Path) -> bool:
        checked = check_cfg(preset, self.contents.config, self.contents.header, self.contents.types)
        return not any("none of the event types" in warning.message for warning in checked.warnings)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Made]:
    """Return small traces. The first two are of steps of jobs with NCCL and with MPI, the third has no CUDA graph."""
    folder = tmp_path_factory.mktemp("recorded")
    chosen = {"mpi-4": {"steps": "4"}, "ddp-2x2": {"steps": "4"}, "single-graph": {}}
    for name, choice in chosen.items():
        reports = sorted(SAMPLES.glob(f"{name}*.sqlite"))
        translate(reports, folder / f"{name}.prv", **choice)
    translate(sorted(SAMPLES.glob("mpi-4*.sqlite")), folder / "overview.prv", overview_trace=True)
    traces = [read_trace(folder / f"{name}.prv") for name in (*chosen, "overview")]
    for report in (export(folder / "rare.sqlite", ["name"], RARE), make_sampled_report(folder).path):
        output = folder / f"{report.stem}.prv"
        traces.append(translate_reports([report], output, EVERYTHING, SourceOptions(osrt_min=0))[0])
    (folder / "kinds").mkdir()
    translate(
        write_reports(folder / "kinds", lambda n: ("train", "eval")[n % 3 == 0]), folder / "kinds.prv", steps="2:5"
    )
    traces += [make_node_trace(folder), make_waits_trace(folder, 1)[0], read_trace(folder / "kinds.prv")]
    return list(map(Made, traces))


def is_empty(trace: Trace, part: Window | Histogram) -> bool:
    """Return whether a part shows nothing. The rows of a window must go on to the end of the trace."""
    if isinstance(part, Histogram):
        return not part.cells.any()
    assert set(part.bursts.groupby("object")["end"].max()) == {trace.duration}
    return not part.bursts["value"].any()


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_is_empty_in_every_trace(name: str, made: list[Made]) -> None:
    traces = (one.trace for one in made if one.has_events(PRESETS[name]))
    assert not all(is_empty(trace, show(name, trace).last) for trace in traces)
