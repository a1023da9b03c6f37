"""Functions in WHERE by samples, waits for Python's lock, and the options that TRY ends with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

import nsys2prv_ng
from nsys2prv_ng.summary.answer.answer import answer
from nsys2prv_ng.summary.gpus.numbers import Sampled
from nsys2prv_ng.summary.job import JobSummary
from nsys2prv_ng.summary.text import format_summary
from tests.conftest import DATA, unpack
from tests.tiers import cases

PLANTED = {"gnn": "`grow (gnn.py)` 57%", "pong": "`sample (pong.py)` 18%", "evalloop": "`evaluate (evalloop.py)` 32%"}
"""What is slow on purpose in programs with samples (benchmarks/programs), and its share of the step."""


def summarize(name: str) -> JobSummary:
    return nsys2prv_ng.summarize([unpack(DATA / f"{name}.sqlite.xz")])


def say(summary: JobSummary, label: str) -> list[str]:
    """Return the lines of the answer with a label."""
    return [line.text for line in answer(summary).statements if line.label == label]


@pytest.mark.parametrize("name", cases(PLANTED, push=("gnn", "evalloop"), quick=("gnn",)))
def test_the_planted_function_is_named(name: str) -> None:
    summary = summarize(f"sampled/{name}")
    (gpu,) = summary.gpus
    [where], [see] = say(summary, "WHERE"), say(summary, "SEE")
    assert PLANTED[name] in where
    assert f"({sum(each.samples for each in gpu.sampled)} samples of Python)" in where
    assert see.endswith("basics/sampled_python.cfg")
    assert not any("--python-sampling" in line for line in say(summary, "TRY"))
    most = gpu.sampled[0]
    lines = format_summary(summary, details=True).splitlines()
    [row] = [line for line in lines if line.split()[:1] == [most.function.split()[0]] and str(most.samples) in line]
    assert row.split()[:2] == most.function.split()


def with_samples(summary: JobSummary, source: str, **samples: int) -> JobSummary:
    sampled = [Sampled(source=source, function=name, called="f", samples=n) for name, n in samples.items()]
    return replace(summary, gpus=[replace(summary.gpus[0], sampled=sampled)])


def test_few_samples_name_nothing_and_nsys_has_options_for_more() -> None:
    summary = summarize("programs/gnn-a.rank0")
    options = "to see functions: nsys profile --python-sampling=true --python-sampling-frequency=1000"
    assert say(summary, "TRY")[-1] == options
    few = with_samples(summary, "Python", one=15, two=4)
    assert say(few, "WHERE") == say(summary, "WHERE") and say(few, "TRY") == say(summary, "TRY")
    enough = with_samples(summary, "Python", one=15, two=5)
    assert [line.split(" of the step")[0] for line in say(enough, "WHERE")] == [
        "`one` 57% (mostly `f`), `two` 19% (mostly `f`)"
    ]
    assert options not in say(enough, "TRY")
    rare = with_samples(summary, "Python", one=16, two=4)  # twice its standard error reaches down to none
    assert "`two`" not in say(rare, "WHERE")[0]
    of_cpu = with_samples(summary, "CPU", one=30)
    [where] = say(of_cpu, "WHERE")
    assert where.split(";")[0] == "`one` 100% (mostly `f`) of the samples meanwhile (30 samples of the CPU)"
    assert say(of_cpu, "SEE")[0].endswith("analysis/sampled_while_gpu_idle.cfg")


def test_options_for_other_programs() -> None:
    summary = summarize("programs/gnn-a.rank0")
    assert summary.facts is not None
    native = replace(summary, facts=replace(summary.facts, programs=["solver"]))
    assert say(native, "TRY")[-1].endswith("nsys profile --sample=process-tree --backtrace=dwarf")
    known = replace(summary.facts, programs=["solver"], sources={**summary.facts.sources, "cpu_samples": 1})
    assert not any("--sample" in line for line in say(replace(summary, facts=known), "TRY"))
    off_main = [replace(call, main_ns=0) for call in summary.calls]
    assert say(replace(summary, calls=off_main), "TRY")[-1].endswith("; --trace=...,python-gil")


@pytest.mark.parametrize("mode", ["a", "b"])
def test_waits_for_the_lock_of_python(mode: str) -> None:
    path = unpack(DATA / f"programs/server-{mode}.rank0.sqlite.xz")
    with closing(sqlite3.connect(path)) as report:
        (count, waited) = report.execute(
            """SELECT COUNT(*), SUM(end - start) FROM NVTX_EVENTS JOIN StringIds ON id = textId
            WHERE eventType = 59 AND value = 'Waiting for GIL'"""
        ).fetchone()
    summary = nsys2prv_ng.summarize([path])
    [wait] = [call for call in summary.calls if call.name == "Waiting for GIL"]
    assert (wait.count, wait.total_ns) == (count, waited)
    assert not any("GIL" in each.domain for each in summary.ranges)
    assert not any("GIL" in cause.range for gpu in summary.gpus for cause in gpu.idle_causes or [])
    verdict = answer(summary)
    assert verdict.bottleneck == "GIL" and verdict.see == "basics/gil.cfg"
    [where] = say(summary, "WHERE")
    assert where.startswith(f"{round(waited / 1e6)} ms of waiting for it in ")
    assert [each.key for each in verdict.remedies] == ["gil"]
    little = [replace(call, total_ns=1) if call.name == wait.name else call for call in summary.calls]
    assert answer(replace(summary, calls=little)).bottleneck == "launch-bound"


def test_functions_of_pytorch_are_ranges() -> None:
    """Of `--pytorch=functions-trace`: 16 iterations, one of them a warm-up, and the optimizer of gan is not fused."""
    summary = summarize("sampled/gan-functions")
    assert summary.steps is not None and summary.steps.count + summary.steps.warmup == 16
    [where] = say(summary, "WHERE")
    assert where.startswith("`PyTorch:torch.optim.Adam.step` 20.2%, `PyTorch:torch.autograd.backward` 19.9%")
    assert say(summary, "TRY")[0].startswith("optimizer with fused=True")
