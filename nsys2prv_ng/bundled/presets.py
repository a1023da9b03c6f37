"""The Paraver presets (.cfg) that come with the program: what there is, and copies of it where the user wants them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from nsys2prv_ng.bundled.files import locate_bundled
from nsys2prv_ng.errors import TranslationError, UsageError

_BEGIN, _END = "ConfigFile.BeginDescription", "ConfigFile.EndDescription"


@dataclass(frozen=True)
class Preset:
    """A preset by its folder and name (`analysis/gpu-gaps`), the first line of its description, and its file."""

    name: str
    summary: str
    path: Path


def locate_presets() -> Path:
    """Where the presets are."""
    return locate_bundled("cfgs", "cfgs")


def list_presets() -> list[Preset]:
    """All presets, by name."""
    folder = locate_presets()
    return [
        Preset(path.relative_to(folder).with_suffix("").as_posix(), _summary(path), path)
        for path in sorted(folder.glob("*/*.cfg"))
    ]


def _summary(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return lines[lines.index(_BEGIN) + 1 : lines.index(_END)][0]


def install_presets(directory: Path, *, force: bool) -> list[Path]:
    """Copy the presets into a directory, with their folders; returns the copies.

    Raises UsageError where that would replace other files without `force`, TranslationError where it cannot be written.
    """
    copies = [(preset.path, directory / f"{preset.name}.cfg") for preset in list_presets()]
    try:
        others = [copy for source, copy in copies if copy.exists() and copy.read_bytes() != source.read_bytes()]
        if others and not force:
            raise UsageError(f"{others[0]}: exists and is another file ({len(others)} such); --force replaces them")
        for source, copy in copies:
            copy.parent.mkdir(parents=True, exist_ok=True)
            if not (copy.exists() and copy.samefile(source)):
                shutil.copyfile(source, copy)
    except OSError as error:
        raise TranslationError(f"{error.filename or directory}: cannot be written: {error.strerror}") from error
    return [copy for _, copy in copies]
