"""Compares every output of two checkouts, byte for byte: python benchmarks/same_outputs.py OLD FOLDER...

OLD is a folder with the older code (`git worktree add ../old REVISION`); the newer is the checkout of this file.
FOLDER... contain reports; those whose names differ only by a rank are one job. Each job is translated, summed up,
inspected, checked and compared by both, in the environment of this Python. Prints each file that differs; the exit
code is 1 if any does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parents[1]
_RANK = re.compile(r"[._]rank\d+$")
_STEPS = ("--steps", "2:4")


def list_jobs(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Return the reports of each job, by its name."""
    jobs: dict[str, list[Path]] = defaultdict(list)
    for folder in folders:
        for path in sorted(folder.resolve().rglob("*.sqlite")):
            jobs[f"{path.parent.name}/{_RANK.sub('', path.stem)}"].append(path)
    return dict(jobs)


def list_commands(reports: Sequence[Path]) -> dict[str, list[str]]:
    """Return the arguments of each command, by the file that gets what it prints."""
    paths = list(map(str, reports))
    return {
        "translate.txt": ["translate", *paths, "out.prv", "--quiet"],
        "check.txt": ["check", "out.prv"],
        "inspect.txt": ["inspect", *paths],
        "inspect.json": ["inspect", *paths, "--json"],
        "summary.txt": ["summary", *paths, "--quiet", "--html", "page.html"],
        "summary.json": ["summary", *paths, "--quiet", "--json"],
        "steps.json": ["summary", *paths, "--quiet", "--json", *_STEPS],
        "compare.txt": ["compare", *paths, "--", *paths, "--quiet", "--all"],
        "compare.json": ["compare", *paths, "--", *paths, "--quiet", "--json"],
        "compare.md": ["compare", *paths, "--", *paths, "--quiet", "--markdown"],
    }


def write_outputs(checkout: Path, reports: Sequence[Path], folder: Path) -> Mapping[str, bytes]:
    """Run all commands with the code of a checkout; return the files that they wrote and what they printed."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "COLUMNS": "100"}
    for name, arguments in list_commands(reports).items():
        command = [sys.executable, "-m", "nsys2prv_ng", *arguments]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        (folder / name).write_bytes(done.stdout + b"rc %d\n" % done.returncode)
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def main() -> int:
    old, *folders = map(Path, sys.argv[1:])
    files = differing = 0
    for job, reports in list_jobs(folders).items():
        outputs = []
        for checkout in (old.resolve(), HERE):
            with TemporaryDirectory() as folder:
                outputs.append(write_outputs(checkout, reports, Path(folder)))
        before, after = outputs
        names = sorted({*before, *after})
        changed = [name for name in names if before.get(name) != after.get(name)]
        files, differing = files + len(names), differing + len(changed)
        print(f"{job}: {', '.join(changed) or 'same'}", flush=True)
    print(f"{files - differing:,} of {files:,} files are the same")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
