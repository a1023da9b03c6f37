"""The names of the three files of a trace."""

from __future__ import annotations

from pathlib import Path


def is_trace(path: Path) -> bool:
    """Return whether a file has the name of a trace: x.prv or x.prv.gz."""
    return path.name.endswith((".prv", ".prv.gz"))


def list_trace_files(path: Path) -> tuple[Path, Path, Path]:
    """Return the paths of the .pcf, .row and .prv (or .prv.gz) of a trace, given the path of the last."""
    stem = path.name.removesuffix(".gz").removesuffix(".prv")
    return path.with_name(f"{stem}.pcf"), path.with_name(f"{stem}.row"), path
