"""A cut of a trace is the translation of its reports with the same time or ranks, line for line.

Not so what looks at the chosen time itself: the critical path, why a rank was late at the begin of the window, and
what GPUs with waits do in a window without any. And the cut also has the values of metrics that hold at its begin.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from nsys2prv_ng.cutting.cut import Selection as CutSelection
from nsys2prv_ng.cutting.cut import cut_trace
from nsys2prv_ng.job.selection import Selection
from nsys2prv_ng.paraver.checker.trace import check_trace
from nsys2prv_ng.paraver.event_types import (
    CRITICAL_PATH,
    GPU_ACTIVITY_WITH_WAITS,
    LATENESS,
    STEP,
    TAG_PATH,
    WAIT_REASON,
)
from nsys2prv_ng.runtime.progress import Progress
from nsys2prv_ng.sources.registry import select_sources
from nsys2prv_ng.translation.translate import TranslationPlan, translate
from tests.conftest import SAMPLES, Unpacked
from tests.report_sets import sets
from tests.tiers import cases

ANALYSED = {str(event_type.number) for event_type in (CRITICAL_PATH, WAIT_REASON, GPU_ACTIVITY_WITH_WAITS)}
METRICS = [str(number) for number in range(9400, 9500)]
REPORTS = {
    "single-graph": ["single-graph.sqlite"],
    "mpi-4": [f"mpi-4.rank{rank}.sqlite" for rank in range(4)],
    "ddp-2x2": ["ddp-2x2.rank0.sqlite", "ddp-2x2.rank2.sqlite"],
}
OTHERS = ["cpu/2024.2.3-nvtx_py", "cpu/2024.2.3-omp_clang", "cpu/2024.2.3-nccl_mimic_rank0"]


def translated(reports: list[Path], output: Path, selection: Selection) -> Path:
    translate(reports, output, TranslationPlan(sources=select_sources(None), selection=selection, force=True))
    return output


def read_lines(path: Path) -> tuple[str, Counter[str]]:
    """The header without its date, and all other lines, without what looks at the chosen time."""
    header, *lines = path.read_text().splitlines()
    kept = []
    for line in lines:
        fields = line.split(":")
        if fields[0] == "2" and ANALYSED.intersection(fields[6::2]):
            continue
        if fields[0] != "3" or fields[14] != str(TAG_PATH):
            kept.append(line)
    return header.partition(")")[2], Counter(kept)


def check_windows(reports: list[Path], folder: Path, windows: list[tuple[int, int]]) -> None:
    whole = translated(reports, folder / "whole.prv", Selection())
    for window in windows:
        expected = read_lines(translated(reports, folder / "expected.prv", Selection(window=window)))
        cut_trace(whole, folder / "part.prv", CutSelection(window), Progress(), force=True, block_bytes=100_000)
        found = read_lines(folder / "part.prv")
        assert found[0] == expected[0]
        held = found[1] - expected[1]
        assert not expected[1] - found[1], window
        assert all(line.split(":")[5] == "1" and line.split(":")[6] in METRICS for line in held), window
        assert check_trace(folder / "part.prv").problems == [], window


def choose_windows(whole: Path) -> list[tuple[int, int]]:
    """Windows in the middle, and at the times of records."""
    header, *lines = whole.read_text().splitlines()
    times = sorted({int(line.split(":")[5]) for line in lines if line[0] in "123"})
    middle = len(times) // 2
    end = int(header.split("):")[1].partition("_")[0])
    return [(end // 3, 2 * end // 3), (times[middle], times[middle + len(times) // 20]), (times[middle] - 1, 10 * end)]


@pytest.mark.parametrize("name", cases(REPORTS, push=1))
def test_a_window_of_a_sample_is_its_translation(name: str, tmp_path: Path) -> None:
    reports = [SAMPLES / report for report in REPORTS[name]]
    windows = choose_windows(translated(reports, tmp_path / "whole.prv", Selection()))
    check_windows(reports, tmp_path, windows[2:] if name == "mpi-4" else windows[1:2])


@pytest.mark.slow
@pytest.mark.parametrize("name", sets(OTHERS))
def test_a_window_of_other_sources_is_its_translation(
    name: str, tmp_path: Path, shared_reports: Path, unpacked: Unpacked
) -> None:
    reports = [unpacked(shared_reports / f"{name}.sqlite")]
    windows = choose_windows(translated(reports, tmp_path / "whole.prv", Selection()))
    check_windows(reports, tmp_path, windows[1:])


@pytest.mark.slow
def test_ranks_of_a_sample_are_their_translation(tmp_path: Path) -> None:
    """Rank 3 has the first record of all, so that both count from the same time."""
    reports = [SAMPLES / report for report in REPORTS["mpi-4"]]
    whole = translated(reports, tmp_path / "whole.prv", Selection())
    for ranks in ([1, 3], [0, 1, 3]):
        expected = translated(reports, tmp_path / "part.prv", Selection(ranks=frozenset(ranks)))
        header, lines = read_lines(expected)
        row = expected.with_suffix(".row").read_text().replace("\npart\n", "\nwhole\n")
        cut_trace(whole, expected, CutSelection(ranks=ranks), Progress(), force=True)
        found = read_lines(expected)
        # The last record may be of another rank; lateness and steps are those of all ranks of the job.
        assert found[0].partition("_")[2] == header.partition("_")[2]
        differing = (found[1] - lines) + (lines - found[1])
        of_all = re.compile(rf":({LATENESS.number}|{STEP.number}):")
        assert [line for line in differing if not of_all.search(line)] == []
        assert differing.total() < found[1].total() // 100
        assert expected.with_suffix(".row").read_text() == row
        assert check_trace(expected).problems == []
