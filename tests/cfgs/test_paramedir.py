"""Histograms of presets of ranges, slow steps and activity: Paraver's own paramedir prints what the evaluator does."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cfgs.generate.cfg_text import format_cfg
from cfgs.generate.files import PRESETS
from tests.cfgs.evaluator.evaluate import evaluate
from tests.conftest import SAMPLES
from tests.translated import SOURCES, Translated, Translations

PARAMEDIR = shutil.which("paramedir")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(PARAMEDIR is None, reason="paramedir is not installed")]

NAMES = ["analysis/gpu_time_by_range", "analysis/slow_steps", "analysis/slow_kernels"]
NAMES += [f"hwcounters/{name}" for name in ("activity_by_kernel_class", "active_in_kernels", "links_in_transfers")]


@pytest.fixture(scope="module")
def translated(translations: Translations) -> Translated:
    reports = [SAMPLES / f"ddp-2x2.rank{rank}.sqlite" for rank in range(4)]
    return translations(reports, f"{SOURCES},nccl,nvtx_on_gpu,gpu_metrics")


@pytest.mark.parametrize("name", NAMES)
def test_paramedir_prints_each_histogram(translated: Translated, tmp_path: Path, name: str) -> None:
    """It prints the last one of a file, so each is in a file of its own."""
    (preset,) = (preset for preset in PRESETS if preset.path == f"{name}.cfg")
    for number, histogram in enumerate(preset.histograms):
        cfg, table = tmp_path / f"part{number}.cfg", tmp_path / f"part{number}.txt"
        cfg.write_text(format_cfg(replace(preset, shown=(histogram,))))
        command = [str(PARAMEDIR), "-npr", str(translated.trace.path), str(cfg), str(table)]
        subprocess.run(command, capture_output=True, cwd=tmp_path, check=True)
        _, *lines = [line.split("\t") for line in table.read_text().splitlines()]
        rows = lines[: lines.index([""])]
        (shown,) = evaluate(cfg, translated.trace).histograms
        assert shown.cells.any()
        for (label, *cells), expected in zip(rows, shown.cells, strict=True):
            printed = [float(cell) for cell in cells if cell and float(cell)]
            assert printed == pytest.approx([cell for cell in expected if cell], rel=1e-6), (histogram.name, label)
