"""Prints the steps of each set of reports: as summary prints them, by plain loops over SQL, and as ranges on hosts.

    python -m benchmarks.steps FOLDER...

A set is the reports of one name: NAME.rank*.sqlite or NAME.sqlite. Steps that no ranges mark have no second column.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from statistics import median

import nsys2prv_ng
from tests.report_truth import Report
from tests.steps.step_truth import StepTruth, list_ranges


def list_sets(folder: Path) -> dict[str, list[Path]]:
    """Return the reports of each set, by its name."""
    sets: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.sqlite")):
        sets.setdefault(re.sub(r"\.rank\d+$", "", path.stem), []).append(path)
    return sets


def describe(reports: list[Path]) -> str:
    """Return name, count and warm-up of the steps of a set, and the median step (ms) in three ways."""
    steps = nsys2prv_ng.summarize(reports, several_jobs=True).steps
    if steps is None:
        return "no steps"
    truth = "-"
    if not steps.delimiter:
        read = [Report(path) for path in reports]
        by_sql = StepTruth(read, list_ranges(read, steps.name))
        truth = f"{median(by_sql.lengths[by_sql.warmup :]) / 1e6:.3f}"
    name = steps.delimiter or steps.name
    return (
        f"{name[:24]} | {steps.count} after {steps.warmup} | {steps.median_ns / 1e6:.3f} | {truth} | "
        f"{steps.host_median_ns / 1e6:.3f}"
    )


def main() -> None:
    """Print a line for each set of the folders."""
    print("set | steps | count | printed (ms) | by SQL | on hosts")
    for folder in map(Path, sys.argv[1:]):
        for name, reports in list_sets(folder).items():
            print(f"{folder.name}/{name} | {describe(reports)}", flush=True)


if __name__ == "__main__":
    main()
