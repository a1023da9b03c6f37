"""Names the sides of a comparison after what differs in the paths of their files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from nsys2prv_ng.report.formats import get_report_name

SUMMARY = "summary.json"
"""The saved summary in the folder of a run, which has the name of the run."""
_RANK = re.compile(r"[._-]*((rank|task|proc|report|node)[._-]*\d*)?[._-]*$", re.IGNORECASE)
"""The end of a file name that only numbers the files of a side."""


def label_sides(sides: Sequence[Sequence[Path]]) -> list[str]:
    """Return distinct names for sides: the common start of their file names, or their folders, or A, B, C."""
    for names in ([_find_beginning(paths) for paths in sides], _find_folders(sides)):
        if all(names) and len(set(names)) == len(sides):
            return names
    return [chr(ord("A") + i) if i < 26 else f"side {i + 1}" for i in range(len(sides))]


def _find_beginning(paths: Sequence[Path]) -> str:
    """Return the common start of the file names, without a word that only numbers them, such as "rank"."""
    names = [
        path.absolute().parent.name if path.name == SUMMARY else get_report_name(path).removesuffix(".json")
        for path in paths
    ]
    return _RANK.sub("", os.path.commonprefix(names))  # noqa: RUF071 (compares characters, as it should)


def _find_folders(sides: Sequence[Sequence[Path]]) -> list[str]:
    """Return the names of the innermost folders that are all different; [""] if there are none."""
    folders = [
        Path(os.path.commonpath([path.absolute().parent for path in paths])) if paths else Path() for paths in sides
    ]
    depth = min(len(folder.parts) for folder in folders)
    for position in range(1, depth + 1):
        names = [folder.parts[-position] for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [""]
