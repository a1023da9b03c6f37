"""Compare what `inspect` estimates of traces with the traces.

    python benchmarks/paraver_estimate.py 'JOB.rank*.sqlite'...

Each argument is a pattern of the reports of one job. Prints a row for each, and then for each source of the reports the
event lines, pairs and communications that a row of it has in the traces, without what is derived from several sources.
"""

from __future__ import annotations

import glob
import sys
import tempfile
from collections import Counter
from pathlib import Path

from nsys2prv_ng import inspect, translate
from nsys2prv_ng.paraver.load_cost import LoadCost


def main(patterns: list[str]) -> None:
    """Print both tables."""
    rows: Counter[str] = Counter()
    loads: dict[str, LoadCost] = {}
    print(
        "| reports | trace MB | estimate / trace | memory of records MB | estimate / counted |\n|---|---|---|---|---|"
    )
    for pattern in patterns:
        reports = sorted(glob.glob(pattern))  # noqa: PTH207 (patterns may be absolute)
        inspection = inspect(reports)
        with tempfile.TemporaryDirectory(dir=".") as folder:
            result = translate(reports, Path(folder) / "x.prv")
        estimate, counted = inspection.load, result.load
        print(
            f"| {Path(pattern).name} | {result.bytes / 1e6:.1f} | {estimate.text_bytes / result.bytes:.2f}"
            f" | {counted.record_memory / 1e6:.1f} | {estimate.record_memory / max(1, counted.record_memory):.2f} |",
            flush=True,
        )
        rows.update(inspection.rows_of_sources)
        for source in result.sources:
            loads[source.name] = loads.get(source.name, LoadCost()) + source.load
    print("\n| source | rows | lines a row | pairs a row |\n|---|---|---|---|")
    for name, number in rows.items():
        if number:
            print(f"| {name} | {number:,} | {loads[name].events / number:.2f} | {loads[name].pairs / number:.2f} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
