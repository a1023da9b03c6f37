"""A trace of three threads, .cfg files for tests of the evaluator, and the comparison of what they show.

All expected results were worked out by hand and confirmed by Paraver's paramedir.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.cfgs.evaluator.evaluate import Histogram, Window, evaluate
from tests.trace_reader import Trace

KERNEL, CLOCK, RANGE = 7, 8, 100
PRV = """\
#Paraver (01/01/2024 at 00:00):100_ns:1(3):1:2(2:1,1:1)
1:1:1:1:1:0:40:1
2:2:1:1:2:0:8:150
2:1:1:1:1:5:100:1
2:1:1:1:1:8:100:2
2:1:1:1:1:10:7:1
3:1:1:1:1:10:10:3:1:2:1:25:25:64:5
2:1:1:1:1:12:100:0
2:2:1:1:2:15:7:3
2:1:1:1:1:20:7:0
2:1:1:1:1:20:7:2
2:3:1:2:1:25:7:1
2:1:1:1:1:30:7:0
2:2:1:1:2:35:7:0
1:1:1:1:1:40:60:9
2:3:1:2:1:45:7:0
2:1:1:1:1:50:100:0
2:2:1:1:2:50:8:300
3:1:1:1:1:60:60:3:1:2:1:80:80:8:6
1:1:1:1:1:70:100:1
2:2:1:1:2:100:8:700
"""
PCF = """\
EVENT_TYPE
0 7 Kernel
VALUES
0 End
1 alpha
2 beta
3 gamma

EVENT_TYPE
0 8 Clock [MHz]
PRECISION 2

EVENT_TYPE
0 100 Range
"""
ROW = "LEVEL THREAD SIZE 3\nA\nB\nC\n"

Bursts = dict[int, list[tuple[int, int, float]]]


@dataclass
class Case:
    cfg: str
    bursts: Bursts | None = None
    """Start, end and value of each burst, by object. Other objects are not compared."""
    cells: list[list[float]] | None = None
    """Cells of a histogram, by object."""
    first_bin: float = 0.0
    delta: float = 1.0


def single(
    thread: str = "Last Evt Val",
    types: str | None = f"1 {KERNEL}",
    level: str = "thread",
    functions: dict[str, str] | None = None,
    composes: list[tuple[str, str]] | None = None,
    unit: str = "Nanoseconds",
    more: str = "",
) -> str:
    """Return a window of events of some types (given as their count and the types), or of any type."""
    chosen = {"thread": thread, "evt_type": "=" if types else "All", **(functions or {})}
    lines = ["window_name w", "window_type single", f"window_units {unit}", f"window_level {level}"]
    lines += [_functions("selected", list(chosen.items())), *_composed(composes)]
    lines += [f"window_filter_module evt_type {types}"] * bool(types)
    return "\n".join([*lines, more, ""])


def derived(
    operation: str, parents: str, composes: list[tuple[str, str]] | None = None, more: str = "", factors: str = "1 1"
) -> str:
    lines = ["window_name d", "window_type composed", f"window_factors {factors}", f"window_operation {operation}"]
    lines += [f"window_identifiers {parents}", "window_units Nanoseconds", *_composed(composes)]
    return "\n".join([*lines, more, ""])


def _composed(composes: list[tuple[str, str]] | None) -> list[str]:
    return [_functions("compose", composes)] if composes else []


def _functions(kind: str, pairs: list[tuple[str, str]]) -> str:
    inner = ", ".join(f"{{{level}, {name}}}" for level, name in pairs)
    return f"window_{kind}_functions {{ {len(pairs)}, {{ {inner} }} }}"


def parameters(level: str, name: str, *lists: str) -> str:
    """Return the line of a function's parameters. Each list gives the number of values and the values."""
    return f"window_semantic_module {level} {name} {{ {len(lists)}, {{ {', '.join(lists)} }} }}"


def histogram(statistic: str, control: int = 1, data: int = 1, limits: str = "0 3 1", more: str = "") -> str:
    minimum, maximum, delta = limits.split()
    lines = ["< NEW ANALYZER2D >", "Analyzer2D.Name: h", f"Analyzer2D.ControlWindow: {control}"]
    lines += [f"Analyzer2D.DataWindow: {data}", f"Analyzer2D.Statistic: {statistic}"]
    lines += ["Analyzer2D.AnalysisLimits: Alltrace", "Analyzer2D.ComputeYScale: False"]
    lines += [f"Analyzer2D.Minimum: {minimum}", f"Analyzer2D.Maximum: {maximum}", f"Analyzer2D.Delta: {delta}"]
    return "\n".join([*lines, more, ""])


def composed(name: str, *lists: str, level: str = "compose_thread", **options: str) -> str:
    more = parameters(level, name, *lists) if lists else ""
    return single(composes=[(level, name)], more=more, **options)


def upper(function: str, level: str = "task", thread: str = "Last Evt Val", more: str = "") -> str:
    return single(thread, level=level, functions={level: function}, more=more)


A_KERNELS = [(0, 10, 0), (10, 20, 1), (20, 20, 0), (20, 30, 2), (30, 100, 0)]
B_KERNELS = [(0, 15, 0), (15, 35, 3), (35, 100, 0)]
C_KERNELS = [(0, 25, 0), (25, 45, 1), (45, 100, 0)]
KERNELS = {0: A_KERNELS, 1: B_KERNELS, 2: C_KERNELS}
RUNNING = single("In State", None, more=parameters("thread", "In State", "1 1"))
LABEL = "window_filter_module evt_type_label 1"
IDLE = [(0, 100, 0)]


def valued(bursts: list[tuple[int, int, float]], *values: float) -> list[tuple[int, int, float]]:
    return [(begin, end, value) for (begin, end, _), value in zip(bursts, values, strict=True)]


SIGNS = [("compose_thread", "Sign")]
MIXED = f"{single(level='task', composes=SIGNS)}\n{single()}\n"


def write_trace(folder: Path) -> Path:
    for suffix, text in (("prv", PRV), ("pcf", PCF), ("row", ROW)):
        (folder / f"trace.{suffix}").write_text(text)
    return folder / "trace.prv"


def write_cfg(folder: Path, text: str) -> Path:
    path = folder / "a.cfg"
    path.write_text(f"#ParaverCFG\nConfigFile.Version: 3.4\n\n{text}")
    return path


def check(case: Case, trace: Trace, folder: Path) -> None:
    last = evaluate(write_cfg(folder, case.cfg), trace).last
    for index, expected in (case.bursts or {}).items():
        assert isinstance(last, Window)
        bursts = last.bursts[last.bursts["object"] == index]
        shown = list(zip(bursts["begin"].tolist(), bursts["end"].tolist(), bursts["value"].tolist(), strict=True))
        assert [pytest.approx(burst, rel=1e-12) for burst in expected] == shown
    if case.cells is not None:
        assert isinstance(last, Histogram)
        np.testing.assert_allclose(last.cells, case.cells, rtol=1e-12)
        assert (last.bins.minimum, last.bins.delta) == (case.first_bin, case.delta)
        assert last.frame.columns.tolist() == [case.first_bin + i * case.delta for i in range(len(case.cells[0]))]
