"""Print a table of all presets as Paraver evaluates them: python -m cfgs.generate.seen PARAMEDIR NAME=TRACE.prv ..."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from nsys2prv_ng.bundled.presets import Preset, list_presets

_INTRODUCTION = """# Presets as Paraver evaluates them

Paraver's own `paramedir` evaluated each preset on traces of the reports in `samples/`, and of four reports in
`tests/data/gpu/`: `oneproc-4gpu`, one process with four GPUs; `sampled-1`, with CPU samples; `um-1`, with unified
memory and context switches; `autograd-1`, with the plugin that samples network interfaces.

For a timeline the table shows how long it is not 0, summed over its rows, and its highest value in the unit of the
preset. For a histogram it shows the sum of the cells, in the unit of the statistic. If a preset has several windows or
histograms, the numbers are those of the last one. A dash means an empty window: the trace has none of the preset's
events. There was no capture with OpenACC, UCX, system calls, video or network cards. `views/overview` is for overviews.

`tests/cfgs` compares what presets show with the reports, or with reports made for the test: activity, gaps, overlap,
kernels in flight and their concurrency, queue delays, kernels by name, copies, NCCL calls, iterations, CPU samples,
page faults, metrics of nodes, waits, the critical path, efficiencies, time by NVTX range, slow steps and kernels,
GPU metrics by what runs, and calls of the kinds above. For the other presets it checks that the file is sound.

To repeat it, translate the reports, build paraver-kernel, and run

    python -m cfgs.generate.seen PARAMEDIR ddp-2x2=ddp.prv single-graph=graph.prv ...

## Filters

Three files in `filters/`, beside the presets, are for Paraver's own tools, which make a smaller trace without loading
the large one ([how to use them](../guides/choosing.md#when-the-trace-is-too-large)): `overview.xml` keeps states,
steps and NVTX, `nccl.xml` what belongs to NCCL, and `kernels_per_10ms.xml` counts kernels. Of the 17.3 MB of four
reports like `ddp-2x2`, with metrics at 2 kHz, they leave 2.3, 0.24 and 1.3 MB. `tests/cfgs/test_filters.py` compares
what `paramedir` writes with the lines that should be left.

## All presets
"""


def main(paramedir: str, *named: str) -> None:
    """Print the page for traces given as NAME=PATH."""
    traces = dict(name_and_path.split("=", 1) for name_and_path in named)
    print(_INTRODUCTION)
    print(f"| preset | {' | '.join(traces)} |")
    print(f"|---|{'---|' * len(traces)}")
    for preset in list_presets():
        figures = [_evaluate(paramedir, Path(trace), preset) for trace in traces.values()]
        print(f"| `{preset.name}` | {' | '.join(figures)} |")


def _evaluate(paramedir: str, trace: Path, preset: Preset) -> str:
    """Evaluate a preset on a trace with paramedir.

    Raises RuntimeError if paramedir refuses the preset or the trace, or rejects a line.
    """
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        command = [paramedir, "-tu", "-npr", str(trace.resolve()), str(preset.path), str(table)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if not table.exists() or "Error" in done.stderr:
            raise RuntimeError(f"{preset.name} on {trace}: {done.stdout}{done.stderr}")
        lines = [line.split("\t") for line in table.read_text().splitlines()]
    return _sum_timeline(lines) if lines and lines[0][0] else _sum_histogram(lines)


def _sum_timeline(lines: list[list[str]]) -> str:
    """Sum up a timeline. Each line is object, start, duration (ns), value."""
    shown = [(int(line[2]), float(line[3])) for line in lines if float(line[3])]
    if not shown:
        return "-"
    time = sum(duration for duration, _ in shown)
    return f"{time / 1e6:,.3f} ms, up to {max(value for _, value in shown):,.12g}"


def _sum_histogram(lines: list[list[str]]) -> str:
    """Sum up a histogram: a line of columns, one line per row, an empty line, and lines of totals."""
    rows = lines[1 : lines.index([""])] if [""] in lines else lines[1:]
    total = sum(float(cell) for row in rows for cell in row[1:] if cell)
    return f"{total:,.12g}" if total else "-"


if __name__ == "__main__":
    main(*sys.argv[1:])
