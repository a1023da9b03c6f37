"""Compares predictions with pairs of captures: a program with a planted cause, and the same program without it.

    python -m benchmarks.what_if FOLDER...

A set is the reports NAME.rank*.sqlite; benchmarks/captures/ has the programs of most. Pairs without captures are left
out. Times are ms a step, medians of the steps that count. `saved` is what each capture with the cause differs by from
each without; a prediction within that range is off by 0. `noise` is how far two captures of one program differ.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.steps import list_sets
from nsys2prv_ng.analysis.waits.waits import find_waits
from nsys2prv_ng.api.plans import make_summary_options
from nsys2prv_ng.arrays.types import IntArray
from nsys2prv_ng.job.open_job import open_job
from nsys2prv_ng.options.calls import PredictionOptions
from nsys2prv_ng.replay.changes import parse_changes
from nsys2prv_ng.replay.model import load_model
from nsys2prv_ng.replay.what_if import Experiment
from nsys2prv_ng.runtime.progress import Progress


@dataclass
class Pair:
    """Captures of a program with a cause, the change to predict, and captures of the program with this change."""

    planted: tuple[str, ...]
    change: str
    twins: tuple[str, ...]


CUDA_FREE = "call 'cudaFree' = 0 and call 'cudaMalloc' = 0"
PAIRS = (
    Pair(("ex1a-slow",), "range 'data loading' = 0", ("ex1a-fast",)),
    Pair(("w-load",), "range 'data loading' = 0", ("w-base", "w-base-again")),
    Pair(("w-gemm",), "range 'extra work' = 0", ("w-base", "w-base-again")),
    Pair(("w-sync",), "range 'log' = 0", ("w-base", "w-base-again")),
    Pair(("hf-emptycache",), CUDA_FREE, ("hf-base",)),
    Pair(("m-late",), "range 'late host' = 0", ("m-base",)),
    Pair(("m-big",), "network = ideal", ("m-base",)),
    Pair(("ex2b-manual",), "network = ideal", ("ex1a-fast",)),
    Pair(("ex2b-overlap",), "network = ideal", ("ex1a-fast",)),
    Pair(("s-pageable",), "range 'data movement' = 0", ("s-base", "s-base-again")),
    Pair(("d2-late",), "range 'extra work' = 0", ("d2-base", "d2-base-again")),
    Pair(("d2-host",), "range 'data loading' = 0 on rank 0", ("d2-base", "d2-base-again")),
    Pair(("d2-slow-net",), "network = ideal", ("d2-base", "d2-base-again")),
    Pair(("s-launch",), "host = ideal", ("s-launch-graph",)),
    Pair(("p-planted", "p-planted-again"), "range 'augment' = 0", ("p-base", "p-base-again")),
)


def open_steps(reports: list[Path], change: str = "") -> tuple[IntArray, IntArray]:
    """Return the lengths (ns) of the steps of a set that count, observed and with a change."""
    options = make_summary_options(PredictionOptions(several_jobs=True))
    with open_job(reports, Path(), options, Progress()) as job:
        experiment = Experiment(load_model(job, find_waits(job)))
        outcome = experiment.play(parse_changes(change))[0] if change else experiment.observed
        return experiment.observed.lengths, outcome.lengths


def describe(pair: Pair, sets: dict[str, list[Path]]) -> list[str]:
    """Return rows of the table, one for each capture with the cause."""
    planted = {name: open_steps(sets[name], pair.change) for name in pair.planted if name in sets}
    steps = {name: float(np.median(observed)) / 1e6 for name, (observed, _) in planted.items()}
    twins = [float(np.median(open_steps(sets[twin])[0])) / 1e6 for twin in pair.twins if twin in sets]
    saved = [step - twin for step in steps.values() for twin in twins]
    noise = max(np.ptp(list(steps.values())), np.ptp(twins))
    rows = []
    for name, (_, predicted) in planted.items():
        saving = steps[name] - float(np.median(predicted)) / 1e6
        error = max(min(saved) - saving, saving - max(saved), 0.0)
        nearest = min(saved, key=lambda value, saving=saving: abs(value - saving))
        cells = (
            name,
            f"`{pair.change}`",
            f"{steps[name]:.2f}",
            ", ".join(f"{twin:.2f}" for twin in twins),
            " to ".join(sorted({f"{min(saved):.2f}", f"{max(saved):.2f}"}, key=float)),
            f"{saving:.2f}",
            f"{error:.2f} ({error / abs(nearest):.0%})",
            f"{noise:.2f}" if noise else "-",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def main() -> None:
    sets = {name: reports for folder in sys.argv[1:] for name, reports in list_sets(Path(folder)).items()}
    print("| capture | change | step | twin | saved | predicted | off by | noise |")
    print("|---|---|---|---|---|---|---|---|")
    for pair in PAIRS:
        if any(name in sets for name in pair.planted) and any(twin in sets for twin in pair.twins):
            print("\n".join(describe(pair, sets)), flush=True)


if __name__ == "__main__":
    main()
