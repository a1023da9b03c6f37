"""Makes the table behind docs/development/programs.md: for each pair of programs, what is true and what is said.

    python benchmarks/programs/table.py FOLDER [NAME...]

FOLDER has the captures NAME-a.rank0.sqlite and NAME-b.rank0.sqlite. The truth is in tests/data/programs/truth.json: how
many steps each capture has, and their mean and median (ms) by the program's own clock, under nsys and alone.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import nsys2prv_ng

TRUTH = Path(__file__).parents[2] / "tests/data/programs/truth.json"


def describe(name: str, folder: Path, truth: dict[str, Any]) -> list[str]:
    """Return the cells of a pair: units and steps found and true, the verdict and the true change."""
    sides = [folder / f"{name}-{mode}.rank0.sqlite" for mode in "ab"]
    cells = [name]
    for mode, side in zip("ab", sides, strict=True):
        steps, true = nsys2prv_ng.summarize([side]).steps, truth[mode]
        found = "none" if steps is None else f"{steps.count + steps.warmup} `{(steps.delimiter or steps.name)[:40]}`"
        found += "" if steps is None else f", {steps.median_ns / 1e6:.2f} ms"
        cells += [f"{found} ({true['steps']}, {true['median_ms']:.2f} ms)", f"{true['alone_ms']:.2f}"]
    verdict = nsys2prv_ng.compare([sides[0]], [sides[1]]).pairs[0].verdict
    change = "" if verdict.change is None else f" {verdict.change:+.1%} ({verdict.average})"
    changes = [truth["b"][key] / truth["a"][key] - 1 for key in ("mean_ms", "median_ms")]
    return [*cells, verdict.kind + change, *(f"{true:+.1%}" for true in changes)]


def main() -> None:
    folder, truth = Path(sys.argv[1]), json.loads(TRUTH.read_text())
    print("| pair | a: steps, median (true) | a alone, ms | b | b alone, ms | compare | true mean | true median |")
    print("|---|---|---|---|---|---|---|---|")
    for name in sys.argv[2:] or truth:
        print("|", " | ".join(describe(name, folder, truth[name])), "|", flush=True)


if __name__ == "__main__":
    main()
