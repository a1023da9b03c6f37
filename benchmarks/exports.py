"""CPU seconds to export a report to each kind that nsys offers and to translate the export, and its size (MB).

python benchmarks/exports.py REPORT.nsys-rep [ROUNDS]

The kinds take turns, and the table shows medians. It is CPU time and not the clock, since several exports run at once
and the machine of the tests does other things too; each export and translation is a process of its own.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from nsys2prv_ng.report import export
from nsys2prv_ng.report.formats import EXPORT_FORMATS
from nsys2prv_ng.report.nsys import find_nsys, read_export_help


def main() -> None:
    report = Path(sys.argv[1]).absolute()
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    nsys = find_nsys()
    if nsys is None:
        sys.exit("no nsys on this machine")
    offered = read_export_help(nsys.path)
    formats = [format for format in EXPORT_FORMATS if format.type in offered]
    results_of_kind: dict[str, list[tuple[float, float, float]]] = {format.type: [] for format in formats}
    for _ in range(rounds):
        for format in formats:
            with tempfile.TemporaryDirectory(dir=report.parent) as name:
                folder = Path(name)
                link = folder / report.name
                link.symlink_to(report)
                export.EXPORT_FORMATS = (format,)
                start = _read_cpu()
                made = export.make_export(link, folder, nsys)
                exported = _read_cpu()
                command = [sys.executable, "-m", "nsys2prv_ng", "--quiet", made, folder / "out.prv"]
                subprocess.run(command, check=True)
                results_of_kind[format.type].append((exported - start, _read_cpu() - exported, _measure_size(made)))
    print(f"{report.name}, nsys {nsys.version}, {rounds} rounds")
    print(f"{'kind':12}{'export':>8}{'translate':>11}{'both':>8}{'MB':>8}")
    for kind, results in results_of_kind.items():
        exported, translated, size = (statistics.median(figures) for figures in zip(*results, strict=True))
        print(f"{kind:12}{exported:8.2f}{translated:11.2f}{exported + translated:8.2f}{size:8.1f}")


def _read_cpu() -> float:
    """Return the CPU seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _measure_size(path: Path) -> float:
    """Return the size of a file, or of the files in a folder, in MB."""
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files) / 1e6


if __name__ == "__main__":
    main()
