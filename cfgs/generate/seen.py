"""What Paraver itself makes of every preset, as a table: python -m cfgs.generate.seen PARAMEDIR NAME=TRACE.prv ..."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from nsys2prv_ng.bundled.presets import Preset, list_presets

_INTRODUCTION = """# Presets as Paraver evaluates them

Each preset, evaluated by Paraver's own `paramedir` on traces of the reports in `samples/`, and of four
that are not among them: `oneproc-4gpu`, one process with four GPUs; `sampled-1`, with samples of the CPU; `um-1`,
with unified memory and switches of contexts; `autograd-1`, with the plugin that watches network interfaces. Of a
timeline the figure is the time in which it is not 0, summed over its rows, and its highest value in the unit of the
preset; of a histogram the sum of its cells, in the unit of its statistic. Of a preset with several windows or
histograms it is the last one's. A dash is an empty window: the trace has none of the preset's events. Of OpenACC,
UCX, system calls, video and network cards no capture was at hand.

What presets show is tested against the reports, or against reports that are made for it, in
`tests/cfgs`: activity, gaps, overlap, kernels in flight and their concurrency, queue delays, kernels
by name, copies, NCCL calls, iterations, samples of the CPU, page faults, metrics of nodes, and calls of the kinds
above. Of the others the tests know that the file is sound.

To repeat it, translate the reports, build paraver-kernel, and run

    python -m cfgs.generate.seen PARAMEDIR ddp-2x2=ddp.prv single-graph=graph.prv ...
"""


def main(paramedir: str, *named: str) -> None:
    traces = dict(each.split("=", 1) for each in named)
    print(_INTRODUCTION)
    print(f"| preset | {' | '.join(traces)} |")
    print(f"|---|{'---|' * len(traces)}")
    for preset in list_presets():
        figures = [_evaluate(paramedir, Path(trace), preset) for trace in traces.values()]
        print(f"| `{preset.name}` | {' | '.join(figures)} |")


def _evaluate(paramedir: str, trace: Path, preset: Preset) -> str:
    """What paramedir says of the preset on a trace. Raises RuntimeError if it refuses either, or rejects a line."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        command = [paramedir, "-tu", "-npr", str(trace.resolve()), str(preset.path), str(table)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
        if not table.exists() or "Error" in done.stderr:
            raise RuntimeError(f"{preset.name} on {trace}: {done.stdout}{done.stderr}")
        lines = [line.split("\t") for line in table.read_text().splitlines()]
    return _sum_timeline(lines) if lines and lines[0][0] else _sum_histogram(lines)


def _sum_timeline(lines: list[list[str]]) -> str:
    """Lines are object, begin, duration (ns), value."""
    shown = [(int(line[2]), float(line[3])) for line in lines if float(line[3])]
    if not shown:
        return "-"
    time = sum(duration for duration, _ in shown)
    return f"{time / 1e6:,.3f} ms, up to {max(value for _, value in shown):,.12g}"


def _sum_histogram(lines: list[list[str]]) -> str:
    """A line of columns, then a line for each row, and after an empty one lines of totals."""
    rows = lines[1 : lines.index([""])] if [""] in lines else lines[1:]
    total = sum(float(cell) for row in rows for cell in row[1:] if cell)
    return f"{total:,.12g}" if total else "-"


if __name__ == "__main__":
    main(*sys.argv[1:])
