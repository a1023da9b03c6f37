"""Kinds that the texts of ranges tell, from the reports to the summary and the trace."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nsys2prv_ng import check, summarize, translate
from nsys2prv_ng.bundled.presets import list_presets
from nsys2prv_ng.summary.steps.table import describe_kinds
from tests.cfgs.cfg_checker import check_cfg, read_contents
from tests.conftest import SAMPLES
from tests.trace_reader import pair_intervals, read_trace

pytestmark = pytest.mark.slow

STEPS = 8
STEP, STEP_KIND = 63000430, 63000432


def write_reports(folder: Path, write: Callable[[int], str]) -> list[Path]:
    """Return copies of a job of four ranks whose ranges `iteration n` have the text that `write` returns for n."""
    paths = []
    for report in sorted(SAMPLES.glob("mpi-4.*.sqlite")):
        paths.append(folder / report.name)
        paths[-1].write_bytes(report.read_bytes())
        with closing(sqlite3.connect(paths[-1])) as database, database:
            for n in range(STEPS):
                update = "UPDATE NVTX_EVENTS SET text = ?, textId = NULL WHERE text = ?"
                assert database.execute(update, (write(n), f"iteration {n}")).rowcount == 1
    return paths


def count_context(n: int) -> int:
    """Return the requests with context in a step: one in every third step."""
    return int(n % 3 == 0)


def write_batch(engine: str, n: int) -> str:
    """Return the marker of a step: 4 requests generate 4 tokens, or from step 3 on 8 of them."""
    context = count_context(n)
    if engine == "vllm":
        return f"execute_context_{context}({512 * context})_generation_4({8 if n > 2 else 4})"
    return f"[Executor] _forward_step {n + 70}: {context} ctx reqs, {512 * context} ctx tokens, 4 gen reqs"


@pytest.mark.parametrize("engine", ["vllm", "tensorrt"])
def test_batches_of_a_server(engine: str, tmp_path: Path) -> None:
    summary = summarize(write_reports(tmp_path, lambda n: write_batch(engine, n)))
    steps, efficiency = summary.steps, summary.efficiency
    assert steps is not None and efficiency is not None
    counted = range(STEPS - len(efficiency.steps), STEPS)
    kinds = ["mixed" if count_context(n) else "decode" for n in counted]
    assert [step.kind for step in efficiency.steps] == kinds
    for kind in steps.kinds:
        own = [n for n, name in zip(counted, kinds, strict=True) if name == kind.name]
        context = sum(map(count_context, own))
        assert (kind.count, kind.context_requests, kind.context_tokens) == (len(own), context, 512 * context)
        tokens = sum(8 if n > 2 else 4 for n in own) if engine == "vllm" else None
        assert (kind.generation_requests, kind.generation_tokens) == (4 * len(own), tokens)
    assert f"decode: {kinds.count('decode')} of {len(kinds)} steps" in describe_kinds(steps)
    assert summary.to_dict()["steps"]["kinds"][0]["name"] == steps.kinds[0].name


def test_batches_of_sglang_in_turn(tmp_path: Path) -> None:
    markers = ["step[DECODE bs=5]", "step[EXTEND bs=1 toks=512]"]
    summary = summarize(write_reports(tmp_path, lambda n: markers[n % 2]))
    assert summary.steps is not None and summary.efficiency is not None
    names = [step.kind for step in summary.efficiency.steps]
    assert names == [["decode", "prefill"][n % 2] for n in range(STEPS - len(names), STEPS)]
    tokens = {kind.name: (kind.context_tokens, kind.generation_tokens) for kind in summary.steps.kinds}
    assert tokens == {"prefill": (512 * names.count("prefill"), 0), "decode": (0, 5 * names.count("decode"))}


def test_kinds_in_a_trace(tmp_path: Path) -> None:
    said = ["eval" if n % 3 == 0 else "train" for n in range(STEPS)]
    translate(write_reports(tmp_path, lambda n: f"{said[n]} {n}"), tmp_path / "trace.prv")
    assert not check(tmp_path / "trace.prv").problems
    trace = read_trace(tmp_path / "trace.prv")
    steps, kinds = (pair_intervals(trace, number).sort_values(["row", "begin"]) for number in (STEP, STEP_KIND))
    assert steps[["row", "begin", "end"]].values.tolist() == kinds[["row", "begin", "end"]].values.tolist()
    for row in np.unique(kinds["row"]):
        shown = [trace.values[STEP_KIND][value] for value in kinds["value"][kinds["row"] == row]]
        assert shown == said[STEPS - len(shown) :] and len(shown) >= STEPS - 1
    contents = read_contents(tmp_path / "trace.prv")
    (preset,) = [preset for preset in list_presets() if preset.name == "analysis/steps_by_kind"]
    report = check_cfg(preset.path, contents.config, contents.header, contents.types)
    assert not report.problems
    assert not any(str(STEP_KIND) in warning.message for warning in report.warnings)
