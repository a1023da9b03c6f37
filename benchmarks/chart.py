"""A picture of CPU time and memory against the size of the trace, from what the other benchmarks measured.

python benchmarks/chart.py [OUT.png]

Needs matplotlib (`pip install -e '.[bench]'`). Reads benchmarks/measured/against_nsys2prv.json and scale.json, and
writes docs/pictures/performance.png if no other name is given; cores.png beside it is from cores.json.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

HERE = Path(__file__).parent
PICTURE = HERE.parent / "docs/pictures/performance.png"
CORES = HERE.parent / "docs/pictures/cores.png"
SERIES = (
    ("against_nsys2prv", "nsys2prv", "nsys2prv 0.6.0rc1", "#d95f02", "s"),
    ("against_nsys2prv", "nsys2prv-ng", "nsys2prv-ng, the same kinds of event", "#7570b3", "^"),
    ("scale", "nsys2prv-ng", "nsys2prv-ng, all kinds of event", "#1b7837", "o"),
)
"""File of measurements, program, label, colour, marker."""


def main() -> None:
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    figure, (time, memory) = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for file, who, label, colour, marker in SERIES:
        rows = [row for row in load_measurements(file) if row["who"] == who]
        if not rows:
            continue
        million = [row["records"] / 1e6 for row in rows]
        for axes, values in ((time, [row["cpu"] for row in rows]), (memory, [row["pss"] / 1e9 for row in rows])):
            axes.plot(million, values, marker=marker, color=colour, label=label)
            for row, x, y in zip(rows, million, values, strict=True):
                above = who == "nsys2prv" or file == "scale"
                offset, place = ((0, 7), "bottom") if above else ((0, -7), "top")
                axes.annotate(str(row["reports"]), (x, y), offset, textcoords="offset points", ha="center", va=place)
    decorate(time, "CPU time, s")
    decorate(memory, "Peak memory of all processes, GB")
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", ncols=len(SERIES), frameon=False)
    figure.savefig(out, dpi=130)
    draw_cores()
    print(out)


def load_measurements(name: str) -> list[dict[str, Any]]:
    """Return the rows of a file of measurements, none if it is missing."""
    path = HERE / f"measured/{name}.json"
    return json.loads(path.read_text())["measurements"] if path.exists() else []


def draw_cores() -> None:
    """Draw how many times as fast more cores are, for each command and number of reports."""
    rows = load_measurements("cores")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for command, reports in dict.fromkeys((row["who"], row["reports"]) for row in rows):
        own = [row for row in rows if (row["who"], row["reports"]) == (command, reports)]
        speed_up = [own[0]["wall"] / row["wall"] for row in own]
        axes.plot([row["cores"] for row in own], speed_up, marker="o", label=f"{command}, {reports} reports")
    axes.axline((1, 1), slope=1, color="grey", linestyle=":", label="ideal")
    axes.set_xlabel("cores")
    axes.set_title("Times as fast as with one core")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(CORES, dpi=130)


def decorate(axes: Axes, title: str) -> None:
    """Set the title and two logarithmic axes: what grows in proportion to the trace is then a line of slope 1."""
    axes.set_title(title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("lines in the trace (million); at each point the number of reports")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.4, high * 1.4)  # room for the numbers
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(which="both", alpha=0.25)


if __name__ == "__main__":
    main()
